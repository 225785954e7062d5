"""Reads the text of `rules.toml` into Rules, or says in one line what is wrong and where. Pure; all or nothing.

Called at start, by `rucher.router.reload` when the file changes, and by `rucher rules check`.
"""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rucher.protocol.errors import BadInput
from rucher.protocol.positions import KeyPath
from rucher.protocol.tomltext import FLAG, STRING, FileName, Problem, Reading, load, refusal, suggestion, tables_of
from rucher.router.bodies import TABLE, body_conditions
from rucher.router.conditions import BODY, MATCH_KEYS, Condition, condition
from rucher.router.engagement import ALWAYS, TERMS_KEYS, read_terms
from rucher.router.rules import DEFAULT_RULE, Mention, Rule, Rules
from rucher.router.shadows import shadowed

_TOP_KEYS = ("default", "rule")
_RULE_KEYS = ("id", "match", "to", "continue", "generated", *TERMS_KEYS)
_DESTINATION = re.compile(r"(?:agent|surface|webhook|file|instance):[a-z0-9][a-z0-9._-]*")


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
        raise refusal(path, text, reading.problems)
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
    problems: list[Problem] = [
        (mention.path, f"there is no {mention.to}; {suggestion(mention.to, destinations)}")
        for mention in rules.mentions
        if mention.to not in destinations
    ]
    if problems:
        raise refusal(rules.path, rules.text, problems)


_TABLES = tables_of("rule")


class _Reading(Reading):
    """Reads one document and collects every problem with the key it is about."""

    def __init__(self) -> None:
        super().__init__()
        self.mentions: list[Mention] = []

    def default(self, document: Mapping[str, Any]) -> str:
        """The default destination; a file without one is refused, so that a file cut short is never taken."""
        if "default" not in document:
            self.complain((), 'there is no default; begin the file with default = "agent:NAME"')
            return ""
        found, here = document["default"], ("default",)
        return found if self.holds(found, STRING, here) and self._destination(found, here) else ""

    def rules(self, document: Mapping[str, Any]) -> list[Rule]:
        """The rules that have no problem of their own."""
        tables = document.get("rule", [])
        if not self.holds(tables, _TABLES, ("rule",)):
            return []
        sound: list[Rule] = []
        taken: set[str] = set()
        for number, table in enumerate(tables):
            problems_before = len(self.problems)
            rule = self._rule(table, number)
            if rule.id in taken:
                self.complain(("rule", number, "id"), f"id {rule.id!r} is taken by an earlier rule; rename one of them")
            elif rule.id:
                taken.add(rule.id)
            if len(self.problems) == problems_before:
                sound.append(rule)
        self._reachable(sound)
        return sound

    def _rule(self, table: Mapping[str, Any], number: int) -> Rule:
        path = ("rule", number)
        self.only_keys(table, _RULE_KEYS, path)
        to = self._to(table, path)
        return Rule(
            number=number,
            id=self._id(table, path),
            match=self._match(table, path),
            to=to,
            goes_on=self._flag(table, "continue", path),
            generated=self._flag(table, "generated", path),
            terms=read_terms(table, to, path, self) if not table.keys().isdisjoint(TERMS_KEYS) else ALWAYS,
        )

    def _id(self, table: Mapping[str, Any], path: KeyPath) -> str:
        found = table.get("id")
        if found is None:
            self.complain(path, 'this rule has no id; add id = "..." so that traces can name it')
        elif self.holds(found, STRING, (*path, "id")):
            if found and found.isprintable() and found != DEFAULT_RULE:
                return str(found)
            self.complain((*path, "id"), f"{found!r} cannot be a rule's id; choose another")
        return ""

    def _match(self, table: Mapping[str, Any], path: KeyPath) -> tuple[Condition, ...]:
        found = table.get("match")
        here = (*path, "match")
        if found == {} or found is None:
            self.complain(
                here if found is not None else path,
                "this rule matches nothing in particular; say what in match, or use default",
            )
            return ()
        if not self.holds(found, TABLE, here):
            return ()
        self.only_keys(found, MATCH_KEYS, here)
        wanted = [(key, found[key]) for key in MATCH_KEYS if key in found]
        return tuple(one for key, value in wanted for one in self._conditions(key, value, (*here, key)))

    def _conditions(self, key: str, value: object, path: KeyPath) -> Iterator[Condition]:
        if key == BODY:
            yield from body_conditions(value, path, self)
        elif not isinstance(value, str):
            self.holds(value, STRING, path)
        else:
            try:
                yield condition(key, value)
            except BadInput as error:
                self.complain(path, str(error))

    def _to(self, table: Mapping[str, Any], path: KeyPath) -> tuple[str, ...]:
        found = table.get("to")
        here = (*path, "to")
        if found is None or found == []:
            self.complain(path if found is None else here, 'this rule sends nowhere; add to = "agent:NAME"')
            return ()
        if not isinstance(found, list):
            return (found,) if self.holds(found, STRING, here) and self._destination(found, here) else ()
        places = [(one, (*here, number)) for number, one in enumerate(found)]
        return tuple(
            dict.fromkeys(one for one, at in places if self.holds(one, STRING, at) and self._destination(one, at))
        )

    def _flag(self, table: Mapping[str, Any], key: str, path: KeyPath) -> bool:
        found = table.get(key, False)
        return self.holds(found, FLAG, (*path, key)) and bool(found)

    def _destination(self, name: str, path: KeyPath) -> bool:
        if _DESTINATION.fullmatch(name):
            self.mentions.append(Mention(name, path))
            return True
        self.complain(
            path,
            f"{name!r} is no destination; write agent:, surface:, webhook:, file: or instance: and a NAME in small letters",
        )
        return False

    def _reachable(self, rules: list[Rule]) -> None:
        for rule, taker in shadowed(rules):
            what = f"rule {rule.id!r} can never fire: the earlier rule {taker.id!r} takes all that it matches"
            self.complain(("rule", rule.number), f"{what}; move it up, or give the other continue = true")
