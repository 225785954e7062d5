"""Laws of `rucher events`: the newest in order, what was asked for, and with --follow all that comes, once."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rucher.protocol.errors import BadInput
from tests.unit.cli.recorded import QUESTION, drop, grow, make_instance, process, record, rucher, say

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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--type", "hop.made"], "hop.made"),
        (["--subject", "ev.*.rucher.delivery.>"], "delivery.sending delivery.delivered"),
        (["--subject", "ev.local.*.hop.*"], "hop.made hop.acknowledged hop.made"),
        (["--subject", "*.*.agent.answer"], "answer"),
        (["--subject", "ev.other.>"], ""),
        (["--subject", "ev.*.rucher.HOP.made"], ""),
        (["--subject", "ev.*.agent.>", "--type", "hop.made"], ""),
    ],
)
def test_what_is_asked_for_is_shown_and_nothing_else(tmp_path: Path, words: list[str], said: str) -> None:
    story = record(tmp_path / "hive")
    for more in ([], ["--after", "0"], ["--trace", story.trace_id], ["--trace", story.trace_id, "--after", "0"]):
        found = json.loads(rucher(story.instance, "events", "--json", *words, *more).output)
        kinds = [event["type"] for event in found]
        assert kinds == said.split() or (words == ["--type", "hop.made"] and kinds == ["hop.made"] * 2)


def test_a_source_with_dots_in_its_types_is_found_whole(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    drop(instance, "charge.succeeded", "charge.dispute.created", "ping")
    for pattern, kinds in (
        ("ev.*.stripe.>", ["charge.succeeded", "charge.dispute.created", "ping"]),
        ("ev.*.stripe.charge.>", ["charge.succeeded", "charge.dispute.created"]),
        ("ev.*.stripe.*", ["ping"]),
        ("ev.*.*.*.dispute.*", ["charge.dispute.created"]),
    ):
        found = json.loads(rucher(instance, "events", "--json", "--subject", pattern).output)
        assert [event["type"] for event in found] == kinds


@pytest.mark.parametrize(
    "pattern", ["ev..x", "ev.>.x", "ev.*.str*.>", "nothing", "ev.local", "a.b.c.d", "", "ev.a b.c.d"]
)
@pytest.mark.parametrize("more", [[], ["--follow"], ["--after", "0"], ["--json"]])
def test_a_pattern_that_fits_nothing_is_refused_in_one_line(tmp_path: Path, pattern: str, more: list[str]) -> None:
    result = rucher(make_instance(tmp_path / "hive"), "events", "--subject", pattern, *more)
    assert isinstance(result.exception, BadInput)
    assert str(result.exception).startswith("subject pattern")
    assert "\n" not in str(result.exception)


def test_a_time_span_cuts_at_the_moment_of_recording(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    all_of_it = json.loads(rucher(story.instance, "events", "--json").output)
    third, fifth = all_of_it[2]["recorded_at"], all_of_it[4]["recorded_at"]
    shown = json.loads(rucher(story.instance, "events", "--json", "--since", third, "--until", fifth).output)
    assert [event["seq"] for event in shown] == [3, 4]
    assert json.loads(rucher(story.instance, "events", "--json", "--until", "2001-01-01").output) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--since", "yesterday"], "is no date"),
        (["--until", "2027-13-01"], "is no date"),
        (["--since", "1h", "--until", "2h"], "exchange them"),
        (["--follow", "--until", "1h"], "leave --until out"),
        (["--trace", "ZZZZ"], "there is no trace"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    result = rucher(record(tmp_path / "hive").instance, "events", *words)
    assert isinstance(result.exception, BadInput)
    assert said in str(result.exception)


def test_what_was_archived_is_shown_with_what_was_not(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    grow(story, "a", "b")
    before = json.loads(rucher(story.instance, "events", "--json").output)
    assert rucher(story.instance, "journal", "archive", "--before", "2027-02-01").exit_code == 0
    for more in ([], ["--after", "0"]):
        assert json.loads(rucher(story.instance, "events", "--json", *more).output) == before
    answers = json.loads(rucher(story.instance, "events", "--json", "--type", "answer", "--limit", "1").output)
    assert [event["type"] for event in answers] == ["answer"]
    assert json.loads(rucher(story.instance, "events", "--json", "--limit", "3").output) == before[-3:]
    assert json.loads(rucher(story.instance, "events", "--json", "--after", "2", "--limit", "3").output) == before[2:5]
