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
REPLY = "reply:"
"""What the topic of a signal begins with that brings a run the answer to its ask."""
ENDS_OF_DELIVERY = {
    "delivery.delivered": "delivered",
    "delivery.failed": "failed",
    "delivery.uncertain": "uncertain",
    "delivery.deferred": "deferred",
}
"""What an attempt at a delivery came to, by the type of the event that says so."""
_ORDERED = {
    "run.paused": "pause",
    "run.resumed": "go on",
    "run.cancelling": "cancel",
    "run.steered": "told",
}
_NOTED = {
    "route.dropped": ("goes nowhere", "dropped"),
    "route.held": ("held until an admin or owner knows the sender", "held"),
    "rule.faulted": ("a rule failed and was passed over", "failed"),
    "hop.retrying": ("tried again later", "retrying"),
    "hop.failed": ("did not arrive", "failed"),
    "hop.retried": ("order: try again", ""),
    "hop.dropped": ("order: give up", "dropped"),
    "delivery.resolved": ("order: this is what became of it", ""),
}
"""What a note says, and its state."""
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
    origin = event.body.get("trace")
    elsewhere = (f"goes on from trace {origin}",) if origin and origin != event.trace_id else ()
    said = (f"{event.type} from {event.principal}", f"by {event.source}", f"trust {event.trust.word}", *address)
    return (*said, *elsewhere, _quoted(event)), "", None


def _emission(events: Sequence[Event]) -> Words:
    event = events[0]
    to = f"to {event.addressed_to}" if event.addressed_to else "to nobody"
    answers = event.body.get("answers")
    asked = (f"for ask {answers}",) if answers else ()
    state = {"failure": "failed", "question": "waiting"}.get(event.type, "")
    return (f"{event.type} from {event.principal}", to, *asked, _quoted(event)), state, None


def _hop(events: Sequence[Event]) -> Words:
    body = events[0].body
    version = str(body.get("rules", ""))[:_SHORT_VERSION]
    taken = _first(events, "hop.acknowledged")
    session = taken.body.get("session") if taken else None
    detail = str(taken.body.get("detail", "")) if taken else ""
    came = (
        ("acknowledged", *((f"session {session}",) if session else ()), *((detail,) if detail else ())) if taken else ()
    )
    return (f"rule {body['rule']}", f"rules {version}", f"to {body['to']}", *_of_hop(body), *came), "", None


def _of_hop(body: Mapping[str, Any]) -> Iterator[str]:
    """What is out of the ordinary about a hop."""
    if str(body["to"]).startswith("instance:"):
        yield "on another instance"
    if body.get("mode", "wake") == "context":
        yield "as context: wakes nobody"
    if body.get("session", "per-thread") != "per-thread":
        yield f"session {body['session']}"
    if "engaged" in body:
        yield "stays engaged here"


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
    topic = str(event.body.get("topic", ""))
    reply = (f"is the answer to ask {topic.removeprefix(REPLY)}",) if topic.startswith(REPLY) else ()
    return (told_outcome(event.body.get("outcome", {})), *reply, f"by {event.principal}"), "", None


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
    state = ENDS_OF_DELIVERY.get(last.type, "sending")
    attempt = next((f"attempt {event.body['attempt']}" for event in events if "attempt" in event.body), "")
    part = next((_numbered(event.body) for event in events if "part" in event.body), "")
    why = str(last.body.get("reason") or last.body.get("proof") or "")
    receipt = last.body.get("receipt")
    proof = f"receipt {short(receipt)}" if receipt else ""
    label = tuple(fact for fact in (f"delivery {state}", part, attempt, why, proof) if fact)
    return label, state, _lasted(first, last) if len(events) > 1 else None


def _numbered(body: Mapping[str, Any]) -> str:
    return f"part {body['part']} of {body['parts']}" if "parts" in body else f"part {body['part']}"


def _note(events: Sequence[Event]) -> Words:
    event = events[0]
    match event.type:
        case "run.parked":
            return (f"stands still before step {event.body['step']}", str(event.body["reason"])), "paused", None
        case "run.migrated":
            return (f"goes on with engine {event.body['engine_version']}", "and the prompt and tools of now"), "", None
        case kind:
            words, state = _NOTED.get(kind, (kind.replace(".", " "), kind.rpartition(".")[2]))
            return (words, *_facts(event.body)), state, None


def _facts(body: Mapping[str, Any]) -> Iterator[str]:
    for name in ("reason", "detail"):
        if body.get(name):
            yield str(body[name])
    for name in ("rule", "session", "version", "schedule", "principal", "room", "name", "part", "verdict", "by"):
        if body.get(name) not in (None, ""):
            yield f"{name} {short(body[name])}"


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
