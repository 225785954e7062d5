"""Laws of how a trace shows deliveries in parts, the owner's word and who was told."""

from rucher.control.outcomes import outcome
from rucher.control.trees import Node, tree
from tests.unit.control.builders import event


def labels(nodes: list[Node] | tuple[Node, ...]) -> list[str]:
    return [", ".join(node.label) for node in nodes]


def test_each_attempt_at_a_part_the_owner_s_word_and_who_was_told_stand_under_the_hop() -> None:
    (root,) = tree(
        [
            event(1, "cli/message", None, text="hello"),
            event(2, "rucher/hop.made", "e1", event="e1", rule="r", rules="0", to="surface:chat"),
            event(3, "rucher/delivery.sending", "e2", hop="e2", part=1, parts=2, attempt=1),
            event(4, "rucher/delivery.delivered", "e2", hop="e2", part=1, parts=2, receipt={"id": 7}),
            event(5, "rucher/delivery.sending", "e2", hop="e2", part=2, parts=2, attempt=1),
            event(6, "rucher/delivery.uncertain", "e2", hop="e2", part=2, parts=2, reason="reset"),
            event(7, "rucher/delivery.told", "e2", hops=["e2"], session="S", text="it was not delivered"),
            event(
                8, "rucher/delivery.resolved", "e2", hop="e2", part=2, parts=2, verdict="not-delivered", by="owner:ana"
            ),
            event(9, "rucher/delivery.sending", "e2", hop="e2", part=2, parts=2, attempt=2),
            event(10, "rucher/delivery.delivered", "e2", hop="e2", part=2, parts=2, receipt={"id": 8}),
        ]
    )
    (hop,) = root.children
    assert labels(hop.children) == [
        'delivery delivered, part 1 of 2, attempt 1, receipt {"id": 7}',
        "delivery uncertain, part 2 of 2, attempt 1, reset",
        "delivery told, session S",
        'delivery delivered, part 2 of 2, attempt 2, receipt {"id": 8}',
    ]
    assert labels(hop.children[1].children) == [
        "order: this is what became of it, part 2, verdict not-delivered, by owner:ana"
    ]
    assert sum(len(node.events) for node in (root, hop, *hop.children, *hop.children[1].children)) == 10


def test_a_message_is_answered_once_the_last_part_of_its_answer_is_delivered() -> None:
    trace = [
        event(1, "cli/message", None, text="hello"),
        event(2, "agent/answer", None, text="long", in_reply_to="e1"),
        event(3, "rucher/hop.made", "e2", event="e2", rule="r", rules="0", to="surface:chat"),
        event(4, "rucher/delivery.delivered", "e3", hop="e3", part=1, parts=2, receipt={}),
    ]
    assert outcome(trace, "e1") is None
    told = outcome([*trace, event(5, "rucher/delivery.delivered", "e3", hop="e3", part=2, parts=2, receipt={})], "e1")
    assert told is not None
    assert told.status == "answered"
