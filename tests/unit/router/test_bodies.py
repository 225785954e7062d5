"""Laws of the conditions on fields of the body: which values a path finds, and which tests they pass."""

from dataclasses import replace
from typing import Any

import pytest

from rucher.protocol.errors import BadInput
from rucher.router.bodies import values_at
from rucher.router.conditions import covers
from rucher.router.parse import parse
from rucher.router.rules import Rule
from tests.unit.router.builders import HEAD, event, rules

BODY = {
    "action": "opened",
    "count": 3,
    "nothing": None,
    "empty": [],
    "payload": {
        "action": "closed",
        "pull_request": {"draft": False, "number": 7, "labels": [{"name": "bug"}, {"name": "urgent"}]},
        "amount": 12.5,
        "title": "Invoice 2026-11",
        "items": [[1, 2], [3]],
    },
}


def rule_of(body: str) -> Rule:
    return rules(f'id = "a"\nmatch.body = {body}\nto = "agent:b"').rules[0]


def holds(body: str, found: dict[str, Any] | None = None) -> bool:
    return rule_of(body).holds(replace(event(), body=BODY if found is None else found))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{ action = "opened" }', True),
        ('{ action = "closed" }', False),
        ('{ action = ["closed", "opened"] }', True),
        ("{ count = 3 }", True),
        ("{ count = 3.0 }", True),
        ("{ count = true }", False),
        ('{ count = "3" }', False),
        ('{ "pull_request.draft" = false }', True),
        ('{ "pull_request.draft" = 0 }', False),
        ("{ pull_request = { draft = false, number = 7 } }", True),
        ("{ pull_request = { draft = false, number = 8 } }", False),
        ('{ "pull_request.labels.name" = "urgent" }', True),
        ('{ "pull_request.labels.name" = ["x", "bug"] }', True),
        ('{ "pull_request.labels.name" = "x" }', False),
        ("{ items = 3 }", True),
        ("{ amount = { above = 12 } }", True),
        ("{ amount = { above = 12.5 } }", False),
        ("{ amount = { at_least = 12.5, at_most = 12.5 } }", True),
        ("{ amount = { above = 1, below = 2 } }", False),
        ("{ items = { above = 1, below = 3 } }", True),
        ("{ title = { above = 1 } }", False),
        ("{ title = { matches = '^Invoice' } }", True),
        ("{ title = { matches = 'invoice' } }", False),
        ("{ count = { matches = '3' } }", False),
        ("{ title = { exists = true } }", True),
        ("{ empty = { exists = true } }", True),
        ("{ nothing = { exists = true } }", False),
        ("{ nothing = { exists = false } }", True),
        ("{ missing = { exists = false }, count = 3 }", True),
        ('{ "action.deeper" = "opened" }', False),
    ],
)
def test_a_condition_on_the_body_holds_exactly_when_a_value_passes(body: str, expected: bool) -> None:  # noqa: FBT001 - a table
    assert holds(body) is expected


def test_the_payload_is_looked_into_only_where_the_body_has_nothing() -> None:
    found = replace(event(), body=BODY)
    assert values_at(found, "action") == ["opened"]
    assert values_at(found, "amount") == [12.5]
    assert values_at(replace(found, body={"payload": "text"}), "amount") == []


REFUSALS = {
    "nothing asked": ("{}", "asks for nothing"),
    "a table that asks nothing": ("{ a = {} }", "asks for nothing"),
    "empty list": ("{ a = [] }", "must be text, a number"),
    "list of lists": ("{ a = [[1]] }", "must be text, a number"),
    "date": ("{ a = 2026-01-01 }", "must be text, a number"),
    "not a number to compare with": ('{ a = { above = "3" } }', "above must be a number"),
    "infinity": ("{ a = { above = inf } }", "above must be a number"),
    "unknown test": ("{ a = { above = 1, belov = 2 } }", "unknown key 'belov'; did you mean below"),
    "bad expression": ("{ a = { matches = '(' } }", "is not a regular expression"),
    "existence and more": ("{ a = { exists = true, above = 1 } }", "exists stands alone"),
    "empty part": ('{ "a..b" = 1 }', "has an empty part"),
    "no table": ('"opened"', "body must be a table"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_condition_on_the_body_that_means_nothing_is_refused_at_its_place(case: str) -> None:
    body, expected = REFUSALS[case]
    text = f'{HEAD}[[rule]]\nid = "a"\nto = "agent:b"\nmatch.body = {body}\n'
    with pytest.raises(BadInput, match=r"^rules\.toml:5:\d+: ") as refusal:
        parse(text, "rules.toml")
    assert expected in str(refusal.value)


def test_the_place_of_a_refused_field_is_its_own() -> None:
    text = f'{HEAD}[[rule]]\nid = "a"\nto = "agent:b"\n[rule.match.body]\naction = "x"\n"pull.number" = {{ above = "3" }}\n'
    with pytest.raises(BadInput, match=r"^rules\.toml:7:1: body\.pull\.number\.above must be a number"):
        parse(text, "rules.toml")


@pytest.mark.parametrize(
    ("general", "special", "expected"),
    [
        ('{ a = ["x", "y"] }', '{ a = "x" }', True),
        ('{ a = "x" }', '{ a = ["x", "y"] }', False),
        ("{ a = 1 }", "{ a = true }", False),
        ("{ a = { above = 3 } }", "{ a = { above = 3 } }", True),
        ("{ a = { above = 3 } }", "{ a = 4 }", False),
        ("{ a = 4 }", "{ a = { above = 3 } }", False),
    ],
)
def test_a_condition_on_the_body_covers_one_with_fewer_values(general: str, special: str, expected: bool) -> None:  # noqa: FBT001 - a table
    (earlier,), (later,) = rule_of(general).match, rule_of(special).match
    assert covers(earlier, later) is expected
