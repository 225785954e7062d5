"""Laws of `rucher rules`: it takes and refuses what the daemon would, names the place, and changes nothing."""

import json
from pathlib import Path

import pytest

from rucher.protocol.errors import BadInput
from tests.unit.cli.recorded import make_instance, rucher

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
