"""Laws of the tree of a trace: every event is in it once, under its cause, with the time since the trace began."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rucher.control.trees import tree
from rucher.protocol.events import Event
from tests.unit.control.builders import event, find, walk

STORY = [
    event(1, "cli/message", None, text="hello"),
    event(2, "rucher/hop.made", "e1", 100, event="e1", rule="r-a", rules="0123456789abcdef", to="agent:scribe"),
    event(3, "rucher/hop.acknowledged", "e2", 200, hop="e2", session="S"),
    event(4, "rucher/run.created", "e2", 300, run="R", agent="scribe", model="m"),
    event(5, "rucher/run.acquired", "e2", 301, run="R", worker="W1"),
    event(6, "rucher/step.intended", "e2", 400, run="R", step="1", kind="tool_call", request={"tool": "shell"}),
    event(7, "rucher/run.waiting", "e2", 450, run="R", step="1", reason="unsure", **{"as": "uncertain"}),
    event(8, "agent/question", "e2", 460, run="R", text="did it run?"),
    event(9, "rucher/run.acquired", "e2", 500, run="R", worker="W2"),
    event(10, "rucher/step.recorded", "e2", 600, run="R", step="1", kind="tool_call", result={"ok": True, "text": "x"}),
    event(11, "rucher/run.finished", "e2", 700, run="R", state="done", reason=""),
    event(12, "agent/answer", "e2", 700, run="R", text="done"),
    event(13, "rucher/hop.made", "e12", 800, event="e12", rule="r-cli-reply", rules="0", to="surface:cli"),
    event(14, "rucher/delivery.sending", "e13", 900, hop="e13", attempt=1),
    event(15, "rucher/delivery.deferred", "e13", 950, hop="e13", attempt=1, reason="away"),
    event(16, "rucher/delivery.sending", "e13", 1000, hop="e13", attempt=2),
    event(17, "rucher/delivery.delivered", "e13", 1100, hop="e13", receipt={"file": "main.jsonl"}),
    event(18, "rucher/session.stopped", "e2", 1200, session="S", reason="a corrupt file"),
    event(19, "rucher/route.dropped", "e12", 1300, event="e12", reason="no rule"),
    event(20, "rucher/run.spent", "e2", 1400, run="R", step="1", used={"tokens": 7}, released={}),
]  # fmt: skip

GOVERNED = [
    event(1, "cli/message", None, text="hello"),
    event(2, "rucher/hop.made", "e1", 100, event="e1", rule="r-a", rules="0", to="agent:scribe"),
    event(3, "rucher/run.created", "e2", 200, run="R", agent="scribe", model="m"),
    event(4, "rucher/run.acquired", "e2", 210, run="R", worker="W1"),
    event(5, "rucher/run.steered", "e2", 220, run="R", text="be brief"),
    event(6, "rucher/run.paused", "e2", 230, run="R"),
    event(7, "rucher/run.parked", "e2", 240, run="R", step="1", reason="its owner paused it"),
    event(8, "rucher/run.resumed", "e2", 250, run="R"),
    event(9, "rucher/run.migrated", "e2", 260, run="R", engine_version=2, prompt_hash="", tools_hash=""),
    event(10, "rucher/budget.reserved", "e2", 270, run="R", step="1", accounts=["R"], amounts={"turns": 1}),
    event(11, "rucher/step.intended", "e2", 270, run="R", step="1", kind="model_call", request={"messages": 1}),
    event(12, "rucher/step.recorded", "e2", 280, run="R", step="2", kind="spawn", result={"run": "C"}, request={"a": 1}),
    event(13, "rucher/run.created", "R", 280, run="C", agent="talker", model="m"),
    event(14, "rucher/run.waiting", "e2", 290, run="R", step="3", reason="may I?", **{"as": "wait_human"}),
    event(15, "rucher/timer.fired", "e2", 300, run="R", step="3", item=0, outcome={"approved": False, "reason": "late"}),
    event(16, "rucher/signal.sent", "e2", 310, run="R", topic="t", outcome={"approved": True, "reason": ""}),
    event(17, "rucher/wait.over", "e2", 320, run="R", step="3"),
    event(18, "rucher/artifact.stored", "e2", 320, run="R", digest="sha256:0", bytes=9),
    event(19, "rucher/run.cancelling", "e2", 330, run="R", reason="enough"),
    event(20, "rucher/run.created", "e2", 340, run="F", agent="scribe", model="m", forked={"run": "R", "step": "2"}),
    event(21, "rucher/run.finished", "e2", 350, run="R", state="cancelled", reason="its owner cancelled it"),
]  # fmt: skip
"""A run that was steered, paused, resumed, migrated and cancelled, that began another one, waited, and was forked."""


def story_places(story: list[Event]) -> list[tuple[int, int]]:
    return [(int(story is GOVERNED), place) for place in range(len(story))]


def test_a_whole_story_is_one_tree_in_the_order_of_its_causes() -> None:
    (message,) = tree(STORY)
    (hop,) = message.children
    assert [node.kind for node in hop.children] == ["run", "note"]
    (run,) = find("run", [hop])
    assert [node.kind for node in run.children] == ["step", "wait", "emission", "resumed", "emission"]
    answer = run.children[-1]
    assert [node.kind for node in answer.children] == ["hop", "note"]
    assert [node.state for node in answer.children[0].children] == ["deferred", "delivered"]


@pytest.mark.parametrize(
    ("kind", "parts", "state", "at", "duration"),
    [
        ("message", ["message from owner:cli", "by cli", "trust owner", '"hello"'], "", 0, None),
        ("hop", ["rule r-a", "rules 0123456789ab", "to agent:scribe", "acknowledged", "session S"], "", 99, None),
        ("run", ["run R", "done", "scribe", "m", "7 tokens"], "done", 299, 400),
        ("step", ["step 1", "tool_call", "shell {}", "ok: x"], "done", 399, 200),
        ("wait", ["waits for its owner's word about step 1", "unsure"], "waiting", 449, None),
        ("resumed", ["taken up again", "by worker W2"], "", 499, None),
        ("delivery", ["delivery deferred", "attempt 1", "away"], "deferred", 899, 50),
    ],
)
def test_each_node_says_what_happened_and_when(
    kind: str, parts: list[str], state: str, at: int, duration: int | None
) -> None:
    node = find(kind, tree(STORY))[0]
    assert (list(node.label), node.state, node.at, node.duration) == (parts, state, at, duration)


def test_orders_waits_children_and_forks_hang_beneath_their_run() -> None:
    (run, *_) = find("run", tree(GOVERNED))
    assert [(node.kind, node.label[0]) for node in run.children] == [
        ("order", "order: told"),
        ("order", "order: pause"),
        ("note", "stands still before step 1"),
        ("order", "order: go on"),
        ("note", "goes on with engine 2"),
        ("step", "step 1"),
        ("step", "step 2"),
        ("run", "run C"),
        ("wait", "waits at step 3"),
        ("order", "order: cancel"),
        ("run", "run F"),
    ]
    (wait,) = find("wait", [run])
    assert (wait.state, wait.duration) == ("", 30)
    assert [node.label for node in wait.children] == [
        ("timer fired", "at step 3", "refused: late"),
        ("approved", "by owner:rucher"),
    ]


@pytest.mark.parametrize(
    ("kind", "place", "parts"),
    [
        ("order", 0, ["order: told", "by owner:rucher", '"be brief"']),
        ("order", 3, ["order: cancel", "by owner:rucher", '"enough"']),
        ("run", 0, ["run R", "cancelled", "scribe", "m", "its owner cancelled it"]),
        ("run", 2, ["run F", "unfinished", "scribe", "m", "forked from run R at step 2"]),
        ("step", 1, ["step 2", "spawn", "begins run C"]),
    ],
)
def test_each_order_says_who_gave_it_and_each_run_where_it_came_from(kind: str, place: int, parts: list[str]) -> None:
    assert list(find(kind, tree(GOVERNED))[place].label) == parts


def test_no_event_of_a_run_is_drawn_as_its_bare_type() -> None:
    heads = [node.label[0] for node in walk(tree(GOVERNED))]
    assert [
        head for head in heads if head.startswith(("run ", "wait ", "budget ", "artifact ", "timer ")) and len(head) > 6
    ] == ["timer fired"]


@given(
    st.sampled_from([STORY, GOVERNED]).flatmap(lambda story: st.sets(st.sampled_from(story_places(story)), min_size=1))
)
def test_every_event_of_any_part_of_a_trace_is_in_exactly_one_node(chosen: set[tuple[int, int]]) -> None:
    events = [(STORY, GOVERNED)[which][place] for which, place in sorted(chosen)]
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
