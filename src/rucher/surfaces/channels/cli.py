"""The surface `cli`: answers appear as JSON lines in one file a group, which the command line and any program can read.

Called by delivery. A line is on disk before `deliver` returns; one that a crash cut short is removed by the next.
"""

import asyncio
import errno
import fcntl
import json
import mmap
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rucher.protocol.errors import Permanent, Retryable, Uncertain
from rucher.protocol.events import Event
from rucher.protocol.ids import derived
from rucher.protocol.ports import Proof

_ADDRESS = "group:cli:"
_SAFE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EINTR, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class CliChannel:
    """The deliverer of the surface `cli`, writing below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def deliver(self, event: Event, key: str) -> dict[str, Any]:
        """Append the event's text to its group's file unless a line has this key; the receipt names the file."""
        path = self._path(event)
        line = _line(event, key)
        return await asyncio.to_thread(_append, path, line, _beginning(key))

    async def probe(self, event: Event, key: str) -> Proof:
        """Whether the group's file holds a whole line with this key; a file always can tell."""
        return await asyncio.to_thread(_probe, self._path(event), _beginning(key))

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


def _line(event: Event, key: str) -> bytes:
    shown = {
        "key": key,
        "at": event.recorded_at,
        "group": _group(event),
        "thread": event.body.get("thread", ""),
        "from": event.principal,
        "text": event.body.get("text", ""),
        "trace_id": event.trace_id,
    }
    return json.dumps(shown, separators=(",", ":")).encode() + b"\n"


def _beginning(key: str) -> bytes:
    return b'{"key":' + json.dumps(key).encode() + b","


def _append(path: Path, line: bytes, beginning: bytes) -> dict[str, Any]:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as file:
            whole = _whole_lines(file)
            if not _stands(file, whole, beginning):
                os.ftruncate(file, whole)
                _write(file, line, whole)
        _sync_folder(path.parent)
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror}"
        raise Retryable(what) if error.errno in _PASSING else Permanent(what) from error
    return {"file": path.name}


def _write(file: int, line: bytes, start: int) -> None:
    try:
        rest = line
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError:
        os.ftruncate(file, start)
        raise
    try:
        os.fsync(file)
    except OSError as error:
        raise Uncertain(f"the disk did not confirm the line: {error.strerror}") from error


def _probe(path: Path, beginning: bytes) -> Proof:
    try:
        with _locked(path, os.O_RDONLY) as file:
            return Proof.DONE if _stands(file, _whole_lines(file), beginning) else Proof.NOT_DONE
    except FileNotFoundError:
        return Proof.NOT_DONE
    except OSError as error:
        raise Retryable(f"{path} cannot be read: {error.strerror}") from error


@contextmanager
def _locked(path: Path, flags: int) -> Iterator[int]:
    file = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Retryable(f"{path} is locked by another program; it is tried again") from error
        yield file
    finally:
        os.close(file)


def _whole_lines(file: int) -> int:
    """The number of bytes up to the end of the last whole line."""
    size = os.fstat(file).st_size
    if size == 0:
        return 0
    with mmap.mmap(file, size, prot=mmap.PROT_READ) as text:
        return text.rfind(b"\n") + 1


def _stands(file: int, whole: int, beginning: bytes) -> bool:
    """Whether a line within the first `whole` bytes begins so."""
    if whole == 0:
        return False
    # Inside a line no text can look like this: JSON puts a backslash before each quote.
    with mmap.mmap(file, whole, prot=mmap.PROT_READ) as text:
        return text.find(beginning) >= 0


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
