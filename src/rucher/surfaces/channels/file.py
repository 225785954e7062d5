"""A file as a destination: what is sent there is appended, as JSON lines or as text that people read.

Called by delivery. A record is on disk before `deliver` returns, stands there once however often it is sent, and what
somebody else wrote into the file stays as it is.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from rucher.protocol.events import Event
from rucher.protocol.ports import Proof
from rucher.surfaces.recordfile import JSON_LINES, Record, Shape, append, json_beginning, json_line, probe

TEXT = Shape(b"[rucher ", b"\n\n")
"""A line that says who and when, the text indented, and an empty line; an indented text holds none."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where and how to write. `make_folders`: missing folders are made; else they are waited for, as a disk that is away."""

    path: Path
    format: Literal["jsonl", "text"]
    make_folders: bool


class FileChannel:
    """The deliverer of one file."""

    def __init__(self, place: FilePlace) -> None:
        self._place = place
        self._alone = asyncio.Lock()

    async def deliver(self, event: Event, key: str) -> dict[str, Any]:
        """Append the event unless it stands there under this key; the receipt names the file."""
        at = self._place
        record, shape = (_text(event, key), TEXT) if at.format == "text" else (_line(event, key), JSON_LINES)
        async with self._alone:
            await asyncio.to_thread(append, at.path, record, shape, make_folders=at.make_folders)
        return {"file": str(at.path)}

    async def probe(self, event: Event, key: str) -> Proof:  # noqa: ARG002 - the port's
        """Whether the file holds a whole record with this key; a file always can tell. Raises Retryable."""
        beginning, shape = (_mark(key), TEXT) if self._place.format == "text" else (json_beginning(key), JSON_LINES)
        async with self._alone:
            return await asyncio.to_thread(probe, self._place.path, beginning, shape)


def _line(event: Event, key: str) -> Record:
    said = {
        "at": event.recorded_at, "type": event.type, "from": event.principal, "trust": event.trust.word,
        "addressed_to": event.addressed_to, "text": event.body.get("text", ""), "body": dict(event.body),
        "event": event.id, "trace_id": event.trace_id,
    }  # fmt: skip
    return json_line(key, said)


def _text(event: Event, key: str) -> Record:
    at = (_EPOCH + timedelta(microseconds=event.recorded_at)).strftime("%Y-%m-%d %H:%M:%S UTC")
    head = f" {at} {' '.join(event.principal.split())}".encode()
    lines = str(event.body.get("text", "")).encode("utf-8", "backslashreplace").split(b"\n")
    return Record(_mark(key), _mark(key) + head + b"".join(b"\n    " + line for line in lines) + TEXT.end)


def _mark(key: str) -> bytes:
    return TEXT.start + key.encode() + b"]"
