"""Laws of explanations: they agree with what is decided, and name the value that made each condition hold or not."""

from rucher.protocol.events import Trust
from rucher.router.explain import explain, lines_of, outcome
from rucher.router.registry import Registry
from tests.unit.router.builders import event, rules

NOTES = 'id = "notes"\nmatch = { source = "cli", text = "^note" }\nto = "agent:notes"'
TEAM = 'id = "team"\nmatch = { group = "main" }\nto = "agent:ana"\nengage = "mention"\notherwise = "context"'
BODY = 'id = "body"\nmatch.body = { amount = { above = 3 } }\nto = "agent:b"'


def test_each_condition_is_told_with_what_was_found() -> None:
    told = explain(event("hello"), rules(NOTES, BODY), Registry())
    notes, body = told.rules
    assert [(one.key, one.wanted, one.found, one.holds) for one in notes.conditions] == [
        ("source", "cli", '"cli"', True),
        ("text", "^note", '"hello"', False),
    ]
    assert (notes.fired, notes.said, notes.line) == (False, "does not hold", 2)
    assert [(one.key, one.wanted, one.found) for one in body.conditions] == [("body.amount", "above 3", "nothing")]


def test_a_rule_below_the_one_that_took_the_event_says_so() -> None:
    told = explain(
        event("note: x"),
        rules(NOTES, 'id = "all"\nmatch = { source = "cli" }\nto = "agent:b"\ngenerated = true'),
        Registry(),
    )
    assert [one.said for one in told.rules] == [
        "holds: sends to agent:notes", "holds, but rule notes above it took the event",
    ]  # fmt: skip
    assert outcome(told.decision) == ["agent:notes by rule notes"]


def test_terms_that_are_not_met_and_context_are_told() -> None:
    told = explain(event("hello"), rules(TEAM), Registry())
    assert told.rules[0].said == "holds: sends to agent:ana as context; ana is not mentioned"
    assert told.rules[0].fired
    assert outcome(told.decision) == ["agent:ana as context by rule team"]


def test_an_event_that_no_rule_is_asked_about_says_why() -> None:
    eve = event(principal="user:cli:eve", trust=Trust.PUBLIC)
    told = explain(eve, rules(NOTES), Registry(default_policy="ask"))
    assert told.barred == "user:cli:eve is not known here: give them a role, or block them"
    assert outcome(told.decision) == [f"held: {told.barred}"]


def test_a_rule_that_cannot_be_tried_is_told_with_its_fault() -> None:
    slow = 'id = "slow"\nmatch = { text = "(a|aa)+$" }\nto = "agent:slow"'
    told = explain(event("a" * 4000 + "b"), rules(slow), Registry())
    assert told.rules[0].said == "could not be tried"
    assert "took longer than 20 ms" in told.rules[0].conditions[0].fault
    assert outcome(told.decision)[0] == "agent:scribe by rule default"
    assert outcome(told.decision)[1].startswith("rule slow could not be tried: ")


def test_a_rule_is_found_by_the_line_on_which_it_begins() -> None:
    assert lines_of(rules(NOTES, BODY)) == {"notes": 2, "body": 6}
