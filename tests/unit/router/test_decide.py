from dataclasses import replace

import pytest

from rucher.protocol.events import Event, Trust
from rucher.router.rules import Route
from tests.unit.router.builders import dropped, event, routes, rules

ONE = 'id = "one"\nmatch = {{ {match} }}\nto = "agent:one"'


@pytest.mark.parametrize(
    ("match", "found", "holds"),
    [
        ('subject = "ev.*.cli.message"', event(), True),
        ('subject = "ev.other.cli.message"', event(), False),
        ('subject = "ev.*.mail.>"', event(), False),
        ('source = "cli"', event(), True),
        ('source = "clix"', event(), False),
        ('type = "message"', event(), True),
        ('type = "tick"', event(), False),
        ('principal = "owner:*"', event(), True),
        ('principal = "owner:an"', event(), False),
        ('principal = "user:*"', event(), False),
        ('trust = "member"', event(trust=Trust.OWNER), True),
        ('trust = "member"', event(trust=Trust.MEMBER), True),
        ('trust = "member"', event(trust=Trust.AGENT), False),
        ('addressed_to = "agent:x"', event(addressed_to="agent:x"), True),
        ('addressed_to = "agent:*"', event(addressed_to="agent:x"), True),
        ('addressed_to = "*"', event(), False),
        ('group = "web-*"', event(group="web-1"), True),
        ('group = "web-*"', event(group="we"), False),
        ('text = "(?i)^note:"', event("Note: buy milk"), True),
        ('text = "(?i)^note:"', event("a note: buy milk"), False),
        ('text = "milk"', event("buy milk"), True),
        ('text = "needle"', event("x" * 4090 + "needle"), True),
        ('text = "needle"', event("x" * 4091 + "needle"), False),
        ('source = "cli", type = "message", group = "main"', event(), True),
        ('source = "cli", type = "message", group = "other"', event(), False),
    ],
)
def test_a_rule_fires_exactly_when_all_its_conditions_hold(match: str, found: Event, holds: bool) -> None:  # noqa: FBT001 - a table
    (rule,) = rules(ONE.format(match=match)).rules
    assert rule.holds(found) is holds
    sent = routes(found, rules(ONE.format(match=match)))
    assert (sent == (Route("one", "agent:one"),)) is holds


@pytest.mark.parametrize("body", [{}, {"text": None, "group": 3}, {"text": ["x"]}])
def test_a_body_without_text_or_group_meets_no_condition_on_them(body: dict[str, object]) -> None:
    found = replace(event(), body=body)
    assert routes(found, rules(ONE.format(match='text = "."'))) == (Route("default", "agent:scribe"),)
    assert routes(found, rules(ONE.format(match='group = "*"'))) == (Route("default", "agent:scribe"),)


def test_two_catch_all_rules_give_one_answer_unless_the_first_says_continue() -> None:
    first = 'id = "a"\nmatch = { subject = "ev.*.cli.>" }\nto = "agent:a"'
    second = 'id = "b"\nmatch = { subject = "ev.>" }\nto = "agent:b"'
    assert routes(event(), rules(first, second)) == (Route("a", "agent:a"),)
    assert routes(event(), rules(first + "\ncontinue = true", second)) == (Route("a", "agent:a"), Route("b", "agent:b"))


def test_the_same_destination_twice_in_one_decision_is_one_route_of_the_first_rule() -> None:
    found = rules(
        'id = "a"\nmatch = { source = "cli" }\nto = ["agent:x", "agent:y"]\ncontinue = true',
        'id = "b"\nmatch = { type = "message" }\nto = ["agent:y", "agent:z"]',
    )
    assert routes(event(), found) == (Route("a", "agent:x"), Route("a", "agent:y"), Route("b", "agent:z"))


def test_an_emission_of_an_agent_that_no_rule_covers_never_falls_on_the_default() -> None:
    for asked in (
        event(principal="agent:cos", trust=Trust.AGENT, addressed_to="agent:other"),
        event(principal="agent:cos", trust=Trust.OWNER),
        event(principal="system:x", trust=Trust.AGENT),
    ):
        assert dropped(asked, rules()).startswith("no rule covers")


def test_what_is_addressed_to_its_own_sender_is_dropped_whatever_the_rules_say() -> None:
    itself = event(principal="agent:a", trust=Trust.AGENT, addressed_to="agent:a")
    all_of_it = rules('id = "all"\nmatch = { subject = "ev.>" }\nto = "agent:b"')
    assert dropped(itself, all_of_it) == "agent:a addressed this to itself"


def test_an_answer_is_not_sent_back_to_its_sender_by_a_catch_all_and_still_reaches_its_group() -> None:
    found = rules(
        'id = "all"\nmatch = { subject = "ev.>" }\nto = "agent:a"',
        'id = "r-cli-reply"\nmatch = { addressed_to = "group:cli:*" }\nto = "surface:cli"\ngenerated = true',
    )
    answer = event(principal="agent:a", trust=Trust.AGENT, addressed_to="group:cli:main", source="agent")
    assert routes(answer, found) == (Route("r-cli-reply", "surface:cli"),)
