"""Laws of the tree of a trace: every event is in it once, under its cause, with the time since the trace began."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rucher.control.trees import Node, tree
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
        trust=Trust.OWNER,
        trace_id="T",
        parent_id=parent,
        addressed_to="group:cli:main" if source == "agent" else None,
        occurred_at=START + at,
        recorded_at=START + at + 1,
        seq=seq,
        body=body,
    )


STORY = [
    event(1, "cli/message", None, text="hello"),
    event(2, "rucher/hop.made", "e1", 100, event="e1", rule="r-a", rules="0123456789abcdef", to="agent:scribe"),
    event(3, "rucher/hop.acknowledged", "e2", 200, hop="e2", session="S"),
    event(4, "rucher/run.created", "e2", 300, run="R", agent="scribe", model="m"),
    event(5, "rucher/run.acquired", "e2", 301, run="R", worker="W1"),
    event(6, "rucher/step.intended", "e2", 400, run="R", step="1", kind="tool_call", request={"tool": "shell"}),
    event(7, "rucher/run.waiting", "e2", 450, run="R", step="1", reason="unsure"),
    event(8, "agent/question", "e2", 460, run="R", text="did it run?"),
    event(9, "rucher/run.acquired", "e2", 500, run="R", worker="W2"),
    event(10, "rucher/step.recorded", "e2", 600, run="R", step="1", kind="tool_call", result={"ok": True, "text": "x"},
          usage={"input_tokens": 3, "output_tokens": 4}),
    event(11, "rucher/run.finished", "e2", 700, run="R", state="done", reason=""),
    event(12, "agent/answer", "e2", 700, run="R", text="done"),
    event(13, "rucher/hop.made", "e12", 800, event="e12", rule="r-cli-reply", rules="0", to="surface:cli"),
    event(14, "rucher/delivery.sending", "e13", 900, hop="e13", attempt=1),
    event(15, "rucher/delivery.deferred", "e13", 950, hop="e13", attempt=1, reason="away"),
    event(16, "rucher/delivery.sending", "e13", 1000, hop="e13", attempt=2),
    event(17, "rucher/delivery.delivered", "e13", 1100, hop="e13", receipt={"file": "main.jsonl"}),
    event(18, "rucher/session.stopped", "e2", 1200, session="S", reason="a corrupt file"),
    event(19, "rucher/route.dropped", "e12", 1300, event="e12", reason="no rule"),
]  # fmt: skip


def walk(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        yield from walk(node.children)


def find(kind: str, nodes: Sequence[Node]) -> list[Node]:
    return [node for node in walk(nodes) if node.kind == kind]


def test_a_whole_story_is_one_tree_in_the_order_of_its_causes() -> None:
    (message,) = tree(STORY)
    (hop,) = message.children
    assert [node.kind for node in hop.children] == ["note", "run", "note"]
    (run,) = find("run", [hop])
    assert [node.kind for node in run.children] == ["step", "wait", "emission", "resumed", "emission"]
    answer = run.children[-1]
    assert [node.kind for node in answer.children] == ["hop", "note"]
    assert [node.state for node in answer.children[0].children] == ["deferred", "delivered"]


@pytest.mark.parametrize(
    ("kind", "parts", "state", "at", "duration"),
    [
        ("message", ["message from owner:cli", "by cli", "trust owner", '"hello"'], "", 0, None),
        ("hop", ["rule r-a", "rules 0123456789ab", "to agent:scribe"], "", 99, None),
        ("run", ["run R", "done", "scribe", "m", "7 tokens"], "done", 299, 400),
        ("step", ["step 1", "tool_call", "shell {}", "ok: x"], "done", 399, 200),
        ("wait", ["waits for its owner about step 1", "unsure"], "waiting", 449, None),
        ("resumed", ["taken up again", "by worker W2"], "", 499, None),
        ("delivery", ["delivery deferred", "attempt 1", "away"], "deferred", 899, 50),
    ],
)
def test_each_node_says_what_happened_and_when(
    kind: str, parts: list[str], state: str, at: int, duration: int | None
) -> None:
    node = find(kind, tree(STORY))[0]
    assert (list(node.label), node.state, node.at, node.duration) == (parts, state, at, duration)


@given(st.sets(st.sampled_from(range(len(STORY))), min_size=1))
def test_every_event_of_any_part_of_a_trace_is_in_exactly_one_node(chosen: set[int]) -> None:
    events = [STORY[place] for place in sorted(chosen)]
    nodes = list(walk(tree(events)))
    assert sorted(seq for node in nodes for seq in node.events) == [event.seq for event in events]
    assert [node for node in nodes if node.at < 0] == []


def test_a_run_that_is_not_finished_is_not_shown_as_done() -> None:
    (run,) = find("run", tree(STORY[:6]))
    assert (run.state, run.duration) == ("unfinished", None)
    assert find("step", tree(STORY[:6]))[0].state == "open"


def test_events_that_name_each_other_as_cause_are_shown_all_the_same() -> None:
    circle = [event(1, "cli/message", "e2", text="a"), event(2, "cli/message", "e1", text="b")]
    assert [seq for node in walk(tree(circle)) for seq in node.events] == [1, 2]


def test_a_chain_of_a_thousand_hops_is_a_tree_and_no_crash() -> None:
    chain = [event(n, "cli/message", f"e{n - 1}" if n > 1 else None, text="x") for n in range(1, 1001)]
    depth, nodes = 0, tree(chain)
    while nodes:
        depth, nodes = depth + 1, list(nodes[0].children)
    assert depth == 1000


def test_no_events_are_no_tree() -> None:
    assert tree([]) == []
