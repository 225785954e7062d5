"""`rucher trace`: all that one message caused, as a tree of hops with times."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from rucher.cli.reading import find_trace, read, spelled
from rucher.cli.show import clean, document, event_row, span, toned
from rucher.control.trees import Node, tree
from rucher.daemon.settings import find_instance
from rucher.journal.history import trace_starting, whole_trace
from rucher.journal.store import StoreReader
from rucher.protocol.errors import BadInput
from rucher.protocol.events import Event

_US_PER_MS = 1000


@click.command(name="trace")
@click.argument("trace_id", metavar="TRACE_ID")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: the nodes, and the events they tell of.")
@click.pass_context
def trace(context: click.Context, trace_id: str, *, as_json: bool) -> None:
    """Draw all that one message caused: rules, runs, steps, answers and deliveries, with times.

    TRACE_ID may be the beginning of a trace's id, or the whole id of an event in it.
    """

    archive = find_instance(context.obj).archive

    async def work(store: StoreReader) -> Sequence[Event]:
        try:
            found = await find_trace(store, trace_id)
        except BadInput:
            archived = await trace_starting(store, archive, spelled(trace_id))
            if len(archived) != 1:
                raise
            found = archived[0]
        return await whole_trace(store, archive, found)

    events = read(context.obj, work)
    if as_json:
        nodes = [_as_json(node) for node in tree(events)]
        document({"trace_id": events[0].trace_id, "nodes": nodes, "events": [event_row(event) for event in events]})
    else:
        for text in drawn(events, colours=True):
            click.echo(text)


def drawn(events: Sequence[Event], *, colours: bool = False) -> Iterator[str]:
    """The trace as lines of text, without anything that steers a terminal but the colours of states, if wanted."""
    roots = tree(events)
    last = max((node.at + (node.duration or 0) for node, _, _ in _walk(roots)), default=0)
    yield f"trace {events[0].trace_id}  {len(events)} events in {span(last)}"
    for node, branch, _ in _walk(roots):
        head, *rest = (clean(part) for part in node.label)
        took = f"  ({span(node.duration)})" if node.duration is not None else ""
        facts = f"  {', '.join(rest)}" if rest else ""
        yield f"{'+' + span(node.at):>11}  {branch}{toned(head, node.state) if colours else head}{facts}{took}"


def _walk(roots: Sequence[Node]) -> Iterator[tuple[Node, str, str]]:
    """Every node, parents first, with the branch to draw before it and what its children's branches begin with."""
    waiting = [(node, "", "") for node in reversed(roots)]
    while waiting:
        node, branch, below = waiting.pop()
        yield node, branch, below
        children = [
            (
                child,
                f"{below}{'└─ ' if child is node.children[-1] else '├─ '}",
                below + ("   " if child is node.children[-1] else "│  "),
            )
            for child in node.children
        ]
        waiting += reversed(children)


def _as_json(node: Node) -> dict[str, Any]:
    return {
        "kind": node.kind,
        "label": list(node.label),
        "state": node.state,
        "at_ms": node.at / _US_PER_MS,
        "duration_ms": None if node.duration is None else node.duration / _US_PER_MS,
        "events": list(node.events),
        "children": [_as_json(child) for child in node.children],
    }
