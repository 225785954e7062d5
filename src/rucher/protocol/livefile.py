"""A file that its owner edits while it is in use: looked at by asking the file system, and taken as a whole or not at all.

The rules, sources, destinations and schedules of an instance are such files. A refused one never disturbs what is in force.
"""

import hashlib
import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from rucher.protocol.errors import BadInput

MOST_BYTES = 4 * 1024 * 1024
"""The largest file that is read."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reloaded(Generic[T]):
    """The file changed, and `value` is in force from now on."""

    value: T


@dataclass(frozen=True, slots=True)
class Refused:
    """The file changed and cannot be used; what was in force goes on."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the last look found: the file's identity, its bytes (None: unreadable), and what else it depends on."""

    identity: tuple[int, ...] | None
    raw: bytes | None
    beside: Hashable
    settled: bool
    """Whether a second look at the same identity found the same bytes: a write within one tick of the file system's
    clock leaves the identity as it was."""


class LiveFile(Generic[T]):
    """What one file says, as long as it can be used.

    `read` makes it of the file's bytes or raises BadInput. `beside` is asked at each check: a file is read again when it
    answers something new, as what the file says may be good or bad because of that. `absent` is what a missing file holds;
    None: there must be one. `what` names the file in messages: "rules file".
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[bytes], T],
        what: str,
        beside: Callable[[], Hashable] = lambda: None,
        absent: bytes | None = None,
    ) -> None:
        """Read the file; raises BadInput when it cannot be used, as there is nothing earlier to go on with."""
        self.path = path
        self._read = read
        self._what = what
        self._beside = beside
        self._absent = absent
        known = beside()
        identity = _identity(path)
        raw = self._bytes()
        self._current = read(raw)
        self._raw = raw
        self._refusal: str | None = None
        self._seen = _Seen(identity, raw, known, settled=False)

    @property
    def current(self) -> T:
        """What is in force."""
        return self._current

    @property
    def version(self) -> str:
        """The SHA-256 of the bytes in force, in hexadecimal."""
        return hashlib.sha256(self._raw).hexdigest()

    def check(self) -> Reloaded[T] | Refused | None:
        """Look at the file again; None when nothing is new. The same refusal is told once."""
        known = self._beside()
        identity = _identity(self.path)
        before = self._seen
        if before.settled and (identity, known) == (before.identity, before.beside):
            return None
        try:
            raw = self._bytes()
        except BadInput as error:
            self._seen = _Seen(identity, None, known, settled=False)
            return self._refuse(str(error))
        if _identity(self.path) != identity:
            return None
        self._seen = _Seen(identity, raw, known, settled=identity == before.identity and raw == before.raw)
        if (raw, known) == (before.raw, before.beside):
            return None
        return self._take(raw)

    def _take(self, raw: bytes) -> Reloaded[T] | Refused | None:
        try:
            value = self._read(raw)
        except BadInput as error:
            return self._refuse(str(error))
        if self._refusal is None and raw == self._raw:
            return None
        self._refusal = None
        self._current, self._raw = value, raw
        return Reloaded(value)

    def _refuse(self, reason: str) -> Refused | None:
        if reason == self._refusal:
            return None
        self._refusal = reason
        return Refused(reason)

    def _bytes(self) -> bytes:
        path, what = self.path, self._what
        try:
            if not path.is_file() and path.exists():
                raise BadInput(f"{path}: this is not a regular file; put the {what} there")
            with path.open("rb") as file:
                raw = file.read(MOST_BYTES + 1)
        except FileNotFoundError as error:
            if self._absent is not None:
                return self._absent
            raise BadInput(f"{path}: the {what} is missing; put it back or make one with: rucher new") from error
        except OSError as error:
            raise BadInput(f"{path}: the {what} cannot be read ({error.strerror}); correct that") from error
        if len(raw) > MOST_BYTES:
            raise BadInput(f"{path}: the {what} is larger than {MOST_BYTES} bytes; split the instance or shorten it")
        return raw


def replace_file(path: Path, raw: bytes, new_mode: int | None = None) -> None:
    """Put these bytes in the place of an owner's file, at once and durably: whoever reads it sees the old or the new.

    A link stays a link and a mode what it was; a file that was not there has `new_mode`, else what the process gives files.
    """
    place = path.resolve()
    temporary = place.with_name(f".{place.name}.{os.getpid()}.new")
    mode = place.stat().st_mode & 0o777 if place.exists() else new_mode
    try:
        with temporary.open("wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
