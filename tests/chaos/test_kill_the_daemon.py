"""The daemon is killed (SIGKILL) at random moments with messages in flight: each message is answered exactly once."""

import random
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.fakes.hive import Hive, until

SCRIPT = r"""
[[rule]]
on = "user"
match = "^read"
delay_ms = 20
call = [{ tool = "list_dir", arguments = { path = "." } }, { tool = "read_file", arguments = { path = "none.txt" } }]

[[rule]]
on = "user"
match = "^write (?P<n>\\d+)"
delay_ms = 20
call = [{ tool = "write_file", arguments = { path = "{n}.txt", content = "{text}" } }]

[[rule]]
on = "result"
delay_ms = 20
answer = "done {text}"

[[rule]]
delay_ms = 20
answer = "echo {text}"
"""


def storm(hive: Hive, messages: int, kills: int, seed: int) -> None:
    """Send messages from a thread of their own, each until it is accepted, while the daemon is killed again and again."""
    chance = random.Random(seed)
    kinds = [f"{chance.choice(['read', 'write', 'say'])} {number}" for number in range(messages)]
    sending = threading.Thread(target=_send_surely, args=(hive, kinds))
    hive.start()
    sending.start()
    for _ in range(kills):
        time.sleep(chance.uniform(0.05, 1.5))
        hive.kill()
        hive.start()
    sending.join()
    until(lambda: len(hive.delivered()) >= messages, f"{messages} answers were expected", 120)
    hive.stop()
    hive.start()
    hive.stop()
    answers = Counter(text.split(" ", 1)[1] for text in hive.delivered())
    assert answers == Counter(kinds), "each message has exactly one answer"
    emitted = Counter(event["body"]["in_reply_to"] for event in hive.events("ev.*.agent.*"))
    assert set(emitted.values()) == {1}
    assert len(emitted) == messages
    assert hive.rucher("journal", "verify").returncode == 0


def _send_surely(hive: Hive, texts: list[str]) -> None:
    for text in texts:
        until(partial(_sent, hive, text), f"{text} was never accepted", 120)


def _sent(hive: Hive, text: str) -> bool:
    return hive.rucher("send", text, "--key", text).returncode == 0


def test_messages_in_flight_survive_kills(tmp_path: Path) -> None:
    storm(Hive(tmp_path, SCRIPT), messages=12, kills=4, seed=1)


@pytest.mark.chaos_long
@pytest.mark.timeout(900)
def test_fifty_messages_in_flight_survive_twenty_kills(tmp_path: Path) -> None:
    storm(Hive(tmp_path, SCRIPT), messages=50, kills=20, seed=2)
