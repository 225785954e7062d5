"""Laws of the tree of a trace where agents speak with each other: what was held, dropped, asked, answered and delivered."""

import pytest

from rucher.control.trees import Node, tree
from rucher.protocol.events import Event
from tests.unit.control.builders import event, find, walk

MADE = {"rules": "0123456789abcdef", "rule": "r-a"}

ASKED = [
    event(1, "schedule/fire", None, schedule="morning"),
    event(2, "rucher/schedule.fired", "e1", 10, schedule="morning"),
    event(3, "rucher/hop.made", "e1", 20, event="e1", to="agent:cos", **MADE),
    event(4, "rucher/run.created", "e3", 30, run="A", agent="cos", model="m"),
    event(5, "rucher/run.waiting", "e3", 40, run="A", step="2", reason="waits for agent:legal", **{"as": "event"}),
    event(6, "agent/ask", "e3", 41, run="A", text="may we?", reply_to_run="A", reply_topic="reply:e6"),
    event(7, "rucher/hop.made", "e6", 50, event="e6", to="agent:legal", **MADE),
    event(8, "rucher/run.created", "e7", 60, run="B", agent="legal", model="m"),
    event(9, "rucher/run.finished", "e7", 70, run="B", state="done", reason=""),
    event(10, "agent/answer", "e7", 71, run="B", text="yes", answers="e6"),
    event(11, "rucher/hop.made", "e10", 80, event="e10", to="agent:cos", **MADE),
    event(12, "rucher/signal.sent", "e11", 90, topic="reply:e6", outcome={"text": "yes"}),
    event(13, "rucher/run.acquired", "e3", 100, run="A", worker="W"),
    event(14, "rucher/wait.over", "e3", 110, run="A", step="2"),
    event(15, "agent/notify", "e3", 120, run="A", text="done"),
]
"""A schedule wakes an agent, which asks another one and goes on with its answer."""

ROUTED = [
    event(1, "mail/message", None, text="hello"),
    event(2, "rucher/user.seen", "e1", 1, principal="user:mail:eve", room="mail:main"),
    event(
        3,
        "rucher/route.held",
        "e1",
        2,
        event="e1",
        principal="user:mail:eve",
        room="mail:main",
        reason="unknown sender",
    ),
    event(4, "rucher/rule.faulted", "e1", 3, event="e1", rule="r-b", reason="bad number"),
    event(5, "rucher/hop.made", "e1", 4, event="e1", to="agent:cos", mode="context", session="shared", **MADE),
    event(6, "rucher/hop.made", "e1", 5, event="e1", to="instance:paris", **MADE),
    event(7, "rucher/delivery.sending", "e6", 6, hop="e6", attempt=1, part=1, parts=2, surface="paris"),
    event(8, "rucher/delivery.sending", "e6", 7, hop="e6", attempt=1, part=2, parts=2, surface="paris"),
    event(9, "rucher/delivery.delivered", "e6", 8, hop="e6", part=1, receipt={"id": "x"}),
    event(10, "rucher/delivery.uncertain", "e6", 9, hop="e6", part=2, reason="cut off"),
    event(11, "rucher/delivery.resolved", "e6", 10, hop="e6", part=2, verdict="delivered", by="owner:ana"),
    event(12, "rucher/hop.retried", "e6", 11, hop="e6", by="owner:ana"),
    event(13, "rucher/route.dropped", None, 12, event="e1", reason="hop limit"),
]


def heads(nodes: tuple[Node, ...] | list[Node]) -> list[str]:
    return [node.label[0] for node in nodes]


def only(kind: str, events: list[Event]) -> Node:
    (node,) = find(kind, tree(events))
    return node


def test_an_ask_its_answer_and_the_run_that_goes_on_are_one_tree_to_any_depth() -> None:
    (fire,) = tree(ASKED)
    assert heads(fire.children) == ["schedule fired", "rule r-a"]
    asking = fire.children[1].children[0]
    assert heads(asking.children) == ["waits at step 2", "ask from agent:scribe", "notify from agent:scribe"]
    answering = asking.children[1].children[0].children[0]
    (answer,) = answering.children
    assert "for ask e6" in answer.label
    (signal,) = answer.children[0].children
    assert signal.kind == "signal"
    assert signal.label[:2] == ('"yes"', "is the answer to ask e6")


def test_what_was_held_dropped_or_failed_says_so_beneath_the_event_that_it_is_about() -> None:
    (message,) = tree(ROUTED)
    assert [(node.label[0], node.state) for node in message.children if node.kind == "note"] == [
        ("user seen", "seen"),
        ("held until an admin or owner knows the sender", "held"),
        ("a rule failed and was passed over", "failed"),
        ("goes nowhere", "dropped"),
    ]
    held, faulted = message.children[1:3]
    assert held.label[1:] == ("unknown sender", "principal user:mail:eve", "room mail:main")
    assert faulted.label[1:] == ("bad number", "rule r-b")


def test_each_part_of_a_delivery_is_a_node_with_its_own_end_and_the_owners_word_beneath_it() -> None:
    first, second = find("delivery", tree(ROUTED))
    assert first.label == ("delivery delivered", "part 1 of 2", "attempt 1", 'receipt {"id": "x"}')
    assert (second.label[1], second.state, second.duration) == ("part 2 of 2", "uncertain", 2)
    assert second.children[0].label == (
        "order: this is what became of it",
        "part 2",
        "verdict delivered",
        "by owner:ana",
    )


def test_hops_say_when_they_wake_nobody_and_when_they_leave_the_instance() -> None:
    context, remote = find("hop", tree(ROUTED))
    assert context.label[2:] == ("to agent:cos", "as context: wakes nobody", "session shared")
    assert remote.label[2:] == ("to instance:paris", "on another instance")


@pytest.mark.parametrize("story", [ASKED, ROUTED])
@pytest.mark.parametrize("missing", range(13))
def test_without_any_one_of_its_events_every_other_event_is_still_there_once(story: list[Event], missing: int) -> None:
    events = story[:missing] + story[missing + 1 :]
    nodes = list(walk(tree(events)))
    assert sorted(seq for node in nodes for seq in node.events) == [one.seq for one in events]


def test_a_message_from_another_instance_names_the_trace_that_it_goes_on_from() -> None:
    came = event(1, "instance/message", None, text="hello", trace="OTHER")
    assert "goes on from trace OTHER" in only("message", [came]).label
