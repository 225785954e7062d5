"""The tree of hops of one trace: pure, from its events to nodes that the command line draws and prints as JSON.

Events that tell of one thing become one node: a run, a step with its intention and result, an attempt at a delivery.
What there are no words for becomes a plain node under its parent: nothing of a trace is left out. `words.py` has the words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rucher.control.words import WORDS, moment
from rucher.protocol.events import CONTROL_PLANE, Event

_OF_RUNS = ("run.", "step.", "wait.", "budget.", "artifact.", "signal.", "timer.")
_ITS_OWN = frozenset({"run.created", "run.finished", "run.spent", "artifact.stored"})
"""Of a run's events, those that make up the run's own node."""
_OF_WAITS = frozenset({"run.waiting", "wait.over", "signal.sent", "timer.fired"})
_OF_ATTEMPTS = frozenset(
    {"delivery.sending", "delivery.deferred", "delivery.delivered", "delivery.failed", "delivery.uncertain"}
)
"""Of the events about deliveries, those that make up an attempt; the owner's word about one stands by itself."""
_ORDERS = frozenset({"run.paused", "run.resumed", "run.cancelling", "run.steered"})


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


@dataclass(slots=True)
class _Group:
    kind: str
    parent: str
    events: list[Event] = field(default_factory=list)
    tokens: int = 0
    """Of a run: what its steps used."""


Groups = dict[str, _Group]


def _grouped(events: Sequence[Event]) -> Groups:
    groups: Groups = {}
    open_attempt: dict[str, str] = {}
    open_wait: dict[str, str] = {}
    for event in events:
        kind, key, parent = _place(event, groups, open_wait)
        if kind == "delivery":
            hop = event.body["hop"]
            if event.type == "delivery.sending" or hop not in open_attempt:
                open_attempt[hop] = key
            key = open_attempt[hop]
        groups.setdefault(key, _Group(kind, parent)).events.append(event)
        if event.type == "run.spent" and event.body["run"] in groups:
            groups[event.body["run"]].tokens += event.body["used"].get("tokens", 0)
    return groups


def _place(event: Event, groups: Groups, open_wait: dict[str, str]) -> tuple[str, str, str]:
    """The kind and the key of the node that the event belongs to, and the key of the node it hangs under."""
    body, parent = event.body, event.parent_id or ""
    if event.source == CONTROL_PLANE and event.type.startswith(_OF_RUNS) and "run" in body:
        return _place_in_run(event, str(body["run"]), groups, open_wait)
    if event.source == CONTROL_PLANE and event.type in _OF_ATTEMPTS:
        return "delivery", event.id, str(body["hop"])
    if event.source == "agent":
        return "emission", event.id, str(body["run"]) if body.get("run") in groups else parent
    if event.source != CONTROL_PLANE:
        return "message", event.id, parent
    if event.type == "hop.acknowledged" and body["hop"] in groups:
        return "hop", str(body["hop"]), parent
    return "hop" if event.type == "hop.made" else "note", event.id, parent


def _place_in_run(event: Event, run: str, groups: Groups, open_wait: dict[str, str]) -> tuple[str, str, str]:
    body, kind, parent = event.body, event.type, event.parent_id or ""
    if kind in _OF_WAITS and (kind != "wait.over" or run in open_wait):
        return _place_of_wait(event, run, open_wait)
    if body.get("step") and kind.startswith(("step.", "budget.", "run.spent")):
        return "step", f"{run} {body['step']}", run
    if kind in _ITS_OWN:
        forked = body.get("forked", {}).get("run", "")
        return "run", run, forked if forked in groups else parent
    if kind == "run.acquired":
        again = run in groups and any(each.type == kind for each in groups[run].events)
        return ("resumed", event.id, run) if again else ("run", run, parent)
    return "order" if kind in _ORDERS else "note", event.id, run if run in groups else parent


def _place_of_wait(event: Event, run: str, open_wait: dict[str, str]) -> tuple[str, str, str]:
    match event.type:
        case "run.waiting":
            open_wait[run] = event.id
            return "wait", event.id, run
        case "wait.over":
            return "wait", open_wait.pop(run), run
        case kind:
            return kind.partition(".")[0], event.id, open_wait.get(run, run)


def _node(group: _Group, start: int, children: tuple[Node, ...]) -> Node:
    label, state, duration = WORDS[group.kind](group.events)
    if group.tokens:
        label = (*label, f"{group.tokens} tokens")
    seqs = tuple(event.seq for event in group.events)
    return Node(group.kind, label, moment(group.events[0]) - start, state, duration, seqs, children)
