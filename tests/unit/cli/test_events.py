"""Laws of `rucher events`: the newest in order, what was asked for, and with --follow all that comes, once."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rucher.protocol.errors import BadInput
from tests.unit.cli.recorded import QUESTION, make_instance, process, record, rucher, say

if TYPE_CHECKING:
    import subprocess


def keys(output: str) -> list[str]:
    return [event["body"]["text"] for event in json.loads(output)]


def test_the_newest_events_are_shown_oldest_first(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    say(instance, "a", "b", "c", "d")
    assert keys(rucher(instance, "events", "--json", "--limit", "2").output) == ["c", "d"]
    assert keys(rucher(instance, "events", "--json", "--after", "1", "--limit", "2").output) == ["b", "c"]
    assert keys(rucher(instance, "events", "--json").output) == ["a", "b", "c", "d"]


def test_a_pattern_finds_old_events_behind_many_others(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    say(story.instance, *map(str, range(1200)))
    found = json.loads(rucher(story.instance, "events", "--json", "--subject", "ev.*.agent.*", "--limit", "1").output)
    assert [event["type"] for event in found] == ["answer"]


def test_json_carries_ids_as_text_and_times_as_iso_8601(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    first = json.loads(rucher(story.instance, "events", "--json").output)[0]
    assert (first["id"], first["trace_id"], first["trust"]) == (story.message_id, story.trace_id, "owner")
    assert first["recorded_at"].endswith("Z")
    assert first["body"]["text"] == QUESTION


def test_what_a_message_says_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    shown = rucher(record(tmp_path / "hive").instance, "events").output
    assert "[bold]harbour[/bold]" in shown
    assert "\\x1b[2J" in shown
    assert "\x1b" not in shown


def test_without_a_journal_it_says_how_to_get_one(tmp_path: Path) -> None:
    result = rucher(make_instance(tmp_path / "hive"), "events")
    assert isinstance(result.exception, BadInput)
    assert "rucher up" in str(result.exception)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("start", [[], ["--after", "0"]])
def test_following_shows_what_was_and_then_each_new_event_once(tmp_path: Path, start: list[str]) -> None:
    instance = make_instance(tmp_path / "hive")
    say(instance, "a", "b")
    child = process("events", "--follow", "--json", "--subject", "ev.*.cli.message", *start, folder=instance.root)
    try:
        assert [_next(child), _next(child)] == ["a", "b"]
        for key in "cdefgh":
            say(instance, key)
            assert _next(child) == key
        say(instance, "i", "j")
        assert [_next(child), _next(child)] == ["i", "j"]
    finally:
        child.send_signal(2)
        _, err = child.communicate(timeout=30)
    assert (child.returncode, err.strip()) == (130, "")


def _next(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return str(json.loads(child.stdout.readline())["body"]["text"])
