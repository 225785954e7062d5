"""What is lost or moved behind the daemon's back is noticed, said, and never repeated or sealed over."""

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

from tests.fakes.hive import Hive, running, until

SHELL = r"""
[[rule]]
on = "user"
match = "^sh (?P<command>.*)"
call = [{ tool = "shell", arguments = { command = "{command}" } }]

[[rule]]
on = "user"
match = "^slow"
delay_ms = 20000
answer = "slow done"

[[rule]]
on = "result"
answer = "result: {result}"

[[rule]]
answer = "echo: {text}"
"""


def only_session(hive: Hive) -> Path:
    (session,) = (hive.state / "sessions").iterdir()
    return session


def test_a_command_whose_mailbox_was_lost_is_put_to_the_owner_and_not_run_again(tmp_path: Path) -> None:
    hive = Hive(tmp_path, SHELL)
    hive.start()
    hive.told("send", "sh echo ran >> log; sleep 30")
    log = Path()
    until(lambda: any((hive.state / "sessions").glob("*/workspace/log")), "the command must begin")
    log = only_session(hive) / "workspace" / "log"
    hive.kill()
    for name in ("inbound.db", "inbound.db-journal", "outbound.db", "outbound.db-journal"):
        (only_session(hive) / name).unlink(missing_ok=True)
    hive.start()
    until(lambda: "waiting" in hive.rucher("runs").stdout, "the run must wait for its owner")
    assert log.read_text() == "ran\n"
    (run,) = hive.told("runs")
    assert hive.rucher("run", "resolve", run["run_id"], "3", "ran").returncode == 0
    until(lambda: len(hive.delivered()) == 2, "the run must go on")
    assert log.read_text() == "ran\n"
    hive.stop()


def test_whoever_waits_in_a_session_that_its_agent_damaged_is_told(tmp_path: Path) -> None:
    with running(tmp_path, SHELL) as hive:
        for text in ("sh head -c 5000 /dev/urandom > /session/outbound.db", "the second", "the third"):
            told = hive.rucher("send", text, "--wait", "--timeout", "30")
            assert told.returncode == 2, (text, told.stdout, told.stderr)
            assert "outbound.db" in told.stderr
        assert hive.told("send", "hello", "--group", "other", "--wait")["answer"] == "echo: hello"


def test_a_journal_that_lost_sealed_events_is_not_sealed_over(tmp_path: Path) -> None:
    with running(tmp_path, SHELL) as hive:
        hive.told("send", "hello", "--wait")
    database = sqlite3.connect(hive.state / "rucher.db", isolation_level=None)
    database.executescript(
        "DROP TRIGGER events_never_vanish; DELETE FROM events WHERE seq > 3; DELETE FROM seals WHERE last_seq > 3"
    )
    database.close()
    for _ in range(2):
        refused = hive.rucher("up")
        assert refused.returncode == 2
        assert "lost events" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    assert hive.rucher("journal", "verify").returncode == 1
    for path in hive.state.glob("rucher.db*"):
        path.unlink()
    assert "lost events" in hive.rucher("up").stderr


def test_a_daemon_whose_instance_was_moved_stops_and_says_so(tmp_path: Path) -> None:
    hive = Hive(tmp_path, SHELL)
    hive.start()
    assert hive.process is not None
    moved = hive.root.with_name("moved")
    hive.root.rename(moved)
    assert hive.process.wait(30) == 2
    hive.process = None
    assert "was moved" in (moved / "terminal.log").read_text()
    assert not hive.root.exists()


def test_a_waiting_command_is_sent_away_with_a_reason_when_the_daemon_stops(tmp_path: Path) -> None:
    hive = Hive(tmp_path, SHELL)
    hive.start()
    told: list[subprocess.CompletedProcess[str]] = []
    waiting = threading.Thread(target=lambda: told.append(hive.rucher("send", "slow", "--wait")))
    waiting.start()
    until(lambda: hive.events("ev.*.*.step.intended"), "the message must be worked on")
    hive.stop()
    waiting.join(30)
    assert told[0].returncode == 3
    assert "stopping" in told[0].stderr or "kept" in told[0].stderr
    assert "Traceback" not in (hive.state / "daemon.log").read_text()


def test_a_user_without_a_home_is_told_what_to_set(tmp_path: Path) -> None:
    hive = Hive(tmp_path, SHELL)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}  # noqa: TID251 - a child's
    command = [sys.executable, "-m", "rucher.cli", "--dir", str(hive.root), "doctor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
