"""Wrong input gets one clear line and exit code 2, and nothing is lost or half-done."""

import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.hive import Hive, running, until


def refused(hive: Hive, *arguments: str, here: bool = True) -> str:
    done = hive.rucher(*arguments, here=here)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    with running(tmp_path) as started:
        yield started


def test_an_unknown_agent_is_refused_and_the_nearest_is_named(hive: Hive) -> None:
    before = len(hive.events())
    assert "scribe" in refused(hive, "send", "hello", "--agent", "scrbe")
    assert len(hive.events()) == before


def test_no_instance_here_says_how_to_make_one(hive: Hive, tmp_path: Path) -> None:
    assert "rucher new" in refused(hive, "--dir", str(tmp_path / "nowhere"), "events", here=False)


def test_a_second_daemon_on_one_instance_is_refused_with_the_holders_name(hive: Hive) -> None:
    assert hive.process is not None
    assert f"pid {hive.process.pid}" in refused(hive, "up")
    assert hive.told("send", "still there", "--wait")["answer"] == "echo: still there"


def test_a_broken_rules_file_names_line_and_column_and_the_old_rules_go_on(hive: Hive) -> None:
    rules = hive.root / "rules.toml"
    good = rules.read_text()
    rules.write_text(good + '\n[[rule]]\nid = "x\n')
    until(lambda: hive.events("ev.*.*.rules.refused"), "the refusal was not recorded")
    (refusal,) = hive.events("ev.*.*.rules.refused")
    line = len(good.splitlines()) + 3
    assert f"{line}:" in refusal["body"]["reason"] or f"line {line}" in refusal["body"]["reason"]
    assert "column" in refusal["body"]["reason"] or f"{line}:" in refusal["body"]["reason"]
    assert hive.told("send", "hello", "--wait")["status"] == "answered"
    assert "rules.toml" in refused(hive, "rules", "check")
    rules.write_text(good)


def test_a_daemon_does_not_start_on_broken_rules_and_changes_nothing(tmp_path: Path) -> None:
    hive = Hive(tmp_path)
    (hive.root / "rules.toml").write_text(
        'default = "agent:scribe"\n[[rule]]\nid = "a"\nto = "agent:nobody"\nmatch = { text = "(" }\n'
    )
    before = sorted(path.name for path in hive.state.iterdir())
    assert "rules.toml" in refused(hive, "up")
    assert [name for name in sorted(path.name for path in hive.state.iterdir()) if name != "daemon.lock"] == before


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    hive = Hive(tmp_path)
    with socket.create_server(("127.0.0.1", hive.port)):
        assert f"port {hive.port}" in refused(hive, "up")


def test_sending_without_a_daemon_says_how_to_start_one(tmp_path: Path) -> None:
    assert "rucher up" in refused(Hive(tmp_path), "send", "hello")


def test_new_refuses_a_folder_that_holds_something(tmp_path: Path) -> None:
    hive = Hive(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    refused(hive, "new", str(tmp_path / "full"), here=False)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["file"]


def test_a_damaged_session_stops_alone_visibly_and_goes_on_when_it_is_mended(hive: Hive) -> None:
    hive.told("send", "one", "--group", "broken", "--wait")
    (session,) = (hive.state / "sessions").iterdir()
    hive.stop()
    (session / "inbound.db").write_bytes(b"garbage" * 1000)
    hive.start()
    assert "inbound.db" in refused(hive, "send", "two", "--group", "broken", "--wait")
    assert hive.told("send", "other", "--wait")["answer"] == "echo: other"
    (session / "inbound.db").unlink()
    until(lambda: hive.delivered("broken") == ["echo: one", "echo: two"], "the session did not go on")


def test_a_session_file_that_cannot_be_written_stops_that_session_only(hive: Hive) -> None:
    hive.told("send", "one", "--group", "broken", "--wait")
    (session,) = (hive.state / "sessions").iterdir()
    hive.stop()
    database = sqlite3.connect(session / "inbound.db")
    database.execute("DROP TABLE inbound")
    database.close()
    hive.start()
    refused(hive, "send", "two", "--group", "broken", "--wait")
    assert hive.told("send", "other", "--wait")["answer"] == "echo: other"


def test_a_mistyped_command_suggests_the_right_one(hive: Hive) -> None:
    assert "events" in hive.rucher("evnts").stderr


def test_an_unknown_run_or_trace_is_one_line(hive: Hive) -> None:
    refused(hive, "trace", "7ZZZZZ")
    refused(hive, "runs", "7ZZZZZ")
    refused(hive, "run", "resolve", "7ZZZZZ", "1", "ran")
