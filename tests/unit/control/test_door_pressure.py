"""Laws of the door under pressure: what is slow, too much at once or cut off takes nothing from the others, and is told so."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rucher.control import doors
from rucher.protocol.ports import Appended
from rucher.surfaces.ingress import IncomingEvent
from tests.fakes import senders
from tests.fakes.doorway import Doorway, detail, doorway

HEAD = b"POST /ingress/bearer HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2000\r\n\r\n"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Doorway]:
    with doorway(tmp_path) as opened:
        yield opened


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_whoever_comes_while_the_store_is_behind_is_asked_to_come_again(
    here: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "MOST_COMMITTING", 2)
    waiting: list[IncomingEvent] = []
    release = asyncio.Event()

    async def slow(incoming: IncomingEvent) -> Appended:
        waiting.append(incoming)
        await release.wait()
        return await here.taken(incoming)

    here.before = slow
    with ThreadPoolExecutor(2) as pool:
        first = [pool.submit(here.post, "bearer", senders.bearer({"n": number})) for number in range(2)]
        until(lambda: len(waiting) == 2)
        third = here.post("bearer", senders.bearer({"n": 2}))
        assert (third.status_code, third.headers["retry-after"]) == (429, "1")
        assert "come" not in detail(third)
        here.loop.call_soon_threadsafe(release.set)
        assert [one.result().status_code for one in first] == [202, 202]
    assert here.post("bearer", senders.bearer({"n": 2})).status_code == 202
    assert here.counts("bearer") == {"accepted": 3, "duplicate": 0, "refused": {"busy": 1}}


def test_bodies_that_fill_the_memory_are_turned_away_until_there_is_room(
    here: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "MOST_HELD", 1000)
    with socket.create_connection(("127.0.0.1", here.port)) as slow:
        slow.sendall(HEAD + b"x" * 900)
        until(lambda: here.post("bearer", senders.bearer("y" * 500)).status_code == 429)
    until(lambda: here.post("bearer", senders.bearer("y" * 500)).status_code == 202)
    until(lambda: here.counts("bearer")["refused"].get("gone") == 1)
    for _ in range(10):
        assert here.post("bearer", senders.bearer("y" * 900)).status_code == 202


def test_a_body_that_does_not_come_is_408_and_the_connection_ends(
    here: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "READ_S", 0.2)
    answer = here.raw(HEAD + b"{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer.lower()
    assert here.counts("bearer")["refused"] == {"too_slow": 1}


def test_a_sender_that_waits_for_our_word_is_refused_before_it_sends_its_body(here: Doorway) -> None:
    expecting = HEAD.replace(b"content-length: 2000", b"content-length: 52428800\r\nexpect: 100-continue")
    answer = here.raw(expecting)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in answer
