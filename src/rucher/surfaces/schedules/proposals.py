"""Schedules that agents propose: kept as events until the owner takes or refuses them; then one more table in his file.

Called by the interface. A proposal is read as data and written anew, so that its text can change nothing in the file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit

from rucher.protocol.errors import BadInput
from rucher.protocol.livefile import replace_file
from rucher.protocol.ports import Appended, Clock
from rucher.protocol.tomltext import load
from rucher.surfaces.schedules.file import SchedulesFile
from rucher.surfaces.schedules.plan import note
from rucher.surfaces.schedules.runner import ScheduleStore

MOST_WHY = 2000


class Proposals:
    """The proposals of one instance."""

    def __init__(self, store: ScheduleStore, clock: Clock, file: SchedulesFile, tenant: str) -> None:
        self._store = store
        self._clock = clock
        self._file = file
        self._tenant = tenant

    async def propose(self, text: str, why: str, by: str, key: str) -> Appended:
        """Keep a proposal, `text` being one `[[schedule]]` table; raises BadInput when it could not be taken as it is.

        Handed in again with the same key it is the same proposal.
        """
        if len(why) > MOST_WHY:
            raise BadInput(f"the reason is longer than {MOST_WHY} characters; say it in fewer words")
        self._file.parsed(grown(_text_of(self._file.path), text))
        body = {"text": text, "why": why, "by": by}
        return (await self._store.append(note(self._tenant, "schedule.proposed", key, self._clock.now(), body)))[0]

    async def apply(self, number: int, by: str) -> None:
        """Add the proposed table to the file, whose other bytes stay; raises BadInput when it cannot be taken any more."""
        row = await self._open(number)
        after = grown(_text_of(self._file.path), row["text"])
        self._file.parsed(after)
        replace_file(self._file.path, after.encode())
        await self._decide(number, "applied", by)

    async def refuse(self, number: int, by: str) -> None:
        """Put the proposal away; raises BadInput."""
        await self._open(number)
        await self._decide(number, "refused", by)

    async def _open(self, number: int) -> Mapping[str, Any]:
        rows = await self._store.rows("schedule.proposal", number)
        if not rows:
            raise BadInput(f"there is no proposal {number}; see `rucher schedules proposals`")
        if rows[0]["state"] != "open":
            raise BadInput(f"proposal {number} was {rows[0]['state']} before; see `rucher schedules proposals`")
        return rows[0]

    async def _decide(self, number: int, verdict: str, by: str) -> None:
        body = {"proposal": number, "verdict": verdict, "by": by}
        await self._store.append(note(self._tenant, "schedule.decided", str(number), self._clock.now(), body))


def grown(text: str, proposal: str) -> str:
    """`text` with the proposed table after it; raises BadInput when the proposal is not exactly one `[[schedule]]` table."""
    match load(proposal, "proposal", "[[schedule]]"):
        case {"schedule": [{**table}], **others} if not others:
            document = tomlkit.document()
            tables = tomlkit.aot()
            tables.append(tomlkit.item(table))
            document.append("schedule", tables)
        case _:
            raise BadInput("a proposal is exactly one [[schedule]] table; write one, with its keys below it")
    between = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    added = (between + tomlkit.dumps(document).strip("\n") + "\n").replace("\n", "\r\n" if "\r\n" in text else "\n")
    return text + added


def _text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read; correct that first: {error}") from error
