"""The daemon is killed (SIGKILL) at random moments with many messages in flight: each is answered exactly once.

What counts is what is outside: the files that answers are delivered to, and the files that tools wrote.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rucher.cli.client import Daemon
from rucher.protocol.errors import RucherError
from tests.fakes.hive import Hive, resting, until

ANSWERS = r"""
[[rule]]
on = "user"
match = "^read"
delay_ms = 150
call = [{ tool = "list_dir", arguments = { path = "." } }, { tool = "read_file", arguments = { path = "none.txt" } }]

[[rule]]
on = "user"
match = "^write (?P<n>\\d+)"
delay_ms = 150
call = [{ tool = "write_file", arguments = { path = "{n}.txt", content = "{text}" } }]

[[rule]]
on = "result"
delay_ms = 150
answer = "done {text}"

[[rule]]
delay_ms = 150
answer = "echo {text}"
"""
NOTES = r"""
[[rule]]
on = "user"
match = "^note (?P<n>\\d+)"
call = [{ tool = "shell", arguments = { command = "sleep 0.1; echo {n} >> notes.txt; sleep 0.1" } }]

[[rule]]
on = "result"
answer = "noted {text}"
"""
SLOW_NOTES = r"""
[[rule]]
on = "user"
match = "^before"
call = [{ tool = "shell", arguments = { command = "touch begun; sleep 3; echo 1 >> notes.txt" } }]

[[rule]]
on = "user"
match = "^after"
call = [{ tool = "shell", arguments = { command = "echo 1 >> notes.txt; touch begun; sleep 3" } }]

[[rule]]
on = "result"
answer = "noted {text}"
"""
SENDERS = 10
GROUPS = 5
PATIENCE_S = 180.0


@dataclass(frozen=True, slots=True)
class Said:
    """A message, and the room and thread that it is said in."""

    text: str
    group: str
    thread: str


def storm(hive: Hive, messages: Sequence[Said], kills: int, seed: int) -> list[int]:
    """Send all messages at once, each until it is accepted, while the daemon is killed again and again.

    Returns how many messages were not answered yet at each kill.
    """
    chance, in_flight = random.Random(seed), []
    hive.start()
    with ThreadPoolExecutor(SENDERS) as senders:
        sendings = [senders.submit(_send_surely, hive, message) for message in messages]
        for _ in range(kills):
            time.sleep(chance.uniform(0.05, 0.6))
            in_flight.append(len(messages) - len(answered(hive)))
            hive.kill()
            hive.start()
        _finished(sendings)
    return in_flight


def answered(hive: Hive) -> list[str]:
    """The messages that have answers, from the files that those were delivered to: once for each answer."""
    texts = [text for group in range(GROUPS) for text in hive.delivered(f"g{group}")]
    return [text.split(" ", 1)[1] for text in texts if text.split(" ", 1)[0] in ("done", "echo", "noted")]


def spread(texts: Sequence[str]) -> list[Said]:
    """The texts over all groups, and over two threads in each."""
    return [Said(text, f"g{number % GROUPS}", "t" if number // GROUPS % 2 else "") for number, text in enumerate(texts)]


def _send_surely(hive: Hive, said: Said) -> None:
    message = {"text": said.text, "group": said.group, "thread": said.thread, "key": said.text}
    with Daemon(hive.instance) as daemon:
        until(partial(_accepted, daemon, message), f"{said.text} was never accepted", PATIENCE_S)


def _accepted(daemon: Daemon, message: Mapping[str, Any]) -> bool:
    try:
        daemon.accept(message)
    except RucherError:
        return False
    return True


def _finished(sendings: Sequence["Future[None]"]) -> None:
    for sending in sendings:
        sending.result(PATIENCE_S)


def answers_survive(hive: Hive, count: int, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    texts = [f"{chance.choice(['read', 'write', 'say'])} {number}" for number in range(count)]
    in_flight = storm(hive, spread(texts), kills, seed)
    assert in_flight[0] > count // 2, "the first kill met most messages in flight"
    assert sum(left > 0 for left in in_flight) > kills // 2, f"most kills met messages in flight: {in_flight}"
    until(lambda: len(answered(hive)) >= count, f"{count} answers were expected", PATIENCE_S)
    hive.stop()
    hive.start()
    hive.stop()
    assert Counter(answered(hive)) == Counter(texts), "each message has exactly one answer"
    emitted = Counter(event["body"]["in_reply_to"] for event in hive.events("ev.*.agent.*"))
    assert (set(emitted.values()), len(emitted)) == ({1}, count)
    assert hive.rucher("journal", "verify").returncode == 0


def notes_survive(hive: Hive, count: int, kills: int, seed: int) -> None:
    texts = [f"note {number}" for number in range(count)]
    storm(hive, spread(texts), kills, seed)
    until(lambda: len(answered(hive)) + len(waiting(hive)) >= count, "each is answered or waits", PATIENCE_S)
    for run in waiting(hive):
        (text,) = (event["body"]["text"] for event in hive.told("trace", run["trace_id"])["events"] if _asked(event))
        verdict = "ran" if text.removeprefix("note ") in notes(hive) else "not-run"
        resolve(hive, run["run_id"], verdict)
    until(lambda: len(answered(hive)) >= count, f"{count} answers were expected", PATIENCE_S)
    hive.stop()
    assert Counter(answered(hive)) == Counter(texts)
    assert sorted(notes(hive), key=int) == [str(number) for number in range(count)], "no line is lost, none is doubled"
    assert hive.rucher("journal", "verify").returncode == 0


def _asked(event: dict[str, Any]) -> bool:
    return (event["source"], event["type"]) == ("cli", "message")


def waiting(hive: Hive) -> list[dict[str, Any]]:
    """The runs that wait for their owner."""
    return [run for run in hive.told("runs", "--limit", "1000") if run["state"] == "waiting"]


def notes(hive: Hive) -> list[str]:
    """The lines that tools wrote into the workspaces of all sessions."""
    return [line for path in _written(hive, "notes.txt") for line in path.read_text("utf-8").splitlines()]


def _written(hive: Hive, name: str) -> Iterator[Path]:
    return (hive.state / "sessions").glob(f"*/workspace/{name}")


def resolve(hive: Hive, run_id: str, verdict: str) -> None:
    """Give the owner's word about the step that the run waits for, by the command that the run itself tells."""
    told = hive.told("runs", run_id)["resolve"].split()
    assert told[:3] == ["rucher", "run", "resolve"]
    done = hive.rucher("run", "resolve", *told[3:5], verdict)
    assert done.returncode == 0, done.stderr


def test_messages_in_flight_survive_kills(tmp_path: Path) -> None:
    with resting(tmp_path, ANSWERS) as hive:
        answers_survive(hive, 15, kills=4, seed=1)


@pytest.mark.chaos_long
@pytest.mark.timeout(900)
def test_fifty_messages_in_flight_survive_twenty_kills(tmp_path: Path) -> None:
    with resting(tmp_path, ANSWERS) as hive:
        answers_survive(hive, 50, kills=20, seed=2)


def test_what_a_shell_wrote_is_never_written_twice(tmp_path: Path) -> None:
    with resting(tmp_path, NOTES) as hive:
        notes_survive(hive, 8, kills=3, seed=3)


@pytest.mark.chaos_long
@pytest.mark.timeout(900)
def test_what_fifty_shells_wrote_is_never_written_twice_over_twenty_kills(tmp_path: Path) -> None:
    with resting(tmp_path, NOTES) as hive:
        notes_survive(hive, 50, kills=20, seed=4)


@pytest.mark.parametrize(("text", "written", "verdict"), [("after", 1, "ran"), ("before", 0, "not-run")])
def test_a_shell_that_a_kill_interrupted_waits_visibly_for_its_owner_who_brings_it_to_an_answer(
    tmp_path: Path, text: str, written: int, verdict: str
) -> None:
    with resting(tmp_path, SLOW_NOTES) as hive:
        hive.start()
        hive.told("send", text)
        until(lambda: list(_written(hive, "begun")), "the shell never began")
        hive.kill()
        hive.start()
        until(lambda: waiting(hive), "the run does not wait for its owner")
        (run,) = waiting(hive)
        until(lambda: len(hive.delivered()) == 1, "the owner was not asked")
        assert f"rucher run resolve {run['run_id']}" in hive.delivered()[0]
        assert run["run_id"] in hive.rucher("doctor").stdout
        assert notes(hive) == ["1"] * written
        resolve(hive, run["run_id"], verdict)
        until(lambda: hive.delivered()[1:] == [f"noted {text}"], "the answer was expected")
        hive.stop()
        assert notes(hive) == ["1"]
