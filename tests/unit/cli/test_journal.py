"""Laws of `rucher journal`: any change to what was sealed is found, and what was archived counts as if it had stayed."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rucher.daemon.lock import sole_daemon
from rucher.journal.cloudevents import event_from
from rucher.protocol.errors import BadInput, Corrupt
from tests.unit.cli.recorded import Story, grow, make_instance, record, rucher, say

VIEWS = (
    "SELECT * FROM runs ORDER BY 1",
    "SELECT * FROM hops ORDER BY 1",
    "SELECT * FROM sessions ORDER BY 1",
    "SELECT * FROM cursors ORDER BY 1",
)


def views(path: Path) -> list[list[tuple[object, ...]]]:
    with closing(sqlite3.connect(path)) as db:
        return [db.execute(query).fetchall() for query in VIEWS]


def tamper(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"DROP TRIGGER events_never_change; DROP TRIGGER events_never_vanish; {statement}")


def count(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        found: int = db.execute("SELECT count(*) FROM events").fetchone()[0]
        return found


def exported(story: Story, *options: str) -> list[dict[str, Any]]:
    result = rucher(story.instance, "journal", "export", *options)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_an_untouched_journal_is_good(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    sealed = count(story.instance.journal)
    say(story.instance, "later")
    told = json.loads(rucher(story.instance, "journal", "verify", "--json").output)
    assert told == {"events": sealed, "seals": 1, "unsealed": 1, "fault": "", "archived": 0, "ok": True}
    result = rucher(story.instance, "journal", "verify")
    assert (result.exit_code, result.output) == (0, f"good: {sealed} events under 1 seals, 1 not sealed yet\n")


def test_a_changed_event_and_a_removed_one_are_found(tmp_path: Path) -> None:
    for number, statement in enumerate(
        ("UPDATE events SET principal = 'owner:eve' WHERE seq = 3;", "DELETE FROM events WHERE seq = 5;")
    ):
        story = record(tmp_path / str(number))
        tamper(story.instance.journal, statement)
        result = rucher(story.instance, "journal", "verify")
        assert result.exit_code == 1
        assert result.output.startswith("broken: ")
        doctor = json.loads(rucher(story.instance, "doctor", "--json").output)
        assert [check["status"] for check in doctor if check["name"] == "seals"] == ["fail"]


def test_without_a_node_key_nothing_is_verified_and_none_is_made(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    story.instance.node_key.unlink()
    result = rucher(story.instance, "journal", "verify")
    assert isinstance(result.exception, BadInput)
    assert "there is no node key" in str(result.exception)
    assert not story.instance.node_key.exists()


def test_a_rebuild_gives_back_the_views_that_there_were(tmp_path: Path) -> None:
    story = record(tmp_path / "hive", waiting=True)
    path = story.instance.journal
    before = views(path)
    with closing(sqlite3.connect(path)) as db:
        db.executescript("DELETE FROM runs; UPDATE hops SET state = 'failed';")
    assert rucher(story.instance, "journal", "rebuild").output == f"folded {count(path)} events again\n"
    assert views(path) == before


def test_a_rebuild_is_refused_while_a_daemon_runs_and_where_no_journal_is(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    with sole_daemon(story.instance.lock):
        result = rucher(story.instance, "journal", "rebuild")
    assert isinstance(result.exception, BadInput)
    assert "pid " in str(result.exception)
    fresh = make_instance(tmp_path / "fresh")
    assert isinstance(rucher(fresh, "journal", "rebuild").exception, BadInput)
    assert not fresh.journal.exists()


def test_what_was_archived_is_verified_exported_traced_and_folded_as_before(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    grow(story, "x", "y")
    path = story.instance.journal
    before = exported(story), rucher(story.instance, "trace", story.trace_id).output, views(path)
    total = count(path)
    dry = rucher(story.instance, "journal", "archive", "--before", "2027-02-01", "--dry-run")
    assert dry.output.startswith("would archive ")
    assert count(path) == total
    with sole_daemon(story.instance.lock):  # a daemon may run
        told = json.loads(rucher(story.instance, "journal", "archive", "--before", "2027-02-01", "--json").output)
    assert (told["first_seq"], told["events"], told["held"]) == (1, total - count(path), "seal")
    assert told["events"] > 10
    assert len(list(story.instance.archive.glob("*.jsonl.gz"))) == 1
    verified = rucher(story.instance, "journal", "verify")
    assert (
        verified.output == f"good: {total} events under 3 seals, {told['events']} of them archived, 0 not sealed yet\n"
    )
    assert rucher(story.instance, "journal", "rebuild").output == f"folded {total} events again\n"
    assert (exported(story), rucher(story.instance, "trace", story.trace_id).output, views(path)) == before
    for known in (story.trace_id[:10], story.message_id):
        assert rucher(story.instance, "trace", known).output == before[1]
    again = rucher(story.instance, "journal", "archive", "--before", "2027-02-01")
    assert again.output.startswith("nothing to archive: the events from ")


def test_a_missing_segment_is_named_by_every_command_that_needs_it(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    grow(story, "x", "y")
    assert rucher(story.instance, "journal", "archive", "--keep-days", "0").output.startswith("nothing to archive")
    assert rucher(story.instance, "journal", "archive", "--before", "2027-02-01T00:00Z").exit_code == 0
    (segment,) = story.instance.archive.glob("*.jsonl.gz")
    segment.rename(tmp_path / "elsewhere")
    verified = rucher(story.instance, "journal", "verify")
    assert verified.exit_code == 1
    assert f"broken: the archive segment {segment} is missing" in verified.output
    for words in (("journal", "export"), ("journal", "rebuild"), ("trace", story.trace_id)):
        error = rucher(story.instance, *words).exception
        assert isinstance(error, Corrupt)
        assert str(segment) in str(error)


def test_an_export_holds_every_event_in_order_and_can_be_read_back(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    events = [event_from(record) for record in exported(story)]
    assert [event.seq for event in events] == list(range(1, count(story.instance.journal) + 1))
    assert next(event for event in events if event.id == story.message_id).source == "cli"
    assert {record["source"].partition("/")[0] for record in exported(story)} == {"rucher:hive"}
    chosen = exported(story, "--subject", "ev.*.agent.>")
    assert [record["type"] for record in chosen] == ["answer"]
    assert exported(story, "--after", "5") == exported(story)[5:]
    middle = exported(story)[7]["recordedtime"]
    later = [record for record in exported(story) if record["recordedtime"] >= middle]
    assert exported(story, "--since", middle) == later
    assert exported(story, "--until", middle) == exported(story)[: -len(later)]
    file = tmp_path / "events.jsonl"
    assert rucher(story.instance, "journal", "export", "-o", str(file)).output == ""
    assert [json.loads(line) for line in file.read_text().splitlines()] == exported(story)


def test_an_event_that_no_cloudevent_can_hold_is_named_and_left_out(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    total = count(story.instance.journal)
    tamper(story.instance.journal, "UPDATE events SET principal = '' WHERE seq = 3;")
    result = rucher(story.instance, "journal", "export")
    assert result.exit_code == 1
    assert "event 3 " in result.stderr
    assert len(result.stdout.splitlines()) == total - 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("archive",), "either --before DATE or --keep-days N"),
        (("archive", "--before", "2027-01-01", "--keep-days", "3"), "either --before DATE or --keep-days N"),
        (("archive", "--before", "soon"), "'soon' is no date; write a day such as 2027-01-31"),
        (("export", "--since", "2027-13-01"), "is no date"),
        (("export", "--output", "."), "is a folder"),
        (("export", "--subject", "ev..x"), "ev..x"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    story = record(tmp_path / "hive")
    result = rucher(story.instance, "journal", *words)
    assert isinstance(result.exception, BadInput)
    assert told in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_store_of_another_version_is_not_archived_beside_its_daemon(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    grow(story, "x", "y")
    with closing(sqlite3.connect(story.instance.journal)) as db:
        db.execute("UPDATE meta SET value = 'another' WHERE key = 'views'")
        db.commit()
    result = rucher(story.instance, "journal", "archive", "--before", "2027-02-01")
    assert isinstance(result.exception, BadInput)
    assert "another version" in str(result.exception)
    assert not story.instance.archive.exists()
