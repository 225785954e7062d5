"""What each node of a trace says, from the events that it is made of: pure. Called by `trees.py` alone.

A node's label is what to say about it, most important first; it holds text from outside as it came.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rucher.control.steps import Step, short, told, told_outcome
from rucher.protocol.events import CONTROL_PLANE, Event

Words = tuple[tuple[str, ...], str, int | None]
"""A node's label, its state, and its duration in microseconds where beginning and end are known."""

_SHORT_VERSION = 12
_ENDS_OF_DELIVERY = {
    "delivery.delivered": "delivered",
    "delivery.failed": "failed",
    "delivery.uncertain": "uncertain",
    "delivery.deferred": "deferred",
}
_ORDERED = {
    "run.paused": "pause",
    "run.resumed": "go on",
    "run.cancelling": "cancel",
    "run.steered": "told",
}
_WAITS = {
    "uncertain": "waits for its owner's word about step {step}",
    "migration": "waits to be migrated",
    "join": "waits for other runs at step {step}",
    "timer": "waits for its time at step {step}",
}


def moment(event: Event) -> int:
    """When it happened by this node's clock; a message's own `occurred_at` is by its sender's."""
    ours = event.source in (CONTROL_PLANE, "agent")
    return event.occurred_at if ours else event.recorded_at


def _message(events: Sequence[Event]) -> Words:
    event = events[0]
    address = (f"to {event.addressed_to}",) if event.addressed_to else ()
    said = (f"{event.type} from {event.principal}", f"by {event.source}", f"trust {event.trust.word}", *address)
    return (*said, _quoted(event)), "", None


def _emission(events: Sequence[Event]) -> Words:
    event = events[0]
    to = f"to {event.addressed_to}" if event.addressed_to else "to nobody"
    state = {"failure": "failed", "question": "waiting"}.get(event.type, "")
    return (f"{event.type} from {event.principal}", to, _quoted(event)), state, None


def _hop(events: Sequence[Event]) -> Words:
    body = events[0].body
    version = str(body.get("rules", ""))[:_SHORT_VERSION]
    taken = _first(events, "hop.acknowledged")
    session = taken.body.get("session") if taken else None
    came = ("acknowledged", *((f"session {session}",) if session else ())) if taken else ()
    return (f"rule {body['rule']}", f"rules {version}", f"to {body['to']}", *came), "", None


def _run(events: Sequence[Event]) -> Words:
    created, finished = _first(events, "run.created"), _first(events, "run.finished")
    facts = created.body if created else {}
    state = str(finished.body["state"]) if finished else "unfinished"
    forked = facts.get("forked")
    came = f"forked from run {forked['run']} at step {forked['step']}" if forked else ""
    reason = str(finished.body.get("reason") or "") if finished else ""
    who = (f"run {events[0].body['run']}", state, str(facts.get("agent", "")), str(facts.get("model", "")))
    return tuple(part for part in (*who, came, reason) if part), state, _lasted(created, finished)


def _step(events: Sequence[Event]) -> Words:
    step = Step.of(events)
    lost = any(event.body.get("lost") for event in events)
    costs = ("a lost call was charged to its budget",) if lost else ()
    return (f"step {step.key}", step.kind, *told(step), *costs), step.state, step.duration


def _wait(events: Sequence[Event]) -> Words:
    asked, over = _first(events, "run.waiting"), _first(events, "wait.over")
    if asked is None:
        return ("waited",), "", None
    body = asked.body
    words = _WAITS.get(str(body.get("as", "")), "waits at step {step}").format(step=body["step"])
    state = "" if over else "waiting"
    return (words, str(body["reason"])), state, _lasted(asked, over)


def _signal(events: Sequence[Event]) -> Words:
    event = events[0]
    return (told_outcome(event.body["outcome"]), f"by {event.principal}"), "", None


def _timer(events: Sequence[Event]) -> Words:
    body = events[0].body
    return ("timer fired", f"at step {body['step'] or 'its start'}", told_outcome(body["outcome"])), "", None


def _order(events: Sequence[Event]) -> Words:
    event = events[0]
    said = event.body.get("text") or event.body.get("reason")
    words = (f'"{short(said)}"',) if said else ()
    return (f"order: {_ORDERED[event.type]}", f"by {event.principal}", *words), "", None


def _resumed(events: Sequence[Event]) -> Words:
    return ("taken up again", f"by worker {events[0].body.get('worker', 'unknown')}"), "", None


def _delivery(events: Sequence[Event]) -> Words:
    first, last = events[0], events[-1]
    state = _ENDS_OF_DELIVERY.get(last.type, "sending")
    attempt = next((f"attempt {event.body['attempt']}" for event in events if "attempt" in event.body), "")
    why = str(last.body.get("reason") or last.body.get("proof") or "")
    receipt = last.body.get("receipt")
    proof = f"receipt {short(receipt)}" if receipt else ""
    which = f"part {last.body['part']} of {last.body['parts']}" if last.body.get("parts", 1) > 1 else ""
    label = tuple(part for part in (f"delivery {state}", which, attempt, why, proof) if part)
    return label, state, _lasted(first, last) if len(events) > 1 else None


def _note(events: Sequence[Event]) -> Words:
    event = events[0]
    match event.type:
        case "run.parked":
            return (f"stands still before step {event.body['step']}", str(event.body["reason"])), "paused", None
        case "run.migrated":
            return (f"goes on with engine {event.body['engine_version']}", "and the prompt and tools of now"), "", None
        case kind:
            return (kind.replace(".", " "), *_facts(event.body)), kind.rpartition(".")[2], None


def _facts(body: Mapping[str, Any]) -> Iterator[str]:
    for name in ("reason", "session", "version", "detail", "verdict", "by"):
        if body.get(name):
            yield str(body[name]) if name in ("reason", "detail", "verdict") else f"{name} {body[name]}"


def _quoted(event: Event) -> str:
    text = event.body.get("text")
    return f'"{short(text)}"' if isinstance(text, str) else short(dict(event.body))


def _lasted(first: Event | None, last: Event | None) -> int | None:
    return moment(last) - moment(first) if first and last else None


def _first(events: Sequence[Event], kind: str) -> Event | None:
    return next((event for event in events if event.type == kind), None)


WORDS: Mapping[str, Callable[[Sequence[Event]], Words]] = {
    "message": _message,
    "emission": _emission,
    "hop": _hop,
    "run": _run,
    "step": _step,
    "wait": _wait,
    "signal": _signal,
    "timer": _timer,
    "order": _order,
    "resumed": _resumed,
    "delivery": _delivery,
    "note": _note,
}
"""By the kind of the node."""
