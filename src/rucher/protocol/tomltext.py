"""Reads a TOML file that an owner writes, and says in one line what is wrong and where. Pure; all or nothing.

Called by the readers of rules, sources, destinations and schedules, each of which says what its own keys mean.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from rucher.protocol.errors import BadInput
from rucher.protocol.positions import KeyPath, Position, positions

FileName = PurePath | str
Problem = tuple[KeyPath, str]
"""The key that is wrong, and what is wrong with it and what to do."""

_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_SHOWN_NAMES = 5


def decode(raw: bytes, path: FileName) -> str:
    """The text of a file's bytes; raises BadInput naming the place of the first byte that is not UTF-8."""
    if raw.startswith(b"\xef\xbb\xbf"):
        raise BadInput(f"{path}:1:1: the file begins with a byte-order mark; save it as UTF-8 without one")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        column = len(before[before.rfind(b"\n") + 1 :].decode()) + 1
        place = Position(before.count(b"\n") + 1, column)
        raise _first(path, [(place, f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8")]) from error


def load(text: str, path: FileName, tables: str = "[[rule]]") -> dict[str, Any]:
    """The document that a TOML text is; raises BadInput naming the place where it stops being TOML.

    `tables` is how this file writes its parts: what to do when it is nested too deeply.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place = _end_of(text)
        if found := _TOML_PLACE.search(message):
            message = message[: found.start()]
            if found[1]:
                place = Position(int(found[1]), int(found[2]))
        raise _first(path, [(place, f"not valid TOML: {message}; correct it here")]) from error
    except RecursionError as error:
        what = f"nested too deeply; write {tables.strip('[]')}s as {tables} tables"
        raise _first(path, [(Position(1, 1), what)]) from error


def refusal(path: FileName, text: str, problems: Collection[Problem]) -> BadInput:
    """The first problem as `path:line:column: what is wrong, what to do`, and how many more."""
    where = positions(text)
    return _first(path, [(where.get(key, Position(1, 1)), what) for key, what in problems])


def suggestion(name: str, known: Collection[str]) -> str:
    """The nearest of the names that are known, or some of them."""
    nearest = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if nearest:
        return f"did you mean {' or '.join(nearest)}?"
    if not known:
        return "none exist yet"
    shown = sorted(known)[:_SHOWN_NAMES]
    return f"known are {', '.join(shown)}{' ...' if len(known) > len(shown) else ''}"


@dataclass(frozen=True, slots=True)
class Kind:
    """A type that a value must have, and how to say so."""

    accepts: Callable[[Any], bool]
    words: str


STRING = Kind(lambda value: isinstance(value, str), "text in quotes")
FLAG = Kind(lambda value: isinstance(value, bool), "true or false")
WHOLE = Kind(lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number")


def tables_of(name: str) -> Kind:
    """The kind of what is written as `[[name]]` tables."""
    return Kind(
        lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
        f"written as [[{name}]] tables",
    )


class Reading:
    """Reads one document and collects every problem with the key it is about."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def only_keys(self, table: Mapping[str, Any], known: Collection[str], path: KeyPath) -> None:
        """Complain of each key that has no meaning here."""
        for key in table:
            if key not in known:
                self.complain((*path, key), f"unknown key {key!r}; {suggestion(key, known)}")

    def holds(self, value: object, kind: Kind, path: KeyPath) -> bool:
        """Whether the value at `path` is of this kind; complains when it is not."""
        if kind.accepts(value):
            return True
        self.complain(path, f"{path[-1]} must be {kind.words}")
        return False

    def complain(self, path: KeyPath, what: str) -> None:
        """Note a problem with the key at `path`."""
        self.problems.append((path, what))


def _first(path: FileName, problems: list[tuple[Position, str]]) -> BadInput:
    place, what = min(problems, key=lambda problem: problem[0])
    others = len(problems) - 1
    more = "" if others == 0 else f" (and {others} more problem{'s' if others > 1 else ''})"
    return BadInput(f"{path}:{place.line}:{place.column}: {what}{more}")


def _end_of(text: str) -> Position:
    lines = text.replace("\r\n", "\n").split("\n")
    return Position(len(lines), len(lines[-1]) + 1)
