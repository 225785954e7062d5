"""The rules as data, and `decide`: where one event goes. Pure: the same event and rules always give the same decision.

Rules come from `rucher.router.parse`; `rucher.router.router` asks for decisions and records them. Nothing here reads a
file, a clock or the journal.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from rucher.protocol.events import Event, Trust
from rucher.protocol.positions import KeyPath
from rucher.router.conditions import Condition
from rucher.router.index import Index

DEFAULT_RULE = "default"
"""The rule id of routes that the file's `default` made; no rule may have it."""

_SHORT = 12


@dataclass(frozen=True, slots=True)
class Rule:
    """One `[[rule]]`: all conditions must hold. `number` is its place in the file, from 0; `goes_on` is `continue`."""

    number: int
    id: str
    match: tuple[Condition, ...]
    to: tuple[str, ...]
    goes_on: bool
    generated: bool

    def holds(self, event: Event) -> bool:
        """Whether every condition holds."""
        return all(condition.holds(event) for condition in self.match)


@dataclass(frozen=True, slots=True)
class Mention:
    """A destination that the file names, and the key where it does."""

    to: str
    path: KeyPath


@dataclass(frozen=True, slots=True)
class Rules:
    """One accepted rules file: its text, and what it says. `version` is the SHA-256 of its bytes, in hexadecimal."""

    path: str
    text: str = field(repr=False)
    version: str
    default: str
    rules: tuple[Rule, ...]
    mentions: tuple[Mention, ...]
    index: Index = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", Index([rule.match for rule in self.rules]))

    @property
    def short_version(self) -> str:
        """The first characters of the version, for people."""
        return self.version[:_SHORT]

    def candidates(self, event: Event) -> Iterator[Rule]:
        """The rules that may hold for this event, in order."""
        return (self.rules[number] for number in self.index.candidates(event))


@dataclass(frozen=True, slots=True)
class Route:
    """One destination that an event goes to, and the rule that says so.

    `mode` is `wake`, or `context`: an agent keeps it for its next turn and is not woken. `session` is how an agent's sessions
    are cut: `per-thread`, `shared` (one a room) or `per-agent` (one for all rooms).
    """

    rule_id: str
    to: str
    mode: str = "wake"
    session: str = "per-thread"


@dataclass(frozen=True, slots=True)
class Dropped:
    """The event goes nowhere, for a reason fit for the owner."""

    reason: str


Decision = tuple[Route, ...] | Dropped


def decide(event: Event, rules: Rules) -> Decision:
    """Where `event` goes: by the first rule that holds, by later ones while `continue` says so, else to the default.

    Nothing is sent back to its own sender: a rule whose only destination is the event's principal does not fire for it.
    """
    if event.addressed_to is not None and event.addressed_to == event.principal:
        return Dropped(f"{event.principal} addressed this to itself")
    routes: dict[str, Route] = {}
    for rule in rules.candidates(event):
        others = [to for to in rule.to if to != event.principal]
        if not others or not rule.holds(event):
            continue
        for to in others:
            routes.setdefault(to, Route(rule.id, to))
        if not rule.goes_on:
            break
    return tuple(routes.values()) or _uncovered(event, rules)


def _uncovered(event: Event, rules: Rules) -> Decision:
    if event.trust is Trust.AGENT or event.principal.startswith("agent:"):
        to = event.addressed_to or "nobody"
        return Dropped(
            f"no rule covers what {event.principal} addressed to {to}; the default is not for agents' emissions"
        )
    return (Route(DEFAULT_RULE, rules.default),)
