from dataclasses import replace
from typing import Any

from rucher.control.outcomes import outcome
from rucher.protocol.events import Draft, Event, Trust, committed, control_event, message

SAID = message(
    tenant="home",
    source="cli",
    key="k",
    principal="owner:ana",
    trust=Trust.OWNER,
    text="hi",
    group="main",
    occurred_at=1,
)


def note(kind: str, parent: str, **body: Any) -> Draft:
    return control_event(
        tenant="home", part="test", kind=kind, key=f"{kind}:{body}", trace_id=SAID.trace_id, occurred_at=1,
        parent_id=parent, body=body,
    )  # fmt: skip


def hop(event: Draft, to: str) -> Draft:
    return note("hop.made", event.id, event=event.id, to=to)


def reply(source: str = "agent") -> Draft:
    return Draft(
        id="REPLY", tenant="home", source=source, type="answer", principal="agent:a", trust=Trust.AGENT,
        trace_id=SAID.trace_id, occurred_at=1, body={"text": "hello", "in_reply_to": SAID.id},
    )  # fmt: skip


def found(*drafts: Draft) -> tuple[str, str] | None:
    trace: list[Event] = [committed(draft, seq, 1) for seq, draft in enumerate((SAID, *drafts), 1)]
    became = outcome(trace, SAID.id)
    return None if became is None else (became.status, became.answer)


def test_a_copy_of_the_answer_that_fails_elsewhere_says_nothing_about_the_room() -> None:
    room, copy = hop(reply(), "surface:cli"), hop(reply(), "webhook:crm")
    begun = (hop(SAID, "agent:a"), reply(), room, copy, note("delivery.failed", copy.id, hop=copy.id, reason="gone"))
    assert found(*begun) is None
    assert found(*begun, note("delivery.delivered", room.id, hop=room.id)) == ("answered", "hello")
    assert found(*begun, note("delivery.failed", room.id, hop=room.id, reason="x")) == ("undelivered", "hello")


def test_a_copy_that_arrives_elsewhere_is_no_answer_in_the_room() -> None:
    room, copy = hop(reply(), "surface:cli"), hop(reply(), "webhook:crm")
    assert found(reply(), room, copy, note("delivery.delivered", copy.id, hop=copy.id)) is None


def test_an_answer_from_another_instance_counts_and_a_copy_of_the_message_that_fails_does_not() -> None:
    away, copy = hop(SAID, "agent:scribe"), hop(SAID, "webhook:crm")
    failed = note("delivery.failed", copy.id, hop=copy.id, reason="gone")
    assert found(away, copy, failed) is None
    answer = reply("laptop")
    room = hop(answer, "surface:cli")
    arrived = note("delivery.delivered", room.id, hop=room.id)
    sent = note("delivery.sending", away.id, hop=away.id, attempt=1)
    assert found(away, sent, copy, failed, answer, room, arrived) == ("answered", "hello")


def test_nobody_but_an_agent_of_this_instance_or_where_the_message_went_answers_it() -> None:
    here, forged = hop(SAID, "agent:scribe"), reply("laptop")
    room = hop(forged, "surface:cli")
    assert found(here, forged, room, note("delivery.delivered", room.id, hop=room.id)) is None


def test_what_only_looks_like_a_record_of_the_control_plane_changes_nothing() -> None:
    made = hop(SAID, "agent:scribe")
    for kind in ("hop.made", "route.dropped", "hop.acknowledged"):
        assert found(made, replace(note(kind, SAID.id), source="laptop")) is None


def test_an_agent_elsewhere_that_refuses_is_a_failure_with_its_reason() -> None:
    away = hop(SAID, "agent:scribe")
    assert found(away, note("delivery.failed", away.id, hop=away.id, reason="401")) == ("failed", "401")
