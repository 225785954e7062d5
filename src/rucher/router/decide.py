"""`decide`: where one event goes. Pure: the same event, rules and registry always give the same decision.

Called by `rucher.router.router`, which records decisions, and by commands that explain or test rules.
"""

from dataclasses import dataclass

from rucher.protocol.events import Event, Trust
from rucher.protocol.rooms import room_of
from rucher.router import loops
from rucher.router.engagement import AGENT
from rucher.router.reasons import reason
from rucher.router.registry import Registry
from rucher.router.rules import DEFAULT_RULE, WAKE, Route, Rule, Rules


@dataclass(frozen=True, slots=True)
class Dropped:
    """The event goes nowhere, or nowhere further, for a reason fit for the owner; `rule` is the one that said so, if any."""

    reason: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """The event waits until somebody says who its sender is."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that could not be tried on the event, and why."""

    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Where an event goes. Without routes `end` says why; beside routes it says why no agent is among them (a loop stop)."""

    routes: tuple[Route, ...] = ()
    faults: tuple[Fault, ...] = ()
    end: Dropped | Held | None = None


def decide(event: Event, rules: Rules, registry: Registry) -> Decision:
    """Where `event` goes: by the first rule that wakes somebody, by later ones while `continue` says so, else to the default.

    A rule whose match holds and whose terms do not is passed over; what it keeps as context goes there besides. When such a
    rule was the only one to hold, the event is dropped and not sent to the default. Nothing is sent back to its own sender. A
    rule that raises is passed over too, and told.
    """
    if (barred := bar(event, registry)) is not None:
        return Decision(end=barred)
    routes: dict[str, Route] = {}
    faults: list[Fault] = []
    missed: Dropped | None = None
    for rule in rules.candidates(event):
        try:
            tried = rule.tried(event, registry)
        except Exception as error:  # noqa: BLE001 - one rule's error must not stop the others; it is recorded
            faults.append(Fault(rule.id, reason(error)))
            continue
        if tried is None:
            continue
        for route in tried.routes:
            if route.to not in routes or (route.mode == WAKE != routes[route.to].mode):
                routes[route.to] = route
        if not tried.routes and missed is None:
            missed = Dropped(f"rule {rule.id!r} holds, but {tried.lacking}", rule.id)
        if tried.wakes and not rule.goes_on and not overhears(rule, event):
            break
    if not routes:
        return Decision((), tuple(faults), missed) if missed else _uncovered(event, rules, tuple(faults))
    return _within_limits(event, Decision(tuple(routes.values()), tuple(faults)))


def overhears(rule: Rule, event: Event) -> bool:
    """Whether the rule only calls agents to what is said to a group, which must still reach the group by a later rule."""
    return (
        rule.terms.engage != "always"
        and (event.addressed_to or "").startswith("group:")
        and all(to.startswith(AGENT) for to in rule.to)
    )


def bar(event: Event, registry: Registry) -> Dropped | Held | None:
    """Why the rules are not asked at all about this event; None when they are."""
    sender = event.principal
    if event.addressed_to is not None and event.addressed_to == sender:
        return Dropped(f"{sender} addressed this to itself")
    if silenced := loops.silenced(event):
        return Dropped(silenced)
    if sender in registry.blocked:
        return Dropped(f"{sender} is blocked")
    return None if registry.knows(sender) else _unknown(event, registry)


def _unknown(event: Event, registry: Registry) -> Dropped | Held | None:
    sender = event.principal
    match registry.policy(room_of(event)):
        case "strict":
            return Dropped(f"{sender} is not known here, and this room takes messages of known people only")
        case "ask":
            return Held(f"{sender} is not known here: give them a role, or block them")
        case _:
            return None


def _uncovered(event: Event, rules: Rules, faults: tuple[Fault, ...]) -> Decision:
    if event.trust is Trust.AGENT or event.principal.startswith("agent:"):
        to = event.addressed_to or "nobody"
        reason = f"no rule covers what {event.principal} addressed to {to}; the default is not for agents' emissions"
        return Decision((), faults, Dropped(reason))
    return _within_limits(event, Decision((Route(DEFAULT_RULE, rules.default),), faults))


def _within_limits(event: Event, found: Decision) -> Decision:
    stopped = loops.stop(event)
    if not stopped:
        return found
    kept = tuple(route for route in found.routes if route.to.partition(":")[0] not in loops.LOOPING)
    return found if kept == found.routes else Decision(kept, found.faults, Dropped(stopped))
