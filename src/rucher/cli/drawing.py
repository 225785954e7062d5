"""How `rucher trace` prints: the tree as lines, and as flat JSON that no reader has to recurse into."""

from collections.abc import Iterator, Sequence
from typing import Any

from rucher.cli.show import clean, event_row, span, toned
from rucher.control.outline import Cut, Line, laid_out, subtree, walk
from rucher.control.trees import Node, tree
from rucher.control.why import Why
from rucher.protocol.events import Event

_US_PER_MS = 1000
_PAST_MARGIN = " " * 13


def drawn(events: Sequence[Event], *, colours: bool = False, cut: Cut | None = None, under: int = 0) -> Iterator[str]:
    """The trace as lines of text, without anything that steers a terminal but the colours of states, if wanted.

    `under` is an event: only what it is part of, and what that caused, is drawn. Raises BadInput when it is of another trace.
    """
    trace_id, roots = events[0].trace_id, tree(events)
    last = max((node.at + (node.duration or 0) for node, _, _ in walk(roots)), default=0)
    yield f"trace {trace_id}  {len(events)} events in {span(last)}"
    for line in laid_out(subtree(roots, under) if under else roots, cut or Cut()):
        yield _node(line, line.node, colours=colours) if line.node else _hidden(line, trace_id)


def _node(line: Line, node: Node, *, colours: bool) -> str:
    head, *rest = (clean(part) for part in node.label)
    took = f"  ({span(node.duration)})" if node.duration is not None else ""
    facts = f"  {', '.join(rest)}" if rest else ""
    return f"{'+' + span(node.at):>11}  {line.branch}{toned(head, node.state) if colours else head}{facts}{took}"


def _hidden(line: Line, trace_id: str) -> str:
    deeper = f" --under {line.beneath}" if line.beneath else ""
    whole = "" if deeper and line.branch.endswith("└─ ") else " --all"
    return f"{_PAST_MARGIN}{line.branch}... {line.hidden:,} more: rucher trace {trace_id}{deeper}{whole}"


def as_json(events: Sequence[Event], under: int = 0) -> dict[str, Any]:
    """The nodes in the order of the drawing, each with its number and its parent's; and all events."""
    roots = tree(events)
    numbers: dict[int, int] = {}
    nodes: list[dict[str, Any]] = []
    for node, level, parent in walk(subtree(roots, under) if under else roots):
        numbers[id(node)] = len(nodes)
        nodes.append({
            "node": len(nodes),
            "parent": None if parent is None else numbers[id(parent)],
            "level": level,
            "kind": node.kind,
            "label": list(node.label),
            "state": node.state,
            "at_ms": node.at / _US_PER_MS,
            "duration_ms": None if node.duration is None else node.duration / _US_PER_MS,
            "events": list(node.events),
        })  # fmt: skip
    return {"trace_id": events[0].trace_id, "nodes": nodes, "events": [event_row(event) for event in events]}


def reasons(told: Sequence[Why]) -> Iterator[str]:
    """Each decision as a few lines."""
    if not told:
        yield "nothing was decided in this trace yet"
    for one in told:
        yield f"event {one.seq}: {_decision(one)}"
        yield f"  what    {_what(one.event)}"
        if one.rule:
            version = f" of rules {one.version[:12]}" if one.version else ""
            yield f"  rule    {clean(one.rule)}{version}"
        for held in one.held:
            found = "nothing" if held.found is None else clean(held.found)
            yield f'  {"holds" if held.holds else "FAILS"}   {held.key} = "{clean(held.wanted)}"; here: {found}'
        if one.reason:
            yield f"  reason  {clean(one.reason)}"
        if one.place or one.unknown:
            yield f"  change  {clean(one.place or one.unknown)}"


def reason_row(one: Why) -> dict[str, Any]:
    """A decision as JSON."""
    return {
        "seq": one.seq,
        "to": one.to or None,
        "outcome": one.outcome,
        "rule": one.rule or None,
        "version": one.version or None,
        "place": one.place or None,
        "unknown": one.unknown or None,
        "reason": one.reason or None,
        "event": None if one.event is None else event_row(one.event),
        "conditions": [
            {"key": held.key, "wanted": held.wanted, "found": held.found, "holds": held.holds} for held in one.held
        ],
    }


def _decision(one: Why) -> str:
    to = clean(one.to)
    match one.outcome:
        case "dropped":
            return "goes nowhere"
        case "held":
            return "held until an admin or owner knows the sender"
        case "faulted":
            return "a rule failed and was passed over"
        case "context":
            return f"{to} keeps it as context"
        case _ if to.startswith("agent:"):
            return f"{to} is woken"
        case _:
            return f"sent to {to}"


def _what(event: Event | None) -> str:
    if event is None:
        return "an event that is not in this trace"
    to = f", addressed to {event.addressed_to}" if event.addressed_to else ""
    return clean(f"{event.type} from {event.principal} (trust {event.trust.word}), event {event.seq}{to}")
