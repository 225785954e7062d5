import asyncio
import json
from pathlib import Path
from typing import Literal

import pytest

from rucher.protocol.errors import Permanent, Retryable
from rucher.protocol.events import Event, Trust, committed, message
from rucher.surfaces.channels.file import FileChannel, FilePlace

Format = Literal["jsonl", "text"]


def event(text: str = "hi") -> Event:
    said = message(
        tenant="home", source="agent", key=text, principal="agent:a", trust=Trust.AGENT, text=text, group="main",
        occurred_at=1,
    )  # fmt: skip
    return committed(said, 1, 1_700_000_000_000_000)


def send(path: Path, text: str, key: str, form: Format = "jsonl", *, inside: bool = True) -> None:
    asyncio.run(FileChannel(FilePlace(path, form, make_folders=inside)).deliver(event(text), key))


def test_text_is_for_people_and_json_lines_are_for_programs(tmp_path: Path) -> None:
    send(tmp_path / "a.txt", "two\n\nlines", "K1", "text")
    send(tmp_path / "a.txt", "more", "K2", "text")
    assert (tmp_path / "a.txt").read_text() == (
        "[rucher K1] 2023-11-14 22:13:20 UTC agent:a\n    two\n    \n    lines\n\n"
        "[rucher K2] 2023-11-14 22:13:20 UTC agent:a\n    more\n\n"
    )
    send(tmp_path / "a.jsonl", "hi", "K1")
    (line,) = (tmp_path / "a.jsonl").read_text().splitlines()
    assert list(json.loads(line))[:1] == ["key"]
    assert (tmp_path / "a.jsonl").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("form", ["jsonl", "text"])
@pytest.mark.parametrize(
    "theirs", ["# A heading", "a paragraph\n\nand one without an end", "{", '{"ke', "x\n\n", "\x00\x01"]
)
def test_what_somebody_else_wrote_into_the_file_is_never_touched(tmp_path: Path, form: Format, theirs: str) -> None:
    file = tmp_path / "mine"
    file.write_bytes(f"mine\n\n{theirs}".encode())
    ours = (form == "jsonl") and '{"key":"'.startswith(theirs)
    for key in ("K1", "K1", "K2"):
        send(file, "hi", key, form)
    found = file.read_bytes().decode()
    assert found.startswith("mine\n\n" if ours else f"mine\n\n{theirs}")
    marks = '{"key":' if form == "jsonl" else "[rucher "
    assert [found.count(marks), sum(line.startswith(marks) for line in found.splitlines())] == [
        2 + (theirs == marks),
        2,
    ]


def test_a_disk_that_is_away_is_waited_for_and_nothing_is_made_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(Retryable, match="is not there; it waits"):
        send(tmp_path / "mnt" / "all.jsonl", "hi", "K1", inside=False)
    assert not (tmp_path / "mnt").exists()
    (tmp_path / "mnt").mkdir()
    send(tmp_path / "mnt" / "all.jsonl", "hi", "K1", inside=False)


def test_a_folder_in_the_file_s_place_is_refused_for_good(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="cannot be written"):
        send(tmp_path, "hi", "K1")


def test_many_at_once_are_whole_and_none_is_told_to_wait(tmp_path: Path) -> None:
    async def all_at_once() -> None:
        channel = FileChannel(FilePlace(tmp_path / "all.jsonl", "jsonl", make_folders=True))
        await asyncio.gather(*(channel.deliver(event("x" * 3000), f"K{number}") for number in range(50)))

    asyncio.run(all_at_once())
    keys = [json.loads(line)["key"] for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert sorted(keys) == sorted(f"K{number}" for number in range(50))
