"""The rules as data, and what one rule makes of one event. Pure.

Rules come from `rucher.router.parse`; `rucher.router.decide` asks them in order. Nothing here reads a file, a clock or the
journal.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from rucher.protocol.events import Event
from rucher.protocol.positions import KeyPath
from rucher.router.conditions import Condition
from rucher.router.engagement import AGENT, ALWAYS, Terms
from rucher.router.index import Index
from rucher.router.registry import Engagement, Registry

DEFAULT_RULE = "default"
"""The rule id of routes that the file's `default` made; no rule may have it."""

WAKE, CONTEXT = "wake", "context"
"""The modes of a route."""

_SHORT = 12


@dataclass(frozen=True, slots=True)
class Route:
    """One destination that an event goes to, and the rule that says so.

    `mode` is `wake`, or `context`: an agent keeps it for its next turn and is not woken. `session` is how an agent's sessions
    are cut: `per-thread`, `shared` (one a room) or `per-agent` (one for all rooms). `engaged`: an engagement that begins.
    """

    rule_id: str
    to: str
    mode: str = WAKE
    session: str = "per-thread"
    engaged: Engagement | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """What a rule whose match holds makes of an event: its routes, and of an agent that it does not wake, why."""

    routes: tuple[Route, ...]
    lacking: str = ""

    @property
    def wakes(self) -> bool:
        """Whether the event has arrived somewhere, so that later rules need not see it."""
        return any(route.mode == WAKE for route in self.routes)


@dataclass(frozen=True, slots=True)
class Rule:
    """One `[[rule]]`: all conditions must hold. `number` is its place in the file, from 0; `goes_on` is `continue`."""

    number: int
    id: str
    match: tuple[Condition, ...]
    to: tuple[str, ...]
    goes_on: bool
    generated: bool
    terms: Terms = ALWAYS
    _always: Tried = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_always", Tried(tuple(self._wake(to) for to in self.to)))

    def holds(self, event: Event) -> bool:
        """Whether every condition holds. Raises Permanent as an expression does."""
        return all(condition.holds(event) for condition in self.match)

    def tried(self, event: Event, registry: Registry) -> Tried | None:
        """What the rule makes of the event; None when it does not hold, or would send it to its own sender alone."""
        if event.principal in self.to and len(self.to) == 1:
            return None
        if not self.holds(event):
            return None
        if self.terms.always and event.principal not in self.to:
            return self._always
        return self._under_terms(event, registry)

    def _under_terms(self, event: Event, registry: Registry) -> Tried:
        routes: list[Route] = []
        lacks: list[str] = []
        for to in self.to:
            if to == event.principal:
                continue
            agent = to.removeprefix(AGENT)
            lacking = self.terms.lacking(agent, event, registry) if to.startswith(AGENT) else ""
            if not lacking:
                engaged = self.terms.engages(agent, event, registry) if to.startswith(AGENT) else None
                routes.append(self._wake(to, engaged))
                continue
            lacks.append(lacking)
            if self.terms.otherwise == CONTEXT:
                routes.append(Route(self.id, to, CONTEXT, self.terms.session))
        return Tried(tuple(routes), "; ".join(lacks))

    def _wake(self, to: str, engaged: Engagement | None = None) -> Route:
        return Route(self.id, to, WAKE, self.terms.session, engaged)


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
