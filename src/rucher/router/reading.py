"""What the readers of an owner's TOML share: the problems they find, each with the key that it is about. Pure.

Called by `rucher.router.parse` and the modules that read a part of a rule for it.
"""

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rucher.router.positions import KeyPath

_SHOWN_NAMES = 5


@dataclass(frozen=True, slots=True)
class Kind:
    """A type that a value must have, and how to say so."""

    accepts: Callable[[Any], bool]
    words: str


STRING = Kind(lambda value: isinstance(value, str), "text in quotes")
FLAG = Kind(lambda value: isinstance(value, bool), "true or false")
TABLE = Kind(lambda value: isinstance(value, dict), 'a table, as in match = { source = "cli" }')
TABLES = Kind(
    lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
    "written as [[rule]] tables",
)


class Problems:
    """Every problem of one document, with the key it is about."""

    def __init__(self) -> None:
        self.found: list[tuple[KeyPath, str]] = []

    def complain(self, path: KeyPath, what: str) -> None:
        """Note one."""
        self.found.append((path, what))

    def accepts(self, value: object, kind: Kind, path: KeyPath) -> bool:
        """Whether the value is of this kind; a problem if not."""
        if kind.accepts(value):
            return True
        self.complain(path, f"{path[-1]} must be {kind.words}")
        return False

    def only_keys(self, table: Mapping[str, Any], known: Iterable[str], path: KeyPath) -> None:
        """Complain of each key that has no meaning here."""
        meant = tuple(known)
        for key in table:
            if key not in meant:
                self.complain((*path, key), f"unknown key {key!r}; {suggestion(key, meant)}")


def suggestion(name: str, known: Collection[str]) -> str:
    """What the owner may have meant by a name that nothing has."""
    nearest = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if nearest:
        return f"did you mean {' or '.join(nearest)}?"
    if not known:
        return "none exist yet"
    shown = sorted(known)[:_SHOWN_NAMES]
    return f"known are {', '.join(shown)}{' ...' if len(known) > len(shown) else ''}"
