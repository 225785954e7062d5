"""Finds events in a large journal by subject, type and time, newest or oldest first, also among what was archived.

Called by commands that show what happened. The database passes over what surely does not fit, so that only what may fit is
read; what fits is decided here, once for both databases and for segments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from rucher.journal.history import all_events, archives, events_of
from rucher.journal.rows import SEQ, Row, event_of
from rucher.journal.store import StoreReader
from rucher.protocol.events import Event
from rucher.protocol.subjects import matches

LAST_SEQ = 2**63 - 1
_BATCH, _FEWEST = 1000, 20
_ANY = "ev.>"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an event must be: of this subject pattern, of exactly this type, recorded from `since` until before `until`.

    Times are microseconds since the epoch.
    """

    subject: str = _ANY
    type: str = ""
    since: int = 0
    until: int = LAST_SEQ

    def fits(self, event: Event) -> bool:
        """Whether the event is wanted; raises BadInput for a pattern that cannot be read."""
        return (
            self.since <= event.recorded_at < self.until
            and (not self.type or event.type == self.type)
            and (self.subject == _ANY or matches(self.subject, event.subject))
        )

    @property
    def asked(self) -> tuple[str, str, int, int]:
        """For the database: LIKE patterns of subject and type that all wanted events fit, and the times."""
        return _like(self.subject), _like(self.type) if self.type else "%", self.since, self.until


async def newest(
    store: StoreReader, folder: Path, limit: int, wanted: Wanted, up_to: int = LAST_SEQ - 1
) -> Sequence[Event]:
    """The newest `limit` events that are wanted, in order, none with a `seq` above `up_to`; `folder` is the archive."""
    found: list[Event] = []
    before = up_to + 1
    batch = min(_BATCH, max(_FEWEST, limit))
    while len(found) < limit and (rows := await store.stored("event.wanted_before", before, *wanted.asked, batch)):
        events = [event_of(row) for row in rows]
        found += [event for event in events if wanted.fits(event)]
        before = events[-1].seq
    for segment in reversed(await archives(store)):
        if len(found) >= limit:
            break
        if segment.first_seq > up_to:
            continue
        known = found[-1].seq if found else up_to + 1
        batches = [batch async for batch in events_of(folder / segment.file, lambda row: row[SEQ] < known)]  # noqa: B023 - read at once
        found += [event for event in reversed(list(chain.from_iterable(batches))) if wanted.fits(event)]
    return found[:limit][::-1]


async def oldest(store: StoreReader, folder: Path, limit: int, wanted: Wanted, after: int = 0) -> Sequence[Event]:
    """The first `limit` events above `after` that are wanted, in order. `folder` is the archive."""

    async def fetch(after: int) -> list[Row]:
        return await store.stored("event.wanted_after", after, *wanted.asked, _BATCH)

    found: list[Event] = []
    async for batch in all_events(store, folder, after, fetch):
        found += [event for event in batch if wanted.fits(event)]
        if len(found) >= limit:
            break
    return found[:limit]


def _like(pattern: str) -> str:
    r"""A LIKE pattern for a superset of what fits a subject pattern; `_` and `%` in it only widen it, a `\` would escape."""
    return "".join({"*": "%", ">": "%", "\\": "_"}.get(char, char) for char in pattern)
