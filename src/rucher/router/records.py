"""How the router's decisions, and what becomes of the rules file, are written down as events. Pure.

Everything about the rules of a tenant is one trace, so that its whole history is found by one id.
"""

import json
from collections.abc import Iterator
from typing import Any

from rucher.protocol.events import Draft, Event, control_event
from rucher.protocol.ids import derived
from rucher.protocol.replies import awaiting
from rucher.protocol.rooms import room_of
from rucher.router.decide import Decision, Dropped, Held
from rucher.router.rules import Rules

MOST_TEXT = 512 * 1024
"""The longest text of a rules file, as JSON in bytes, that is kept with its version."""


def rules_trace(tenant: str) -> str:
    """The trace of all that happened to the rules of a tenant."""
    return derived("trace", tenant, "rules")


def decision_records(event: Event, decision: Decision, rules: Rules, now: int) -> Iterator[Draft]:
    """What is recorded of the decision about an event: at least one hop, or why there is none."""
    about: dict[str, Any] = {"event": event.id, "event_seq": event.seq, "rules": rules.version}
    for fault in decision.faults:
        faulted = about | {"rule": fault.rule, "reason": fault.reason}
        yield _about_event(event, "rule.faulted", f"{event.id}:{fault.rule}", faulted, now)
    for route in decision.routes:
        body = about | {"rule": route.rule_id, "to": route.to, "mode": route.mode, "session": route.session}
        if route.engaged is not None:
            body["engaged"] = route.engaged._asdict()
        yield _about_event(event, "hop.made", f"{event.id}:{route.rule_id}:{route.to}", body, now)
    match decision.end:
        case Dropped(reason, rule):
            body = {**about, "reason": reason, **({"rule": rule} if rule else {}), **awaiting(event)}
            yield _about_event(event, "route.dropped", event.id, body, now)
        case Held(reason):
            body = about | {"principal": event.principal, "room": room_of(event), "reason": reason}
            yield _about_event(event, "route.held", event.id, body, now)
        case None:
            pass


def applied(tenant: str, rules: Rules, when: str, now: int) -> Draft:
    """These rules are in force from now on; `when` tells this from other times at which the same ones were taken."""
    body: dict[str, Any] = {"version": rules.version, "rules": len(rules.rules), "path": rules.path}
    if fits(rules.text):
        body["text"] = rules.text
    return about_rules(tenant, "rules.applied", f"{rules.version}:{when}", body, now)


def refused(tenant: str, reason: str, now: int) -> Draft:
    """The file changed and cannot be used."""
    return about_rules(tenant, "rules.refused", str(now), {"reason": reason}, now)


def about_rules(tenant: str, kind: str, key: str, body: dict[str, Any], now: int) -> Draft:
    """An event in the history of the rules."""
    return control_event(
        tenant=tenant, part="rules", kind=kind, key=key, trace_id=rules_trace(tenant), occurred_at=now, body=body
    )


def fits(text: str) -> bool:
    """Whether a file's text is kept in an event."""
    return len(json.dumps(text)) <= MOST_TEXT


def _about_event(event: Event, kind: str, key: str, body: dict[str, Any], now: int) -> Draft:
    return control_event(
        tenant=event.tenant, part="router", kind=kind, key=key, trace_id=event.trace_id, parent_id=event.id,
        occurred_at=now, body=body,
    )  # fmt: skip
