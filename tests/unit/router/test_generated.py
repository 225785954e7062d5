import pytest

from rucher.protocol.errors import BadInput
from rucher.protocol.events import Trust
from rucher.router.generated import ensure_generated
from rucher.router.parse import parse
from rucher.router.rules import Route
from tests.unit.router.builders import HEAD, event, routes


def test_each_agent_and_surface_gets_its_rule_once() -> None:
    once = ensure_generated(HEAD, ["scribe", "cos"], ["cli"])
    assert [rule.id for rule in parse(once, "r").rules] == ["r-cos-addressed", "r-scribe-addressed", "r-cli-reply"]
    assert all(rule.generated for rule in parse(once, "r").rules)
    assert ensure_generated(once, ["cos", "scribe", "scribe"], ["cli"]) == once


def test_an_agent_added_later_gets_its_rule_and_an_edited_rule_is_left_alone() -> None:
    mine = HEAD + '[[rule]]\nid = "r-cos-addressed"\nmatch = { addressed_to = "agent:cos" }\nto = "agent:scribe" # mine'
    grown = ensure_generated(mine, ["cos", "new"], [])
    assert grown.startswith(mine + "\n")
    assert [(rule.id, rule.to) for rule in parse(grown, "r").rules] == [
        ("r-cos-addressed", ("agent:scribe",)),
        ("r-new-addressed", ("agent:new",)),
    ]


def test_the_lines_end_as_the_owner_s_do() -> None:
    grown = ensure_generated(HEAD.replace("\n", "\r\n"), ["a"], [])
    assert grown.count("\n") == grown.count("\r\n") > 1


def test_generated_rules_deliver_questions_and_answers_and_never_wake_the_sender() -> None:
    rules = parse(ensure_generated(HEAD, ["scribe", "cos"], ["cli"]), "r")
    asked = event(principal="agent:cos", trust=Trust.AGENT, addressed_to="agent:scribe", source="agent")
    assert routes(asked, rules) == (Route("r-scribe-addressed", "agent:scribe"),)
    answer = event(principal="agent:cos", trust=Trust.AGENT, addressed_to="group:cli:main", source="agent")
    assert routes(answer, rules) == (Route("r-cli-reply", "surface:cli"),)
    itself = event(principal="agent:cos", trust=Trust.AGENT, addressed_to="agent:cos", source="agent")
    assert routes(itself, rules) == ()


def test_a_text_that_cannot_be_grown_is_refused_in_one_line() -> None:
    with pytest.raises(BadInput, match=r"^rules.toml: rules cannot be added to rule = \[...\]"):
        ensure_generated(HEAD + "rule = []\n", ["a"], [])
    with pytest.raises(BadInput, match=r"^rules.toml:1:8: not valid TOML"):
        ensure_generated("default", ["a"], [])
