"""Reads the text of `rules.toml` into Rules, or says in one line what is wrong and where. Pure; all or nothing.

Called at start, by `rucher.router.reload` when the file changes, and by `rucher rules check`.
"""

import difflib
import hashlib
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from rucher.protocol.errors import BadInput
from rucher.router.conditions import MATCH_KEYS, Condition, condition
from rucher.router.positions import KeyPath, Position, positions
from rucher.router.rules import DEFAULT_RULE, Mention, Rule, Rules
from rucher.router.shadows import shadowed

FileName = PurePath | str

_TOP_KEYS = ("default", "rule")
_RULE_KEYS = ("id", "match", "to", "continue", "generated")
_DESTINATION = re.compile(r"(?:agent|surface):[a-z0-9][a-z0-9._-]*")
_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_SHOWN_NAMES = 5


def decode(raw: bytes, path: FileName) -> str:
    """The text of a rules file's bytes; raises BadInput naming the place of the first byte that is not UTF-8."""
    if raw.startswith(b"\xef\xbb\xbf"):
        raise BadInput(f"{path}:1:1: the file begins with a byte-order mark; save it as UTF-8 without one")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        column = len(before[before.rfind(b"\n") + 1 :].decode()) + 1
        place = Position(before.count(b"\n") + 1, column)
        raise _refusal(
            path, [(place, f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8")]
        ) from error


def parse(text: str, path: FileName) -> Rules:
    """The rules that the text says.

    Raises BadInput with the first problem as `path:line:column: what is wrong, what to do`, and how many more.
    """
    document = load(text, path)
    reading = _Reading()
    default = reading.default(document)
    rules = reading.rules(document)
    reading.only_keys(document, _TOP_KEYS, ())
    if reading.problems:
        raise _refusal(path, _placed(reading.problems, text))
    return Rules(
        path=str(path),
        text=text,
        version=hashlib.sha256(text.encode()).hexdigest(),
        default=default,
        rules=tuple(rules),
        mentions=tuple(reading.mentions),
    )


def validate(rules: Rules, destinations: Collection[str]) -> None:
    """Raise BadInput, naming the place and the nearest names, when a rule or the default sends where nothing is."""
    problems = [
        (mention.path, f"there is no {mention.to}; {_suggestion(mention.to, destinations)}")
        for mention in rules.mentions
        if mention.to not in destinations
    ]
    if problems:
        raise _refusal(rules.path, _placed(problems, rules.text))


def load(text: str, path: FileName) -> dict[str, Any]:
    """The document that a TOML text is; raises BadInput naming the place where it stops being TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place = _end_of(text)
        if found := _TOML_PLACE.search(message):
            message = message[: found.start()]
            if found[1]:
                place = Position(int(found[1]), int(found[2]))
        raise _refusal(path, [(place, f"not valid TOML: {message}; correct it here")]) from error
    except RecursionError as error:
        raise _refusal(path, [(Position(1, 1), "nested too deeply; write rules as [[rule]] tables")]) from error


@dataclass(frozen=True, slots=True)
class _Kind:
    """A type that a value must have, and how to say so."""

    accepts: Callable[[Any], bool]
    words: str


_STRING = _Kind(lambda value: isinstance(value, str), "text in quotes")
_FLAG = _Kind(lambda value: isinstance(value, bool), "true or false")
_TABLE = _Kind(lambda value: isinstance(value, dict), 'a table, as in match = { source = "cli" }')
_TABLES = _Kind(
    lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
    "written as [[rule]] tables",
)


class _Reading:
    """Reads one document and collects every problem with the key it is about."""

    def __init__(self) -> None:
        self.problems: list[tuple[KeyPath, str]] = []
        self.mentions: list[Mention] = []

    def default(self, document: Mapping[str, Any]) -> str:
        """The default destination; a file without one is refused, so that a file cut short is never taken."""
        if "default" not in document:
            self._complain((), 'there is no default; begin the file with default = "agent:NAME"')
            return ""
        found = document["default"]
        return found if self._is(found, _STRING, ("default",)) and self._destination(found, ("default",)) else ""

    def rules(self, document: Mapping[str, Any]) -> list[Rule]:
        """The rules that have no problem of their own."""
        tables = document.get("rule", [])
        if not self._is(tables, _TABLES, ("rule",)):
            return []
        sound: list[Rule] = []
        taken: set[str] = set()
        for number, table in enumerate(tables):
            problems_before = len(self.problems)
            rule = self._rule(table, number)
            if rule.id in taken:
                self._complain(
                    ("rule", number, "id"), f"id {rule.id!r} is taken by an earlier rule; rename one of them"
                )
            elif rule.id:
                taken.add(rule.id)
            if len(self.problems) == problems_before:
                sound.append(rule)
        self._reachable(sound)
        return sound

    def only_keys(self, table: Mapping[str, Any], known: Collection[str], path: KeyPath) -> None:
        """Complain of each key that has no meaning here."""
        for key in table:
            if key not in known:
                self._complain((*path, key), f"unknown key {key!r}; {_suggestion(key, known)}")

    def _rule(self, table: Mapping[str, Any], number: int) -> Rule:
        path = ("rule", number)
        self.only_keys(table, _RULE_KEYS, path)
        return Rule(
            number=number,
            id=self._id(table, path),
            match=self._match(table, path),
            to=self._to(table, path),
            goes_on=self._flag(table, "continue", path),
            generated=self._flag(table, "generated", path),
        )

    def _id(self, table: Mapping[str, Any], path: KeyPath) -> str:
        found = table.get("id")
        if found is None:
            self._complain(path, 'this rule has no id; add id = "..." so that traces can name it')
        elif self._is(found, _STRING, (*path, "id")):
            if found and found.isprintable() and found != DEFAULT_RULE:
                return str(found)
            self._complain((*path, "id"), f"{found!r} cannot be a rule's id; choose another")
        return ""

    def _match(self, table: Mapping[str, Any], path: KeyPath) -> tuple[Condition, ...]:
        found = table.get("match")
        here = (*path, "match")
        if found == {} or found is None:
            self._complain(
                here if found is not None else path,
                "this rule matches nothing in particular; say what in match, or use default",
            )
            return ()
        if not self._is(found, _TABLE, here):
            return ()
        self.only_keys(found, MATCH_KEYS, here)
        wanted = [(key, found[key]) for key in MATCH_KEYS if key in found]
        read = [self._condition(key, value, (*here, key)) for key, value in wanted]
        return tuple(one for one in read if one is not None)

    def _condition(self, key: str, value: object, path: KeyPath) -> Condition | None:
        if not isinstance(value, str):
            self._is(value, _STRING, path)
            return None
        try:
            return condition(key, value)
        except BadInput as error:
            self._complain(path, str(error))
            return None

    def _to(self, table: Mapping[str, Any], path: KeyPath) -> tuple[str, ...]:
        found = table.get("to")
        here = (*path, "to")
        if found is None or found == []:
            self._complain(path if found is None else here, 'this rule sends nowhere; add to = "agent:NAME"')
            return ()
        if not isinstance(found, list):
            return (found,) if self._is(found, _STRING, here) and self._destination(found, here) else ()
        places = [(one, (*here, number)) for number, one in enumerate(found)]
        return tuple(
            dict.fromkeys(one for one, at in places if self._is(one, _STRING, at) and self._destination(one, at))
        )

    def _flag(self, table: Mapping[str, Any], key: str, path: KeyPath) -> bool:
        found = table.get(key, False)
        return self._is(found, _FLAG, (*path, key)) and bool(found)

    def _destination(self, name: str, path: KeyPath) -> bool:
        if _DESTINATION.fullmatch(name):
            self.mentions.append(Mention(name, path))
            return True
        self._complain(path, f"{name!r} is no destination; write agent:NAME or surface:NAME, in small letters")
        return False

    def _reachable(self, rules: list[Rule]) -> None:
        for rule, taker in shadowed(rules):
            what = f"rule {rule.id!r} can never fire: the earlier rule {taker.id!r} takes all that it matches"
            self._complain(("rule", rule.number), f"{what}; move it up, or give the other continue = true")

    def _is(self, value: object, kind: _Kind, path: KeyPath) -> bool:
        if kind.accepts(value):
            return True
        self._complain(path, f"{path[-1]} must be {kind.words}")
        return False

    def _complain(self, path: KeyPath, what: str) -> None:
        self.problems.append((path, what))


def _placed(problems: list[tuple[KeyPath, str]], text: str) -> list[tuple[Position, str]]:
    where = positions(text)
    return [(where.get(path, Position(1, 1)), what) for path, what in problems]


def _refusal(path: FileName, problems: list[tuple[Position, str]]) -> BadInput:
    place, what = min(problems, key=lambda problem: problem[0])
    others = len(problems) - 1
    more = "" if others == 0 else f" (and {others} more problem{'s' if others > 1 else ''})"
    return BadInput(f"{path}:{place.line}:{place.column}: {what}{more}")


def _suggestion(name: str, known: Collection[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if nearest:
        return f"did you mean {' or '.join(nearest)}?"
    if not known:
        return "none exist yet"
    shown = sorted(known)[:_SHOWN_NAMES]
    return f"known are {', '.join(shown)}{' ...' if len(known) > len(shown) else ''}"


def _end_of(text: str) -> Position:
    lines = text.replace("\r\n", "\n").split("\n")
    return Position(len(lines), len(lines[-1]) + 1)
