"""Laws of `rucher rules`: it takes and refuses what the daemon would, names the place, and changes nothing."""

import json
from pathlib import Path

import pytest

from rucher.protocol.errors import BadInput
from tests.unit.cli.recorded import make_instance, record, rucher

MINE = '\n[[rule]]\nid = "mine"\nmatch = { text = "^note" }\nto = ["agent:talker", "agent:scribe"]\ncontinue = true\n'


def test_rules_are_listed_in_the_order_in_which_they_are_tried(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    instance.rules.write_text(instance.rules.read_text() + MINE)
    rows = json.loads(rucher(instance, "rules", "list", "--json").output)
    assert [row["id"] for row in rows] == ["r-scribe-addressed", "r-talker-addressed", "r-cli-reply", "mine", "default"]
    assert [row["order"] for row in rows] == [1, 2, 3, 4, 5]
    mine = rows[3]
    assert mine["match"] == {"text": "^note"}
    assert (mine["to"], mine["continue"], mine["generated"]) == (["agent:talker", "agent:scribe"], True, False)
    assert "text = ^note" in rucher(instance, "rules", "list").output


def test_a_good_file_is_told_with_its_version_and_stays_as_it_is(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    before = instance.rules.read_bytes()
    told = rucher(instance, "rules", "check").output
    assert "good, 3 rules, version" in told
    assert "lacks" not in told
    other = tmp_path / "other.toml"
    other.write_text('default = "agent:talker"\n')
    assert "it lacks 3 generated rules" in rucher(instance, "rules", "check", str(other)).output
    assert (instance.rules.read_bytes(), other.read_text()) == (before, 'default = "agent:talker"\n')


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('default = "agent:scrib"\n', ":1:"),
        ('default = "agent:scribe"\n[[rule]\n', ":2:"),
        ('default = "agent:scribe"\n\n[[rule]]\nid = "a"\nmatch = { text = "(" }\nto = "agent:scribe"\n', ":5:"),
    ],
)
def test_a_file_that_the_daemon_would_refuse_is_refused_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    instance = make_instance(tmp_path / "hive")
    instance.rules.write_text(text)
    for words in (["rules", "check"], ["rules", "list"]):
        result = rucher(instance, *words)
        assert isinstance(result.exception, BadInput)
        assert f"rules.toml{says}" in str(result.exception)


TERMS = '\n[[rule]]\nid = "team"\nmatch = { group = "g" }\nto = "agent:talker"\nengage = "pattern"\npattern = "hi"\n'
CASES = '[[case]]\nname = "notes"\nevent = { text = "note" }\nexpect = ["agent:talker"]\n'


def test_the_terms_of_a_rule_are_listed_where_it_has_some(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    instance.rules.write_text(instance.rules.read_text() + TERMS)
    row = json.loads(rucher(instance, "rules", "list", "--json").output)[3]
    assert (row["engage"], row["pattern"], row["senders"], row["session"]) == ("pattern", "hi", "all", "per-thread")
    assert "engage = pattern, pattern = hi" in rucher(instance, "rules", "list").output


def test_a_file_of_cases_is_tried_on_the_rules_and_says_what_goes_elsewhere(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    cases, better = tmp_path / "cases.toml", tmp_path / "better.toml"
    cases.write_text(CASES)
    better.write_text(instance.rules.read_text() + MINE.replace('["agent:talker", "agent:scribe"]', '"agent:talker"'))
    failed = rucher(instance, "rules", "test", str(cases))
    assert failed.exit_code == 1
    assert failed.output == (
        "FAIL  notes\n      expected  agent:talker\n      found     agent:scribe\n"
        "      because   agent:scribe by rule default\n0 of 1 go where they should\n"
    )
    passed = rucher(instance, "rules", "test", str(cases), "--rules", str(better), "--json")
    assert passed.exit_code == 0
    assert json.loads(passed.output) == [
        {
            "name": "notes", "passed": True, "expected": ["agent:talker"], "found": ["agent:talker"],
            "why": ["agent:talker by rule mine"],
        }
    ]  # fmt: skip


def test_an_instance_that_never_ran_has_no_history_of_its_rules(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    assert json.loads(rucher(story.instance, "rules", "history", "--json").output) == []
    assert "no rules were in force yet" in str(rucher(story.instance, "rules", "diff").exception)


def test_an_event_is_explained_with_what_was_recorded_of_it(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    told = json.loads(rucher(story.instance, "rules", "explain", story.trace_id[:10], "--json").output)
    assert told["event"] == story.message_id
    assert told["recorded"] == {"version": "abcdef0123456789", "said": ["agent:scribe by rule default"]}
    (explanation,) = told["explanations"]
    assert explanation["decision"] == ["agent:scribe by rule default"]
    assert explanation["rules"][0]["conditions"] == [
        {"key": "addressed_to", "wanted": "agent:scribe", "found": "nothing", "holds": False, "fault": ""}
    ]
