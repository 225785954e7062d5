"""What a newcomer does first, through the command line, on a real daemon with a real sandbox and a scripted model."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.hive import Hive, running, until

READER = r"""
[[rule]]
on = "user"
match = "^read (?P<path>\\S+)"
call = [{ tool = "read_file", arguments = { path = "{path}" } }]

[[rule]]
on = "user"
match = "^slow (?P<n>\\d+)"
delay_ms = 300
answer = "slow {n}"

[[rule]]
on = "result"
answer = "it says: {result}"

[[rule]]
answer = "echo: {text}"
"""


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    with running(tmp_path, READER) as started:
        yield started


def test_a_message_is_answered_and_the_answer_is_one_json_object(hive: Hive) -> None:
    said = hive.told("send", "hello", "--wait")
    assert set(said) == {"event_id", "trace_id", "answer", "status"}
    assert (said["answer"], said["status"]) == ("echo: hello", "answered")


def test_the_trace_names_every_hop_from_ingress_to_delivery(hive: Hive) -> None:
    said = hive.told("send", "read missing.txt", "--wait")
    drawn = hive.rucher("trace", said["trace_id"][:10]).stdout
    in_order = [
        "message from owner:owner",
        "rule default",
        "acknowledged",
        "run ",
        "read_file",
        "answer from agent:scribe",
        "rule r-cli-reply",
        "delivered",
    ]
    assert re.search(".*".join(map(re.escape, in_order)), drawn, re.DOTALL), drawn


def test_the_same_key_twice_is_one_event_and_one_answer(hive: Hive) -> None:
    first = hive.told("send", "once", "--key", "K", "--wait")
    again = hive.told("send", "once", "--key", "K", "--wait")
    assert first == again
    assert hive.delivered() == ["echo: once"]


def test_a_tool_really_runs_in_the_sandbox_of_its_session(hive: Hive) -> None:
    assert "does not exist" in hive.told("send", "read note.txt", "--wait")["answer"]
    (session,) = (hive.state / "sessions").iterdir()
    (session / "workspace" / "note.txt").write_text("the key is under the mat")
    (session / "workspace" / "note.txt").chmod(0o644)
    assert hive.told("send", "read note.txt", "--wait")["answer"] == "it says: the key is under the mat"


def test_four_messages_while_busy_are_four_answers_in_order(hive: Hive) -> None:
    for number in range(5):
        hive.told("send", f"slow {number}")
    until(lambda: len(hive.delivered()) == 5, "five answers were expected")
    assert hive.delivered() == [f"slow {number}" for number in range(5)]


def test_rooms_and_threads_are_sessions_of_their_own(hive: Hive) -> None:
    hive.told("send", "a", "--group", "garden", "--wait")
    hive.told("send", "b", "--group", "garden", "--thread", "t", "--wait")
    hive.told("send", "c", "--agent", "talker", "--group", "garden", "--wait")
    assert hive.delivered("garden") == ["echo: a", "echo: b", "echo: c"]
    assert len(list((hive.state / "sessions").iterdir())) == 3


def test_every_list_has_json(hive: Hive) -> None:
    hive.told("send", "hello", "--wait")
    for command in (("events",), ("runs",), ("rules", "list")):
        rows = json.loads(hive.rucher(*command, "--json").stdout)
        assert isinstance(rows, list)
        assert rows


def test_the_journal_verifies_after_the_daemon_is_stopped(hive: Hive) -> None:
    hive.told("send", "hello", "--wait")
    hive.stop()
    verified = hive.rucher("journal", "verify")
    assert verified.returncode == 0, verified.stderr
