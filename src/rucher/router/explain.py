"""Why an event goes where it goes: each rule, condition by condition, with the value found. Pure.

Called by `rucher rules explain` and by what tells why of a trace. It decides nothing: `decide` does, and both are told.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rucher.protocol.events import Event
from rucher.protocol.positions import positions
from rucher.router.bodies import values_at
from rucher.router.conditions import BODY, Condition, field_of
from rucher.router.decide import Decision, Dropped, Held, bar, decide, overhears
from rucher.router.reasons import reason
from rucher.router.registry import Registry
from rucher.router.rules import CONTEXT, Route, Rule, Rules

MOST_SHOWN = 120
"""The longest value found, in characters, that is shown."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One condition: what the rule wants, what the event has, and whether that holds. `fault` is why it could not be tried."""

    key: str
    wanted: str
    found: str
    holds: bool
    fault: str = ""


@dataclass(frozen=True, slots=True)
class RuleTold:
    """One rule: its place in the file, its conditions, and in words what it did. `fired` when it sent the event somewhere."""

    rule: str
    line: int
    conditions: Sequence[Checked]
    fired: bool
    said: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was decided about an event by one version of the rules; `barred` is why no rule was asked."""

    version: str
    barred: str
    rules: Sequence[RuleTold]
    decision: Decision


def explain(event: Event, rules: Rules, registry: Registry) -> Explanation:
    """Tell of each rule what it makes of the event, and of what was decided."""
    barred = bar(event, registry)
    lines = lines_of(rules)
    told: list[RuleTold] = []
    taker = ""
    for rule in rules.rules:
        one = _told(rule, event, registry, lines[rule.id], "" if barred else taker)
        told.append(one)
        if one.fired and not rule.goes_on and not overhears(rule, event) and _wakes(rule, event, registry):
            taker = rule.id
    decision = decide(event, rules, registry)
    return Explanation(rules.version, barred.reason if barred else "", told, decision)


def lines_of(rules: Rules) -> Mapping[str, int]:
    """The line of the file, from 1, on which each rule begins."""
    where = positions(rules.text)
    return {rule.id: found.line if (found := where.get(("rule", rule.number))) else 1 for rule in rules.rules}


def outcome(decision: Decision) -> Sequence[str]:
    """A decision in lines for people."""
    lines = [f"{shown(route)} by rule {route.rule_id}" for route in decision.routes]
    match decision.end:
        case Dropped(said):
            lines.append(f"{'dropped' if not decision.routes else 'no agent'}: {said}")
        case Held(said):
            lines.append(f"held: {said}")
        case None:
            pass
    return lines + [f"rule {fault.rule} could not be tried: {fault.reason}" for fault in decision.faults]


def shown(route: Route) -> str:
    """A route's destination, and how it goes there if not in the plain way."""
    return f"{route.to} as context" if route.mode == CONTEXT else route.to


def _told(rule: Rule, event: Event, registry: Registry, line: int, taker: str) -> RuleTold:
    checked = [_checked(condition, event) for condition in rule.match]
    if any(one.fault for one in checked):
        return RuleTold(rule.id, line, checked, fired=False, said="could not be tried")
    if not all(one.holds for one in checked):
        return RuleTold(rule.id, line, checked, fired=False, said="does not hold")
    if taker:
        return RuleTold(rule.id, line, checked, fired=False, said=f"holds, but rule {taker} above it took the event")
    try:
        tried = rule.tried(event, registry)
    except Exception as error:  # noqa: BLE001 - told here as it is recorded by the router
        return RuleTold(rule.id, line, checked, fired=False, said=f"could not be tried: {reason(error)}")
    if tried is None:
        said = "holds, but would send the event back to its own sender"
        return RuleTold(rule.id, line, checked, fired=False, said=said)
    sent = [shown(route) for route in tried.routes]
    words = [f"sends to {', '.join(sent)}"] * bool(sent) + [tried.lacking] * bool(tried.lacking)
    return RuleTold(rule.id, line, checked, fired=bool(sent), said=f"holds: {'; '.join(words)}")


def _wakes(rule: Rule, event: Event, registry: Registry) -> bool:
    tried = rule.tried(event, registry)
    return tried is not None and tried.wakes


def _checked(condition: Condition, event: Event) -> Checked:
    found = _found(condition.key, event)
    try:
        return Checked(condition.key, condition.wanted, found, condition.holds(event))
    except Exception as error:  # noqa: BLE001 - told here as it is recorded by the router
        return Checked(condition.key, condition.wanted, found, holds=False, fault=reason(error))


def _found(key: str, event: Event) -> str:
    if key == "subject":
        return _short(json.dumps(event.subject))
    if key == "trust":
        return json.dumps(event.trust.word)
    if key.startswith(f"{BODY}."):
        values = values_at(event, key.removeprefix(f"{BODY}."))
        return _short(", ".join(json.dumps(value, ensure_ascii=False) for value in values)) or "nothing"
    value: Any = field_of(event, key)
    return "nothing" if value is None else _short(json.dumps(value, ensure_ascii=False))


def _short(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} ..."
