import asyncio
import fcntl
import json
import resource
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rucher.protocol.errors import Permanent, Retryable, RucherError
from rucher.protocol.events import Event, Trust, committed, message
from rucher.protocol.ports import Proof
from rucher.surfaces.channels.cli import CliChannel


def answer(text: str = "hi", group: str = "main") -> Event:
    said = message(
        tenant="home", source="agent", key=text, principal="agent:a", trust=Trust.AGENT, text=text, group=group,
        occurred_at=1, addressed_to=f"group:cli:{group}",
    )  # fmt: skip
    return committed(said, 1, 2)


def test_a_line_says_who_said_what_where_and_in_which_trace(tmp_path: Path) -> None:
    event = replace(answer(), body={"text": "hi", "thread": "t1"})
    receipt = asyncio.run(CliChannel(tmp_path / "new").deliver(event, "k1"))
    file = tmp_path / "new" / receipt["file"]
    assert json.loads(file.read_text()) == {
        "key": "k1",
        "at": 2,
        "group": "main",
        "thread": "t1",
        "from": "agent:a",
        "text": "hi",
        "trace_id": event.trace_id,
    }
    assert file.stat().st_mode & 0o077 == 0


def test_a_message_without_address_goes_to_the_group_it_was_said_in(tmp_path: Path) -> None:
    event = replace(answer(), addressed_to=None, body={"text": "hi", "group": "kitchen"})
    assert asyncio.run(CliChannel(tmp_path).deliver(event, "k1")) == {"file": "kitchen.jsonl"}


@pytest.mark.parametrize("group", ["../../etc/x", "/etc/x", "..", "A", "a\x00b", "é", "g" * 500, "~x", "CON"])
def test_no_group_name_leads_out_of_the_folder_or_into_another_s_file(tmp_path: Path, group: str) -> None:
    folder = tmp_path / "deep" / "er"
    asyncio.run(CliChannel(folder).deliver(answer("hi", group), "k1"))
    asyncio.run(CliChannel(folder).deliver(answer("hi", group + "x"), "k2"))
    assert len(list(folder.iterdir())) == 2
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["er"]
    assert asyncio.run(CliChannel(folder).probe(answer("hi", group), "k1")) is Proof.DONE
    assert asyncio.run(CliChannel(folder).probe(answer("hi", group + "x"), "k1")) is Proof.NOT_DONE


def test_a_link_put_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("keep")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "main.jsonl").symlink_to(target)
    with pytest.raises(Permanent, match="cannot be written"):
        asyncio.run(CliChannel(folder).deliver(answer(), "k1"))
    assert target.read_text() == "keep"


def test_many_deliveries_at_once_from_many_adapters_are_whole_and_once_each(tmp_path: Path) -> None:
    async def surely(number: int) -> None:
        while True:
            try:
                await CliChannel(tmp_path).deliver(answer(f"{number}" + "x" * 3000), f"k{number}")
            except Retryable:
                continue
            return

    async def all_at_once() -> None:
        await asyncio.gather(*(surely(number // 4) for number in range(200)))

    asyncio.run(all_at_once())
    keys = [json.loads(line)["key"] for line in (tmp_path / "main.jsonl").read_text().splitlines()]
    assert sorted(keys) == sorted(f"k{number}" for number in range(50))


def test_a_file_that_another_program_has_locked_is_tried_again_later_and_holds_nobody(tmp_path: Path) -> None:
    channel = CliChannel(tmp_path)
    asyncio.run(channel.deliver(answer("one"), "k1"))
    with (tmp_path / "main.jsonl").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Retryable, match="locked by another program"):
            asyncio.run(asyncio.wait_for(channel.deliver(answer("two"), "k2"), 10))
        with pytest.raises(Retryable, match="locked by another program"):
            asyncio.run(asyncio.wait_for(channel.probe(answer("one"), "k1"), 10))
    asyncio.run(channel.deliver(answer("two"), "k2"))
    assert [json.loads(line)["text"] for line in (tmp_path / "main.jsonl").read_text().splitlines()] == ["one", "two"]


@pytest.fixture
def small_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_files")
def test_a_line_that_does_not_fit_is_taken_back_whole_and_was_not_delivered(tmp_path: Path) -> None:
    channel = CliChannel(tmp_path)
    asyncio.run(channel.deliver(answer("hi"), "k1"))
    before = (tmp_path / "main.jsonl").read_bytes()
    with pytest.raises(RucherError, match="cannot be written"):
        asyncio.run(channel.deliver(answer("x" * 5000), "k2"))
    assert (tmp_path / "main.jsonl").read_bytes() == before
    assert asyncio.run(channel.probe(answer(), "k2")) is Proof.NOT_DONE
