"""Where each key of a TOML text stands, so that a complaint can name line and column.

Called by the readers of TOML files with a text that `tomllib` has already accepted; it must never be used to accept one.
"""

import re
import tomllib
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

KeyPath = tuple[str | int, ...]
"""Keys and list indexes from the top of the document, as in `("rule", 0, "match", "subject")`."""

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}\n#]+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})' r"|'''.*?'''(?:'{0,2})" r'|"(?:[^"\\]|\\.)*"' r"|'[^']*'",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a text; both numbers count from 1."""

    line: int
    column: int


def positions(text: str) -> Mapping[KeyPath, Position]:
    """The place of every key, table header and list item of a valid TOML text."""
    scanner = _Scanner(text.replace("\r\n", "\n"))
    scanner.document()
    return scanner.found


class _Scanner:
    def __init__(self, text: str) -> None:
        self.found: dict[KeyPath, Position] = {}
        self._text = text
        self._at = 0
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._tables_in: dict[KeyPath, int] = {}

    def document(self) -> None:
        """Record the whole text."""
        base: KeyPath = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text.startswith("[", self._at):
                base = self._header()
            else:
                self._pair(base)
            self._skip(_BLANK)

    def _header(self) -> KeyPath:
        here = self._here()
        one_of_many = self._text.startswith("[[", self._at)
        brackets = len("[[" if one_of_many else "[")
        self._at += brackets
        parts = [name for name, _ in self._dotted_key()]
        self._at += brackets
        path = (*self._parent(parts[:-1], here), parts[-1])
        if one_of_many:
            self.found.setdefault(path, here)
            self._tables_in[path] = self._tables_in.get(path, 0) + 1
            path += (self._tables_in[path] - 1,)
        self.found.setdefault(path, here)
        return path

    def _parent(self, parts: list[str], here: Position) -> KeyPath:
        path: KeyPath = ()
        for part in parts:
            path += (part,)
            self.found.setdefault(path, here)
            if path in self._tables_in:
                path += (self._tables_in[path] - 1,)
        return path

    def _pair(self, base: KeyPath) -> None:
        path = base
        for name, here in self._dotted_key():
            path += (name,)
            self.found.setdefault(path, here)
        self._at += 1
        self._skip(_SPACE)
        self._value(path)

    def _dotted_key(self) -> list[tuple[str, Position]]:
        parts: list[tuple[str, Position]] = []
        while True:
            self._skip(_SPACE)
            here = self._here()
            if self._text[self._at] in "\"'":
                raw = self._take(_STRING)
                name = tomllib.loads(f"key = {raw}")["key"]
            else:
                name = self._take(_BARE_KEY)
            parts.append((name, here))
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return parts
            self._at += 1

    def _value(self, path: KeyPath) -> None:
        match self._text[self._at]:
            case "[":
                self._items(path)
            case "{":
                self._inline_table(path)
            case '"' | "'":
                self._take(_STRING)
            case _:
                self._take(_BARE_VALUE)

    def _items(self, path: KeyPath) -> None:
        self._at += 1
        self._skip(_BLANK)
        index = 0
        while self._text[self._at] != "]":
            self.found[(*path, index)] = self._here()
            self._value((*path, index))
            self._separator()
            index += 1
        self._at += 1

    def _inline_table(self, path: KeyPath) -> None:
        self._at += 1
        self._skip(_BLANK)
        while self._text[self._at] != "}":
            self._pair(path)
            self._separator()
        self._at += 1

    def _separator(self) -> None:
        self._skip(_BLANK)
        if self._text[self._at] == ",":
            self._at += 1
            self._skip(_BLANK)

    def _here(self) -> Position:
        line = bisect_right(self._line_starts, self._at)
        return Position(line, self._at - self._line_starts[line - 1] + 1)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError(f"not valid TOML at {self._here()}")
        self._at = found.end()
        return found.group()
