"""The tree of hops of one trace: pure, from its events to nodes that the command line draws and prints as JSON.

Events that tell of one thing become one node: a run, a step with its intention and result, an attempt at a delivery.
What this module has no words for becomes a plain node under its parent: nothing of a trace is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rucher.control.steps import Step, short, told
from rucher.protocol.events import CONTROL_PLANE, Event

_SHORT_VERSION = 12
_ENDS_OF_DELIVERY = {
    "delivery.delivered": "delivered",
    "delivery.failed": "failed",
    "delivery.uncertain": "uncertain",
    "delivery.deferred": "deferred",
}


@dataclass(frozen=True, slots=True)
class Node:
    """One thing that happened in a trace, with what it caused.

    `label` is what to say about it, most important first; it holds text from outside as it came. `at` is microseconds
    since the first event of the trace, `duration` microseconds where beginning and end are known. `events` are the
    `seq` of the events it was made of.
    """

    kind: str
    label: tuple[str, ...]
    at: int
    state: str = ""
    duration: int | None = None
    events: tuple[int, ...] = ()
    children: tuple["Node", ...] = ()


def tree(events: Sequence[Event]) -> list[Node]:
    """The nodes of a trace, given its events in order: a tree for each event whose cause lies outside of the trace."""
    groups = _grouped(events)
    start = min((moment(event) for event in events), default=0)
    roots: list[Node] = []
    hanging: dict[str, list[Node]] = {}
    for key in sorted(groups, key=lambda key: groups[key].events[0].seq, reverse=True):
        group = groups[key]
        node = _node(group, start, tuple(reversed(hanging.get(key, []))))
        parent = groups.get(group.parent)
        comes_later = parent is None or parent.events[0].seq >= group.events[0].seq
        (roots if comes_later else hanging.setdefault(group.parent, [])).append(node)
    return roots[::-1]


def moment(event: Event) -> int:
    """When it happened by this node's clock; a message's own `occurred_at` is by its sender's."""
    ours = event.source in (CONTROL_PLANE, "agent")
    return event.occurred_at if ours else event.recorded_at


@dataclass(slots=True)
class _Group:
    kind: str
    parent: str
    events: list[Event] = field(default_factory=list)
    tokens: int = 0
    """Of a run: what its recorded steps used."""


def _grouped(events: Sequence[Event]) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    open_attempt: dict[str, str] = {}
    for event in events:
        kind, key, parent = _place(event, groups)
        if kind == "delivery":
            hop = event.body["hop"]
            if event.type == "delivery.sending" or hop not in open_attempt:
                open_attempt[hop] = key
            key = open_attempt[hop]
        groups.setdefault(key, _Group(kind, parent)).events.append(event)
        if kind == "step" and parent in groups:
            usage = event.body.get("usage", {})
            groups[parent].tokens += usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
    return groups


def _place(event: Event, groups: Mapping[str, _Group]) -> tuple[str, str, str]:
    """The kind and the key of the node that the event belongs to, and the key of the node it hangs under."""
    body, parent = event.body, event.parent_id or ""
    if event.source == CONTROL_PLANE and event.type.startswith(("run.", "step.")):
        return _place_in_run(event, str(body["run"]), groups)
    if event.source == CONTROL_PLANE and event.type.startswith("delivery."):
        return "delivery", event.id, str(body["hop"])
    if event.source == "agent":
        return "emission", event.id, str(body["run"]) if body.get("run") in groups else parent
    if event.source != CONTROL_PLANE:
        return "message", event.id, parent
    return "hop" if event.type == "hop.made" else "note", event.id, parent


def _place_in_run(event: Event, run: str, groups: Mapping[str, _Group]) -> tuple[str, str, str]:
    parent = event.parent_id or ""
    if "step" in event.body and event.type.startswith("step."):
        return "step", f"{run} {event.body['step']}", run
    if event.type == "run.waiting":
        return "wait", event.id, run
    if event.type == "run.acquired" and run in groups and _told_of(groups[run], "run.acquired"):
        return "resumed", event.id, run
    return "run", run, parent


def _node(group: _Group, start: int, children: tuple[Node, ...]) -> Node:
    events = group.events
    first = events[0]
    label, state, duration = _run(group) if group.kind == "run" else _WORDS[group.kind](events)
    seqs = tuple(event.seq for event in events)
    return Node(group.kind, label, moment(first) - start, state, duration, seqs, children)


Words = tuple[tuple[str, ...], str, int | None]
"""A node's label, state and duration."""


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
    return (f"rule {body['rule']}", f"rules {version}", f"to {body['to']}"), "", None


def _run(group: _Group) -> Words:
    events = group.events
    created = next((event for event in events if event.type == "run.created"), None)
    finished = next((event for event in events if event.type == "run.finished"), None)
    facts = created.body if created else {}
    state = str(finished.body["state"]) if finished else "unfinished"
    reason = (str(finished.body["reason"]),) if finished and finished.body.get("reason") else ()
    who = (f"run {events[0].body['run']}", state, str(facts.get("agent", "")), str(facts.get("model", "")))
    used = f"{group.tokens} tokens" if group.tokens else ""
    return tuple(part for part in (*who, used, *reason) if part), state, _lasted(created, finished)


def _step(events: Sequence[Event]) -> Words:
    step = Step.of(events)
    return (f"step {step.key}", step.kind, *told(step)), step.state, step.duration


def _wait(events: Sequence[Event]) -> Words:
    body = events[0].body
    return (f"waits for its owner about step {body['step']}", str(body["reason"])), "waiting", None


def _resumed(events: Sequence[Event]) -> Words:
    return ("taken up again", f"by worker {events[0].body.get('worker', 'unknown')}"), "", None


def _delivery(events: Sequence[Event]) -> Words:
    first, last = events[0], events[-1]
    state = _ENDS_OF_DELIVERY.get(last.type, "sending")
    attempt = next((f"attempt {event.body['attempt']}" for event in events if "attempt" in event.body), "")
    why = str(last.body.get("reason") or last.body.get("proof") or "")
    receipt = last.body.get("receipt")
    proof = f"receipt {short(receipt)}" if receipt else ""
    label = tuple(part for part in (f"delivery {state}", attempt, why, proof) if part)
    return label, state, _lasted(first, last) if len(events) > 1 else None


def _note(events: Sequence[Event]) -> Words:
    event = events[0]
    state = event.type.rpartition(".")[2]
    facts = tuple(_facts(event.body))
    return (event.type.replace(".", " "), *facts), state, None


def _facts(body: Mapping[str, Any]) -> Iterator[str]:
    for name in ("reason", "session", "version", "detail"):
        if body.get(name):
            yield str(body[name]) if name in ("reason", "detail") else f"{name} {body[name]}"


def _quoted(event: Event) -> str:
    text = event.body.get("text")
    return f'"{short(text)}"' if isinstance(text, str) else short(dict(event.body))


def _lasted(first: Event | None, last: Event | None) -> int | None:
    return moment(last) - moment(first) if first and last else None


def _told_of(group: _Group, kind: str) -> bool:
    return any(event.type == kind for event in group.events)


_WORDS = {
    "message": _message,
    "emission": _emission,
    "hop": _hop,
    "step": _step,
    "wait": _wait,
    "resumed": _resumed,
    "delivery": _delivery,
    "note": _note,
}
