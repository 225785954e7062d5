"""Laws of where a talk among agents ends: visibly, and with the last words still reaching people."""

from dataclasses import replace
from typing import Any

import pytest

from rucher.protocol.events import Event, Trust
from rucher.router.decide import Dropped
from rucher.router.loops import chain
from rucher.router.rules import Route
from tests.unit.router.builders import decided, dropped, event, routes, rules

TALK = rules(
    'id = "agents"\nmatch = { addressed_to = "agent:*", type = "message" }\nto = ["agent:a", "agent:b", "agent:c"]',
    'id = "reply"\nmatch = { addressed_to = "group:*" }\nto = "surface:cli"',
)


def emission(chain_so_far: str, to: str = "agent:x", **body: Any) -> Event:
    """What the last agent of the chain says, the chain given as one letter an agent."""
    via, own = list(chain_so_far[:-1]), chain_so_far[-1]
    said = event("hello", principal=f"agent:{own}", trust=Trust.AGENT, addressed_to=to, source="agent")
    return replace(said, body={**said.body, "via": via, "depth": len(via) + 1, **body})


def stopped(chain_so_far: str) -> str:
    decision = decided(emission(chain_so_far), TALK)
    return decision.end.reason if isinstance(decision.end, Dropped) else ""


def test_two_agents_exchange_six_messages_in_turn_and_no_seventh() -> None:
    assert [stopped("abababab"[:length]) for length in range(1, 7)] == [""] * 6
    assert stopped("abababa") == "pair cap: a and b have exchanged 6 messages in turn"
    assert stopped("cabababa").startswith("pair cap")
    assert stopped("abacaba") == ""


def test_three_agents_go_three_rounds_and_no_fourth() -> None:
    assert [stopped(("abc" * 4)[:length]) for length in range(1, 10)] == [""] * 9
    assert stopped("abcabcabca") == "cycle cap: a, b, c have gone 3 rounds"
    assert stopped("abcabcacba") == ""


def test_a_trace_has_a_hop_limit_whoever_takes_part() -> None:
    assert decided(emission("a", depth=24), TALK).end is None
    assert dropped(emission("a", depth=25), TALK).startswith("hop limit: this is 25 hops")


def test_a_chain_that_names_its_own_sender_counts_it_once() -> None:
    assert chain(emission("ab")) == chain(emission("ab", via=["a", "b"])) == ["a", "b"]
    assert chain(emission("ab", via=["agent:a"])) == ["a", "b"]


@pytest.mark.parametrize("via", [None, "abababa", [1, 2], {"a": 1}, ["a"] * 1000])
def test_a_chain_that_makes_no_sense_disturbs_no_decision(via: object) -> None:
    decided(emission("a", via=via, depth="deep"), TALK)


def test_people_still_read_what_was_said_last() -> None:
    both = rules('id = "all"\nmatch = { principal = "agent:*" }\nto = ["agent:b", "surface:cli"]')
    decision = decided(emission("abababa", to="group:cli:main"), both)
    assert decision.routes == (Route("all", "surface:cli"),)
    assert isinstance(decision.end, Dropped)
    assert decision.end.reason.startswith("pair cap")
    assert routes(emission("abababa", to="group:cli:main"), TALK) == (Route("reply", "surface:cli"),)


def test_another_instance_is_no_way_around_a_loop_stop() -> None:
    away = rules('id = "away"\nmatch = { addressed_to = "agent:*" }\nto = "instance:laptop"')
    assert dropped(emission("abababa"), away).startswith("pair cap")


@pytest.mark.parametrize("kind", ["answer", "failure"])
def test_automatic_mail_is_not_answered(kind: str) -> None:
    answer = replace(emission("a", to="group:cli:main", automatic=True), type=kind)
    assert dropped(answer, TALK) == "automatic mail is not answered"
    assert routes(replace(answer, type="notify"), TALK) == (Route("reply", "surface:cli"),)


def test_a_turn_that_ends_without_words_is_recorded_and_not_delivered() -> None:
    silent = replace(emission("a", to="group:cli:main", silent=True), type="answer")
    assert dropped(silent, TALK) == "agent:a gives no answer"
    told = replace(silent, body={**silent.body, "why": "nothing to add"})
    assert dropped(told, TALK) == "nothing to add"


def test_what_an_agent_asked_another_is_answered_though_the_message_was_automatic() -> None:
    reply = replace(emission("ab", to="agent:a", automatic=True), type="answer")
    found = rules('id = "a"\nmatch = { addressed_to = "agent:a" }\nto = "agent:a"')
    assert routes(reply, found) == (Route("a", "agent:a"),)


def test_a_person_s_automatic_message_is_routed_as_any_other() -> None:
    said = event("out of office")
    assert routes(replace(said, body={**said.body, "automatic": True}), TALK) == (Route("default", "agent:scribe"),)
