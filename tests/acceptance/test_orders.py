"""What an owner does to runs and to the store, through the command line, on a real daemon with a scripted model."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.hive import Hive, resting, running, until
from tests.fakes.postgres import shared

SCRIPT = r"""
[[rule]]
on = "user"
match = "^work"
delay_ms = 8000
call = [{ tool = "read_file", arguments = { path = "missing.txt" } }]

[[rule]]
on = "user"
match = "^write"
call = [{ tool = "write_file", arguments = { path = "note.txt", content = "hello" } }]

[[rule]]
on = "user"
match = "^hang"
delay_ms = 60000
answer = "never"

[[rule]]
on = "result"
answer = "done: {result}"

[[rule]]
answer = "echo: {text}"
"""


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    with running(tmp_path, SCRIPT) as started:
        yield started


def begun(hive: Hive, text: str) -> str:
    """The run that this message causes, once the model was asked."""
    trace = hive.told("send", text)["trace_id"]

    found: list[str] = []

    def has_begun() -> bool:
        found[:] = [row["run_id"] for row in hive.told("runs", "--state", "running") if row["trace_id"] == trace]
        return bool(found)

    until(has_begun, "the run did not begin")
    return found[0]


def ordered(hive: Hive, *words: str) -> str:
    """The one line that an order answers."""
    done = hive.rucher("run", *words)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    return line


def refused(hive: Hive, *words: str) -> str:
    done = hive.rucher(*words)
    assert done.returncode == 2, (done.stdout, done.stderr)
    (line,) = done.stderr.splitlines()
    return line


def state_of(hive: Hive, run: str) -> str:
    return str(hive.told("runs", run)["state"])


def test_a_paused_run_stands_still_until_it_is_resumed(hive: Hive) -> None:
    run = begun(hive, "work on it")
    assert "stops before its next step" in ordered(hive, "pause", run[:10])
    until(lambda: state_of(hive, run) == "paused", "it was not paused")
    assert [row["run_id"] for row in hive.told("runs", "--state", "paused")] == [run]
    assert hive.told("send", "meanwhile", "--wait")["answer"] == "echo: meanwhile"
    assert hive.delivered() == ["echo: meanwhile"]
    assert "goes on" in ordered(hive, "resume", run)
    until(lambda: len(hive.delivered()) == 2, "it did not go on")
    drawn = hive.rucher("trace", hive.told("runs", run)["trace_id"]).stdout
    for said in (
        "order: pause  by owner:",
        "stands still before step",
        "order: go on  by owner:",
        "answer from agent:scribe",
    ):
        assert said in drawn


def test_a_run_reads_what_its_owner_tells_it_before_its_next_turn(hive: Hive) -> None:
    run = begun(hive, "work on it")
    assert "before its next turn" in ordered(hive, "steer", run, "stop and say hello")
    until(hive.delivered, "there was no answer")
    assert hive.delivered() == ["echo: stop and say hello"]
    assert "reads what its owner said" in hive.rucher("trace", hive.told("runs", run)["trace_id"]).stdout


def test_a_cancelled_run_ends_at_once_and_says_so(hive: Hive) -> None:
    run = begun(hive, "hang around")
    assert "ends; see it end" in ordered(hive, "cancel", run, "--reason", "enough")
    until(lambda: state_of(hive, run) == "cancelled", "it was not cancelled", 20)
    assert "cancelled" in hive.delivered()[0]
    assert "has ended (cancelled)" in refused(hive, "run", "pause", run)
    assert hive.told("send", "still there", "--wait")["answer"] == "echo: still there"


def test_a_fork_goes_another_way_from_a_step(hive: Hive) -> None:
    hive.told("send", "write it", "--wait")
    (first,) = hive.told("runs")
    (tool,) = [step for step in hive.told("runs", first["run_id"])["steps"] if step["kind"] == "tool_call"]
    said = refused(hive, "run", "fork", first["run_id"], tool["step"])
    assert "may repeat 1 side effect;" in said
    assert len(hive.told("runs")) == 1
    ordered_lines = hive.rucher("run", "fork", first["run_id"], tool["step"], "--yes", "--steer", "and then?").stdout
    assert "idempotent_write  write_file" in ordered_lines
    until(lambda: len(hive.delivered()) == 2, "the fork did not answer")
    assert hive.delivered()[1] == "echo: and then?"
    fork = next(row for row in hive.told("runs") if row["run_id"] != first["run_id"])
    until(lambda: state_of(hive, fork["run_id"]) == "done", "the fork did not end")
    assert hive.told("runs", fork["run_id"])["forked"] == {"run": first["run_id"], "step": tool["step"]}


def test_wrong_orders_are_one_line_and_change_nothing(hive: Hive) -> None:
    hive.told("send", "hello", "--wait")
    (run,) = [row["run_id"] for row in hive.told("runs")]
    until(lambda: state_of(hive, run) == "done", "it did not end")
    before = len(hive.events())
    for words in (
        ("cancel", "7ZZZZZ"), ("pause", run), ("resume", run), ("steer", run, "x"), ("answer", run, "1", "x"),
        ("resolve", run, "1", "ran"), ("migrate", run), ("fork", run, "99"), ("fork", "7ZZZZZ", "1"), ("steer", run, ""),
    ):  # fmt: skip
        refused(hive, "run", *words)
    assert len(hive.events()) == before
    hive.stop()
    assert "rucher up" in refused(hive, "run", "pause", run)


@contextmanager
def working(hive: Hive) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker beside the daemon."""
    log = hive.root / "worker.terminal"
    command = [sys.executable, "-m", "rucher.cli", "--dir", str(hive.root), "up", "--role", "worker"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        until(lambda: "is up" in log.read_text(), "the worker did not start")
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.xdist_group("postgres")
def test_an_instance_that_outgrew_its_file_moves_to_postgresql_and_loses_nothing(tmp_path: Path) -> None:
    url = shared().new_database()
    with resting(tmp_path, SCRIPT) as hive:
        hive.start()
        hive.told("send", "one", "--wait")
        assert "a daemon runs on" in refused(hive, "store", "copy", str(hive.instance.journal), url)
        hive.stop()
        assert "share a PostgreSQL store" in refused(hive, "up", "--role", "worker")
        done = hive.rucher("store", "copy", str(hive.instance.journal), url)
        assert done.returncode == 0, done.stderr
        told = hive.told("store", "status")
        events = hive.events()
        hive.instance.config.write_text(
            hive.instance.config.read_text() + done.stdout[done.stdout.index("\n[store]\n") :]
        )
        assert hive.events() == events
        hive.start()
        with working(hive):
            assert len(hive.told("store", "status")["workers"]) == 2
            assert hive.told("send", "two", "--wait")["answer"] == "echo: two"
        assert hive.delivered() == ["echo: one", "echo: two"]
        hive.stop()
        assert hive.told("store", "status")["events"] > told["events"]
        assert hive.rucher("journal", "verify").returncode == 0
