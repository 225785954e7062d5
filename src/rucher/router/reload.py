"""Watches the rules file by asking the file system, and takes a change as a whole or not at all.

`rucher.router.router` calls `check` between batches. A refused file never disturbs the rules in force.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from rucher.protocol.errors import BadInput
from rucher.router.parse import decode, parse, validate
from rucher.router.rules import Rules

MOST_BYTES = 4 * 1024 * 1024
"""The largest rules file that is read."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The file changed and is in force from now on."""

    rules: Rules


@dataclass(frozen=True, slots=True)
class Refused:
    """The file changed and cannot be used; the rules before it go on."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the last look found: the file's identity, its bytes (None: unreadable), and the destinations there were."""

    identity: tuple[int, ...] | None
    raw: bytes | None
    destinations: frozenset[str]
    settled: bool
    """Whether a second look at the same identity found the same bytes: a write within one tick of the file system's
    clock leaves the identity as it was."""


class RulesFile:
    """The rules in force, and the file they come from. `destinations` is asked at each check, never kept."""

    def __init__(self, path: Path, destinations: Callable[[], Collection[str]]) -> None:
        """Read the file; raises BadInput when it cannot be used, as there are no earlier rules to go on with."""
        self._path = path
        self._destinations = destinations
        known = frozenset(destinations())
        identity = _identity(path)
        raw = _read(path)
        self._current = _accept(raw, path, known)
        self._refusal: str | None = None
        self._seen = _Seen(identity, raw, known, settled=False)

    @property
    def current(self) -> Rules:
        """The rules in force."""
        return self._current

    def check(self) -> Reloaded | Refused | None:
        """Look at the file again; None when nothing is new. The same refusal is told once."""
        known = frozenset(self._destinations())
        identity = _identity(self._path)
        before = self._seen
        if before.settled and (identity, known) == (before.identity, before.destinations):
            return None
        try:
            raw = _read(self._path)
        except BadInput as error:
            self._seen = _Seen(identity, None, known, settled=False)
            return self._refuse(str(error))
        if _identity(self._path) != identity:
            return None
        self._seen = _Seen(identity, raw, known, settled=identity == before.identity and raw == before.raw)
        if (raw, known) == (before.raw, before.destinations):
            return None
        return self._take(raw, known)

    def _take(self, raw: bytes, known: frozenset[str]) -> Reloaded | Refused | None:
        try:
            rules = _accept(raw, self._path, known)
        except BadInput as error:
            return self._refuse(str(error))
        if self._refusal is None and rules.version == self._current.version:
            return None
        self._refusal = None
        self._current = rules
        return Reloaded(rules)

    def _refuse(self, reason: str) -> Refused | None:
        if reason == self._refusal:
            return None
        self._refusal = reason
        return Refused(reason)


def _accept(raw: bytes, path: Path, known: Collection[str]) -> Rules:
    rules = parse(decode(raw, path), path)
    validate(rules, known)
    return rules


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _read(path: Path) -> bytes:
    try:
        if not path.is_file() and path.exists():
            raise BadInput(f"{path}: this is not a regular file; put the rules file there")
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise BadInput(f"{path}: the rules file is missing; put it back or make one with: rucher new") from error
    except OSError as error:
        raise BadInput(f"{path}: the rules file cannot be read ({error.strerror}); correct that") from error
    if len(raw) > MOST_BYTES:
        raise BadInput(f"{path}: the rules file is larger than {MOST_BYTES} bytes; split the instance or shorten it")
    return raw
