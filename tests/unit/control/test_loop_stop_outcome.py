"""A loop stop keeps agents from being woken; the answer that people wait for is still on its way to them."""

from dataclasses import replace

from rucher.control.outcomes import outcome
from rucher.protocol.events import Draft, Event, Trust, committed, control_event
from tests.unit.router.builders import draft

ASKED = draft("hello")


def told(kind: str, body: dict[str, object], seq: int) -> Event:
    record = control_event(
        tenant="home", part="x", kind=kind, key=str(seq), trace_id=ASKED.trace_id, occurred_at=1, body=body
    )
    return committed(record, seq, 1)


def answer() -> Draft:
    said = draft("done", "answer", principal="agent:a", trust=Trust.AGENT, source="agent")
    return replace(said, type="answer", trace_id=ASKED.trace_id, body={**said.body, "in_reply_to": ASKED.id})


def test_an_answer_that_wakes_no_agent_any_more_is_delivered_all_the_same() -> None:
    reply = committed(answer(), 2, 1)
    made = told("hop.made", {"event": reply.id, "to": "surface:cli"}, 3)
    stopped = told("route.dropped", {"event": reply.id, "reason": "pair cap"}, 4)
    on_its_way = [committed(ASKED, 1, 1), reply, made, stopped]
    assert outcome(on_its_way, ASKED.id) is None
    ended = outcome([*on_its_way, told("delivery.delivered", {"hop": made.id, "receipt": {}}, 5)], ASKED.id)
    assert ended is not None
    assert (ended.status, ended.answer) == ("answered", "done")


def test_an_answer_that_has_no_way_to_people_is_undelivered() -> None:
    reply = committed(answer(), 2, 1)
    stopped = told("route.dropped", {"event": reply.id, "reason": "no rule covers it"}, 3)
    ended = outcome([committed(ASKED, 1, 1), reply, stopped], ASKED.id)
    assert ended is not None
    assert ended.status == "undelivered"
