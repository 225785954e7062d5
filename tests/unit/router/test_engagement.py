"""Laws of the terms of a rule: whom an event wakes, who keeps it as context, and what becomes of it otherwise."""

from dataclasses import replace

import pytest

from rucher.protocol.events import Event, Trust
from rucher.router.decide import Decision, Dropped
from rucher.router.engagement import mentions
from rucher.router.registry import Engagement, Registry
from rucher.router.rules import Route, Rules
from tests.unit.router.builders import decided, dropped, event, routes, rules

TEAM = 'id = "team"\nmatch = {{ group = "main" }}\nto = {to}\n{terms}'
BOTH = '["agent:ana", "agent:bo"]'
HERE = "cli:main"


def team(terms: str, to: str = '"agent:ana"', *below: str) -> Rules:
    return rules(TEAM.format(to=to, terms=terms), *below)


def user(text: str = "hello", name: str = "user:cli:eve") -> Event:
    return event(text, principal=name, trust=Trust.PUBLIC)


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("@ana hello", True),
        ("hello @Ana", True),
        ("hello (@ANA), come", True),
        ("ask @ana.", True),
        ("ana, hello", False),
        ("mail to eve@ana.example", False),
        ("mail to eve@ana", False),
        ("@anabel hello", False),
        ("@ana-maria hello", False),
        ("@ana.maria hello", False),
        ("", False),
    ],
)
def test_a_mention_is_the_agent_s_name_as_a_word_after_an_at_sign(text: str, called: bool) -> None:  # noqa: FBT001 - a table
    assert mentions(event(text), "ana") is called


@pytest.mark.parametrize("named", [["ana"], ["x", "@Ana"], ["agent:ana"]])
def test_an_agent_is_mentioned_by_the_list_in_the_body_too(named: list[str]) -> None:
    found = event("hello")
    assert mentions(replace(found, body={**found.body, "mentions": named}), "ana")
    assert not mentions(replace(found, body={**found.body, "mentions": named}), "bo")
    assert not mentions(replace(found, body={**found.body, "mentions": "ana"}), "ana")


def test_an_event_that_is_addressed_to_the_agent_mentions_it() -> None:
    assert mentions(event("hello", addressed_to="agent:ana"), "ana")
    assert not mentions(event("hello", addressed_to="agent:bo"), "ana")


def test_in_a_rule_with_two_agents_the_one_that_is_mentioned_wakes() -> None:
    assert routes(event("@bo hello"), team('engage = "mention"', BOTH)) == (Route("team", "agent:bo"),)


def test_what_wakes_nobody_is_dropped_and_names_the_rule_and_does_not_go_to_the_default() -> None:
    decision = decided(event(), team('engage = "mention"'))
    assert decision == Decision(end=Dropped("rule 'team' holds, but ana is not mentioned", "team"))


def test_a_rule_that_wakes_nobody_leaves_the_event_to_the_rules_below() -> None:
    below = 'id = "below"\nmatch = { source = "cli" }\nto = "agent:bo"'
    assert routes(event(), team('engage = "mention"', '"agent:ana"', below)) == (Route("below", "agent:bo"),)


def test_context_goes_to_who_is_not_woken_and_does_not_take_the_event_away() -> None:
    below = 'id = "below"\nmatch = { source = "cli" }\nto = "agent:bo"'
    found = routes(event(), team('engage = "mention"\notherwise = "context"', '"agent:ana"', below))
    assert found == (Route("team", "agent:ana", "context"), Route("below", "agent:bo"))


def test_who_is_woken_by_one_rule_does_not_get_it_as_context_by_another() -> None:
    below = 'id = "below"\nmatch = { source = "cli" }\nto = "agent:ana"'
    assert routes(event(), team('engage = "mention"\notherwise = "context"', '"agent:ana"', below)) == (
        Route("below", "agent:ana"),
    )


def test_a_surface_beside_an_agent_gets_the_event_whatever_the_terms() -> None:
    found = routes(event(), team('engage = "mention"', '["agent:ana", "surface:cli"]'))
    assert found == (Route("team", "surface:cli"),)


def test_a_sticky_mention_engages_the_agent_in_that_room_and_thread_only() -> None:
    sticky = team('engage = "mention-sticky"', BOTH)
    engaged = Engagement("ana", HERE, "t")
    first = routes(event("@ana hello", thread="t"), sticky)
    assert first == (Route("team", "agent:ana", engaged=engaged),)
    later = Registry(engaged={engaged})
    assert routes(event("and now?", thread="t"), sticky, later) == (Route("team", "agent:ana"),)
    assert routes(event("@ana again", thread="t"), sticky, later) == (Route("team", "agent:ana"),)
    for elsewhere in (event("and now?"), event("and now?", thread="t", group="other")):
        assert Route("team", "agent:ana") not in routes(elsewhere, sticky, later)


def test_two_engaged_agents_do_not_wake_each_other_and_their_answers_reach_the_room() -> None:
    reply = 'id = "reply"\nmatch = { addressed_to = "group:cli:*" }\nto = "surface:cli"'
    sticky = team('engage = "mention-sticky"', BOTH, reply)
    both = Registry(engaged={Engagement("ana", HERE, ""), Engagement("bo", HERE, "")})
    answer = event("done", principal="agent:ana", trust=Trust.AGENT, addressed_to="group:cli:main")
    assert routes(answer, sticky, both) == (Route("reply", "surface:cli"),)
    asks = replace(answer, body={**answer.body, "text": "@bo what do you say?"})
    assert routes(asks, sticky, both) == (Route("team", "agent:bo"), Route("reply", "surface:cli"))


def test_a_pattern_engages_where_it_is_found() -> None:
    rule = team("engage = \"pattern\"\npattern = '(?i)\\bhelp\\b'")
    assert routes(event("Help me"), rule) == (Route("team", "agent:ana"),)
    assert "pattern" in dropped(event("helpless"), rule)


def test_known_senders_are_those_with_a_role_towards_this_agent() -> None:
    rule = team('senders = "known"', BOTH)
    eve = "user:cli:eve"
    assert "is not known to ana" in dropped(user(), rule)
    assert routes(user(), rule, Registry(roles={eve: {"bo": "member"}})) == (Route("team", "agent:bo"),)
    assert len(routes(user(), rule, Registry(roles={eve: {"": "member"}}))) == 2
    assert len(routes(event(principal="partner:x", trust=Trust.PARTNER), rule)) == 2


def test_owner_senders_are_who_was_verified_as_one_or_has_the_role() -> None:
    rule = team('senders = "owner"', BOTH)
    assert len(routes(event(), rule)) == 2
    assert "is no owner" in dropped(user(), rule)
    assert "is no owner" in dropped(user(), rule, Registry(roles={"user:cli:eve": {"": "admin"}}))
    assert routes(user(), rule, Registry(roles={"user:cli:eve": {"ana": "owner"}})) == (Route("team", "agent:ana"),)


def test_a_route_says_how_the_agent_s_sessions_are_cut() -> None:
    assert [route.session for route in routes(event(), team('session = "shared"', BOTH))] == ["shared", "shared"]


def test_an_expression_that_takes_too_long_faults_its_rule_for_that_event_alone() -> None:
    slow = 'id = "slow"\nmatch = { text = "(a|aa)+$" }\nto = "agent:slow"'
    below = 'id = "below"\nmatch = { source = "cli" }\nto = "agent:bo"'
    decision = decided(event("a" * 4000 + "b"), rules(slow, below))
    assert decision.routes == (Route("below", "agent:bo"),)
    (fault,) = decision.faults
    assert fault.rule == "slow"
    assert "took longer than 20 ms" in fault.reason
    assert decided(event("aaa"), rules(slow, below)) == Decision((Route("slow", "agent:slow"),))
