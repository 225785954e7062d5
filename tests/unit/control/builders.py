"""Events of a made-up trace, and ways through its nodes."""

from collections.abc import Iterator, Sequence
from typing import Any

from rucher.control.trees import Node
from rucher.protocol.events import Event, Trust

START = 1_800_000_000_000_000


def event(seq: int, name: str, parent: str | None, at: int = 0, **body: Any) -> Event:
    """An event with id `e<seq>`, `name` being `source/type`, `at` microseconds after the start."""
    source, _, kind = name.partition("/")
    return Event(
        id=f"e{seq}",
        tenant="local",
        source=source,
        type=kind,
        principal="agent:scribe" if source == "agent" else f"owner:{source}",
        trust=Trust.AGENT if source == "agent" else Trust.OWNER,
        trace_id="T",
        parent_id=parent,
        addressed_to="group:cli:main" if source == "agent" else None,
        occurred_at=START + at,
        recorded_at=START + at + 1,
        seq=seq,
        body=body,
    )


def walk(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        yield from walk(node.children)


def find(kind: str, nodes: Sequence[Node]) -> list[Node]:
    return [node for node in walk(nodes) if node.kind == kind]
