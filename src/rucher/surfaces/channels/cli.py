"""The surface `cli`: answers appear as JSON lines in one file a group, which the command line and any program can read.

Called by delivery. A line is on disk before `deliver` returns; one that a crash cut short is removed by the next.
"""

import asyncio
import re
from pathlib import Path
from typing import Any

from rucher.protocol.errors import Permanent
from rucher.protocol.events import Event
from rucher.protocol.ids import derived
from rucher.protocol.ports import Proof
from rucher.surfaces.recordfile import JSON_LINES, Record, append, json_beginning, json_line, probe

_ADDRESS = "group:cli:"
_SAFE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


class CliChannel:
    """The deliverer of the surface `cli`, writing below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def deliver(self, event: Event, key: str) -> dict[str, Any]:
        """Append the event's text to its group's file unless a line has this key; the receipt names the file."""
        path = self._path(event)
        await asyncio.to_thread(append, path, _line(event, key), JSON_LINES, make_folders=True)
        return {"file": path.name}

    async def probe(self, event: Event, key: str) -> Proof:
        """Whether the group's file holds a whole line with this key; a file always can tell."""
        return await asyncio.to_thread(probe, self._path(event), json_beginning(key), JSON_LINES)

    def _path(self, event: Event) -> Path:
        group = _group(event)
        name = group if _SAFE_NAME.fullmatch(group) else "~" + derived("group", group)
        return self._folder / f"{name}.jsonl"


def _group(event: Event) -> str:
    address = event.addressed_to or ""
    group = address.removeprefix(_ADDRESS) if address.startswith(_ADDRESS) else event.body.get("group")
    if not isinstance(group, str) or not group:
        raise Permanent(f"event {event.id} names no group of the surface cli; address it to {_ADDRESS}NAME")
    return group


def _line(event: Event, key: str) -> Record:
    shown = {
        "at": event.recorded_at,
        "group": _group(event),
        "thread": event.body.get("thread", ""),
        "from": event.principal,
        "text": event.body.get("text", ""),
        "trace_id": event.trace_id,
    }
    return json_line(key, shown)
