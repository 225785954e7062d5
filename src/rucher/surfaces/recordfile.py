"""A file that grows by whole records, each under a key: what deliverers that write to files share.

A record is on disk before `append` returns; one that a crash cut short is removed by the next. What somebody else wrote
into the file is never touched. Called in a thread by channels.
"""

import errno
import fcntl
import json
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rucher.protocol.errors import Permanent, Retryable, Uncertain
from rucher.protocol.ports import Proof

_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EINTR, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class Shape:
    """How records look: what each begins with and ends with. `end` must occur nowhere else in a record."""

    start: bytes
    end: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """One record. `beginning` is the part of it that no record of another key begins with, and no text can look like."""

    beginning: bytes
    whole: bytes


JSON_LINES = Shape(b'{"key":"', b"\n")
"""One JSON object a line, its key first."""


def json_line(key: str, said: Mapping[str, Any]) -> Record:
    """The record that says this, as a JSON line."""
    line = json.dumps({"key": key, **said}, separators=(",", ":")).encode() + b"\n"
    return Record(json_beginning(key), line)


def json_beginning(key: str) -> bytes:
    """What the JSON line of this key begins with; inside a line no text can look like it, as JSON escapes each quote."""
    return b'{"key":' + json.dumps(key).encode() + b","


def append(path: Path, record: Record, shape: Shape, *, make_folders: bool) -> None:
    """Add the record unless one with its beginning stands there; missing folders are made, or waited for.

    Raises Retryable when the file cannot be written just now, Permanent when it never can, and Uncertain when the disk
    did not confirm.
    """
    try:
        if make_folders:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as file:
            whole = _whole_records(file, shape.end)
            if not _stands(file, whole, record.beginning, shape.end):
                _write(file, _cleared(file, whole, shape) + record.whole)
        _sync_folder(path.parent)
    except FileNotFoundError as error:
        raise Retryable(f"{path.parent} is not there; it waits until that folder, or its disk, is back") from error
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror}"
        raise Retryable(what) if error.errno in _PASSING else Permanent(what) from error


def probe(path: Path, beginning: bytes, shape: Shape) -> Proof:
    """Whether the file holds a whole record with this beginning; a file always can tell. Raises Retryable."""
    try:
        with _locked(path, os.O_RDONLY) as file:
            whole = _whole_records(file, shape.end)
            return Proof.DONE if _stands(file, whole, beginning, shape.end) else Proof.NOT_DONE
    except FileNotFoundError:
        return Proof.NOT_DONE
    except OSError as error:
        raise Retryable(f"{path} cannot be read: {error.strerror}") from error


def _write(file: int, rest: bytes) -> None:
    start = os.fstat(file).st_size
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError:
        os.ftruncate(file, start)
        raise
    try:
        os.fsync(file)
    except OSError as error:
        raise Uncertain(f"the disk did not confirm the record: {error.strerror}") from error


def _cleared(file: int, whole: int, shape: Shape) -> bytes:
    """Remove the record that a crash cut short; returns what sets the next one apart from what somebody else left there."""
    size = os.fstat(file).st_size
    tail = os.pread(file, len(shape.start), whole)
    if tail == shape.start[: len(tail)]:
        os.ftruncate(file, whole)
        return b""
    return b"" if size == whole else shape.end


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


def _whole_records(file: int, end: bytes) -> int:
    """The number of bytes up to the end of the last whole record."""
    size = os.fstat(file).st_size
    if size == 0:
        return 0
    with mmap.mmap(file, size, prot=mmap.PROT_READ) as text:
        found = text.rfind(end)
        return found + len(end) if found >= 0 else 0


def _stands(file: int, whole: int, beginning: bytes, end: bytes) -> bool:
    """Whether a record within the first `whole` bytes begins so."""
    if whole == 0:
        return False
    with mmap.mmap(file, whole, prot=mmap.PROT_READ) as text:
        return text[: len(beginning)] == beginning or text.find(end + beginning) >= 0


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
