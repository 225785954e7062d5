"""Laws of an owner's test cases: they are tried as the router decides, and what is wrong with them is told."""

import pytest

from rucher.protocol.errors import BadInput
from rucher.protocol.events import Trust
from rucher.router.cases import read_cases, try_cases
from tests.unit.router.builders import rules

TEAM = """\
id = "team"
match = { group = "team" }
to = ["agent:a", "agent:b"]
engage = "mention-sticky"
senders = "known"
otherwise = "context"
"""


def verdicts(text: str) -> list[bool]:
    return [result.passed for result in try_cases(read_cases(text, "cases.toml", "home"), rules(TEAM))]


def case(event: str, expect: str, more: str = "") -> str:
    return f'[[case]]\nname = "c"\nevent = {event}\nexpect = {expect}\n{more}\n'


EVE = '{ group = "team", principal = "user:cli:eve", text = "@a hi" }'


@pytest.mark.parametrize(
    "text",
    [
        case("{}", '["agent:scribe"]'),
        case('{ principal = "agent:x" }', "[]"),
        case('{ principal = "agent:x" }', '"dropped"'),
        case(EVE, '["agent:b as context", "agent:a as context"]'),
        case(EVE, '["agent:a", "agent:b as context"]', 'known = ["user:cli:eve"]'),
        case(EVE, '["agent:b as context", "agent:a"]', 'roles = { "user:cli:eve" = { a = "member" } }'),
        case(EVE, '"held"', 'policy = "ask"'),
        case(EVE, '"dropped"', 'policy = "strict"'),
        case(EVE, '"dropped"', 'blocked = ["user:cli:eve"]'),
        case(
            '{ group = "team" }', '["agent:a as context", "agent:b"]', 'engaged = [{ agent = "b", room = "cli:team" }]'
        ),
        case('{ body = { group = "team", mentions = ["b"] } }', '["agent:a as context", "agent:b"]'),
    ],
)
def test_a_case_passes_when_the_event_goes_exactly_where_it_expects(text: str) -> None:
    assert verdicts(text) == [True]


@pytest.mark.parametrize("expect", ['["agent:a"]', '["agent:a as context"]', '["agent:a", "agent:b"]', "[]", '"held"'])
def test_a_case_fails_when_the_event_goes_anywhere_else(expect: str) -> None:
    assert verdicts(case(EVE, expect)) == [False]


def test_a_principal_is_trusted_as_its_kind_is_unless_the_case_says_otherwise() -> None:
    kinds = {"owner:x": Trust.OWNER, "agent:x": Trust.AGENT, "partner:x": Trust.PARTNER, "user:cli:x": Trust.PUBLIC}
    for principal, trust in kinds.items():
        (found,) = read_cases(case(f'{{ principal = "{principal}" }}', "[]"), "c", "home")
        assert found.event.trust is trust
    (found,) = read_cases(case('{ principal = "user:cli:x", trust = "member" }', "[]"), "c", "home")
    assert found.event.trust is Trust.MEMBER


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cases.toml: case: Field required; write [[case]] tables"),
        ("case = []", "cases.toml: case: List should have at least 1 item"),
        ("[[case]", "cases.toml:1:7: not valid TOML"),
        ('[[case]]\nname = "x"\nexpect = []', "cases.toml: case 'x': event: Field required"),
        ("[[case]]\nevent = {}\nexpect = []", "cases.toml: case number 1: name: Field required"),
        (case('{ texts = "x" }', "[]"), "cases.toml: case 'c': event.texts: Extra inputs"),
        (case('{ trust = "boss" }', "[]"), "cases.toml: case 'c': event.trust: 'boss' is none of public, tool"),
        (case("{}", "[]", 'policy = "never"'), "cases.toml: case 'c': policy: String should match"),
        (case("{}", "[3]"), "cases.toml: case 'c': expect"),
        ("case = [3]", "cases.toml: case number 1: the table: Input should be a valid dictionary"),
    ],
)
def test_a_case_that_makes_no_sense_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(BadInput) as refusal:
        read_cases(text, "cases.toml", "home")
    assert str(refusal.value).startswith(says)
