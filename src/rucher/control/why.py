"""Why a trace went where it did: for each hop the rule, what it asked and found, and the line that one would change. Pure.

Called by `rucher trace --why` with the trace's events and the rules files that decided them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rucher.control.steps import short
from rucher.protocol.errors import BadInput
from rucher.protocol.events import CONTROL_PLANE, Event
from rucher.protocol.positions import KeyPath, positions
from rucher.router.conditions import Condition
from rucher.router.parse import parse
from rucher.router.rules import DEFAULT_RULE, Rule, Rules

_NOWHERE = {"route.dropped": "dropped", "route.held": "held", "rule.faulted": "faulted"}
"""Decisions that are no hop, by type."""


@dataclass(frozen=True, slots=True)
class RulesText:
    """One version of the rules file, as it was when it was in force."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Held:
    """One condition of the rule: what it asked, what the event had (None: nothing), and whether it holds for that."""

    key: str
    wanted: str
    found: str | None
    holds: bool


@dataclass(frozen=True, slots=True)
class Why:
    """One decision. `to` is empty and `reason` says why where the event went nowhere; `outcome` is wake, context or that.

    `place` is `file:line` in the version that decided, empty when that text is not known any more; `unknown` then says so.
    """

    seq: int
    event: Event | None
    to: str
    outcome: str
    rule: str
    version: str
    reason: str = ""
    place: str = ""
    held: tuple[Held, ...] = ()
    unknown: str = ""


def versions_in(events: Sequence[Event]) -> set[str]:
    """The versions of the rules file that decided in this trace."""
    return {str(event.body["rules"]) for event in events if event.type == "hop.made" and "rules" in event.body}


def why(events: Sequence[Event], texts: Mapping[str, RulesText]) -> Iterator[Why]:
    """Each decision of the router in a trace, in order. `texts` by version; one that is missing is told as unknown."""
    by_id = {event.id: event for event in events}
    books = {version: _Book(text) for version, text in texts.items()}
    for event in events:
        if event.source != CONTROL_PLANE or (event.type != "hop.made" and event.type not in _NOWHERE):
            continue
        body = event.body
        about = by_id.get(str(body.get("event", "")))
        rule, version = str(body.get("rule", "")), str(body.get("rules", ""))
        place, held, unknown = _judged(books, version, rule, about)
        yield Why(
            seq=event.seq, event=about, to=str(body.get("to", "")), rule=rule, version=version,
            outcome=_NOWHERE.get(event.type, str(body.get("mode", "wake"))), reason=str(body.get("reason", "")),
            place=place, held=held, unknown=unknown,
        )  # fmt: skip


def _judged(
    books: "Mapping[str, _Book]", version: str, rule: str, about: Event | None
) -> tuple[str, tuple[Held, ...], str]:
    if not rule:
        return "", (), ""
    book = books.get(version)
    if book is None:
        return "", (), f"the text of rules {version[:12]} is not in this journal" if version else ""
    if book.rules is None:
        return "", (), f"the text of rules {version[:12]} cannot be read by this version: {book.fault}"
    if rule == DEFAULT_RULE:
        return book.place(("default",)), (), ""
    found = next((one for one in book.rules.rules if one.id == rule), None)
    if found is None:
        return "", (), f"rules {version[:12]} have no rule {rule}"
    return book.place(("rule", found.number)), _held(found, about), ""


def _held(rule: Rule, event: Event | None) -> tuple[Held, ...]:
    if event is None:
        return ()
    return tuple(Held(one.key, str(one.wanted), _found(one, event), one.holds(event)) for one in rule.match)


def _found(condition: Condition, event: Event) -> str | None:
    """What the event has where the condition looks."""
    match condition.key:
        case "trust":
            return event.trust.word
        case "group" | "text" | "thread":
            found = event.body.get(condition.key)
        case key:
            found = getattr(event, key, None)
    return None if found is None else short(found)


class _Book:
    """A version of the rules with the places of its lines."""

    def __init__(self, text: RulesText) -> None:
        self._path = text.path
        self.rules: Rules | None = None
        self.fault = ""
        try:
            self.rules = parse(text.text, text.path)
        except BadInput as error:
            self.fault = str(error)
            return
        self._places = positions(text.text)

    def place(self, path: KeyPath) -> str:
        """`file:line` of this key."""
        found = self._places.get(path)
        return f"{self._path}:{found.line}" if found else self._path
