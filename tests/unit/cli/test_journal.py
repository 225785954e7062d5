"""Laws of `rucher journal`: any change to a sealed event is found, and a rebuild gives the views that there were."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from rucher.daemon.lock import sole_daemon
from rucher.protocol.errors import BadInput
from tests.unit.cli.recorded import make_instance, record, rucher, say

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


def test_an_untouched_journal_is_good(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    say(story.instance, "later")
    told = json.loads(rucher(story.instance, "journal", "verify", "--json").output)
    assert told == {"events": 16, "seals": 1, "unsealed": 1, "fault": "", "ok": True}
    result = rucher(story.instance, "journal", "verify")
    assert (result.exit_code, result.output) == (0, "good: 16 events under 1 seals, 1 not sealed yet\n")


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
    assert rucher(story.instance, "journal", "rebuild").output == "folded 23 events again\n"
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
