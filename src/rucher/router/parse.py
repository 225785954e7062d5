"""Reads the text of `rules.toml` into Rules, or says in one line what is wrong and where. Pure; all or nothing.

Called at start, by `rucher.router.reload` when the file changes, and by `rucher rules check`.
"""

import hashlib
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from rucher.protocol.errors import BadInput
from rucher.router.bodies import body_conditions
from rucher.router.conditions import BODY, MATCH_KEYS, Condition, condition
from rucher.router.engagement import ALWAYS, TERMS_KEYS, read_terms
from rucher.router.positions import KeyPath, Position, positions
from rucher.router.reading import FLAG, STRING, TABLE, TABLES, Problems, suggestion
from rucher.router.rules import DEFAULT_RULE, Mention, Rule, Rules
from rucher.router.shadows import shadowed

FileName = PurePath | str

_TOP_KEYS = ("default", "rule")
_RULE_KEYS = ("id", "match", "to", "continue", "generated", *TERMS_KEYS)
_DESTINATION = re.compile(r"(?:agent|surface|webhook|file|instance):[a-z0-9][a-z0-9._-]*")
_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


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
    reading.problems.only_keys(document, _TOP_KEYS, ())
    if reading.problems.found:
        raise _refusal(path, _placed(reading.problems.found, text))
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
        (mention.path, f"there is no {mention.to}; {suggestion(mention.to, destinations)}")
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


class _Reading:
    """Reads one document and collects every problem with the key it is about."""

    def __init__(self) -> None:
        self.problems = Problems()
        self.mentions: list[Mention] = []

    def default(self, document: Mapping[str, Any]) -> str:
        """The default destination; a file without one is refused, so that a file cut short is never taken."""
        if "default" not in document:
            self.problems.complain((), 'there is no default; begin the file with default = "agent:NAME"')
            return ""
        found, here = document["default"], ("default",)
        return found if self.problems.accepts(found, STRING, here) and self._destination(found, here) else ""

    def rules(self, document: Mapping[str, Any]) -> list[Rule]:
        """The rules that have no problem of their own."""
        tables = document.get("rule", [])
        if not self.problems.accepts(tables, TABLES, ("rule",)):
            return []
        sound: list[Rule] = []
        taken: set[str] = set()
        for number, table in enumerate(tables):
            problems_before = len(self.problems.found)
            rule = self._rule(table, number)
            if rule.id in taken:
                self.problems.complain(
                    ("rule", number, "id"), f"id {rule.id!r} is taken by an earlier rule; rename one of them"
                )
            elif rule.id:
                taken.add(rule.id)
            if len(self.problems.found) == problems_before:
                sound.append(rule)
        self._reachable(sound)
        return sound

    def _rule(self, table: Mapping[str, Any], number: int) -> Rule:
        path = ("rule", number)
        self.problems.only_keys(table, _RULE_KEYS, path)
        to = self._to(table, path)
        return Rule(
            number=number,
            id=self._id(table, path),
            match=self._match(table, path),
            to=to,
            goes_on=self._flag(table, "continue", path),
            generated=self._flag(table, "generated", path),
            terms=read_terms(table, to, path, self.problems) if not table.keys().isdisjoint(TERMS_KEYS) else ALWAYS,
        )

    def _id(self, table: Mapping[str, Any], path: KeyPath) -> str:
        found = table.get("id")
        if found is None:
            self.problems.complain(path, 'this rule has no id; add id = "..." so that traces can name it')
        elif self.problems.accepts(found, STRING, (*path, "id")):
            if found and found.isprintable() and found != DEFAULT_RULE:
                return str(found)
            self.problems.complain((*path, "id"), f"{found!r} cannot be a rule's id; choose another")
        return ""

    def _match(self, table: Mapping[str, Any], path: KeyPath) -> tuple[Condition, ...]:
        found = table.get("match")
        here = (*path, "match")
        if found == {} or found is None:
            self.problems.complain(
                here if found is not None else path,
                "this rule matches nothing in particular; say what in match, or use default",
            )
            return ()
        if not self.problems.accepts(found, TABLE, here):
            return ()
        self.problems.only_keys(found, MATCH_KEYS, here)
        wanted = [(key, found[key]) for key in MATCH_KEYS if key in found]
        return tuple(one for key, value in wanted for one in self._conditions(key, value, (*here, key)))

    def _conditions(self, key: str, value: object, path: KeyPath) -> Iterator[Condition]:
        if key == BODY:
            yield from body_conditions(value, path, self.problems)
        elif not isinstance(value, str):
            self.problems.accepts(value, STRING, path)
        else:
            try:
                yield condition(key, value)
            except BadInput as error:
                self.problems.complain(path, str(error))

    def _to(self, table: Mapping[str, Any], path: KeyPath) -> tuple[str, ...]:
        found = table.get("to")
        here = (*path, "to")
        if found is None or found == []:
            self.problems.complain(path if found is None else here, 'this rule sends nowhere; add to = "agent:NAME"')
            return ()
        if not isinstance(found, list):
            return (found,) if self.problems.accepts(found, STRING, here) and self._destination(found, here) else ()
        places = [(one, (*here, number)) for number, one in enumerate(found)]
        return tuple(
            dict.fromkeys(
                one for one, at in places if self.problems.accepts(one, STRING, at) and self._destination(one, at)
            )
        )

    def _flag(self, table: Mapping[str, Any], key: str, path: KeyPath) -> bool:
        found = table.get(key, False)
        return self.problems.accepts(found, FLAG, (*path, key)) and bool(found)

    def _destination(self, name: str, path: KeyPath) -> bool:
        if _DESTINATION.fullmatch(name):
            self.mentions.append(Mention(name, path))
            return True
        self.problems.complain(
            path,
            f"{name!r} is no destination; write agent:, surface:, webhook:, file: or instance: and a NAME in small letters",
        )
        return False

    def _reachable(self, rules: list[Rule]) -> None:
        for rule, taker in shadowed(rules):
            what = f"rule {rule.id!r} can never fire: the earlier rule {taker.id!r} takes all that it matches"
            self.problems.complain(("rule", rule.number), f"{what}; move it up, or give the other continue = true")


def _placed(problems: list[tuple[KeyPath, str]], text: str) -> list[tuple[Position, str]]:
    where = positions(text)
    return [(where.get(path, Position(1, 1)), what) for path, what in problems]


def _refusal(path: FileName, problems: list[tuple[Position, str]]) -> BadInput:
    place, what = min(problems, key=lambda problem: problem[0])
    others = len(problems) - 1
    more = "" if others == 0 else f" (and {others} more problem{'s' if others > 1 else ''})"
    return BadInput(f"{path}:{place.line}:{place.column}: {what}{more}")


def _end_of(text: str) -> Position:
    lines = text.replace("\r\n", "\n").split("\n")
    return Position(len(lines), len(lines[-1]) + 1)
