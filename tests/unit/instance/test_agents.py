"""Laws of agents' files: whatever stands in one, it is taken or refused in one line that names the file and the mend."""

import os
from pathlib import Path

import pytest

from rucher.instance.agents import load_agents, read_agent
from rucher.instance.text import MOST_BYTES
from rucher.protocol.errors import BadInput

GOOD = "---\nname: scribe\ndescription: Writes.\ntools: [shell]\n---\nYou write.\n"


def refused(path: Path) -> str:
    with pytest.raises(BadInput) as refusal:
        read_agent(path)
    text = str(refusal.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def test_an_agent_is_its_front_matter_and_the_text_below(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(GOOD.replace("\n", "\r\n").encode())
    agent = read_agent(path)
    assert (agent.name, agent.tools, agent.persona) == ("scribe", ("shell",), "You write.")


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (GOOD.encode().replace(b"Writes", b"Wri\xfftes"), "line 3: this is not UTF-8"),
        (GOOD.encode("utf-16"), "line 1: this is not UTF-8"),
        (b"", "line 1: front matter is missing"),
        (b"---\nname: a\x01b\n---\n", "front matter cannot be read"),
        (b"---\n- a\n- b\n---\n", "front matter must be fields"),
        (b"---\nname: [\n---\n", "line "),
        (b"---\nname: " + b"[" * 5000 + b"\n---\n", "line 2"),
        (b"---\nname: 2026-99-99\n---\n", "line 2"),
        (b"---\n1: 2\n---\n", "line "),
        (b"---\nname: scribe\n---\n", "description"),
        (b"---\nname: a\nname: b\n---\n", "line 3"),
        (b"x" * (MOST_BYTES + 1), "larger than"),
    ],
)
def test_what_is_no_agent_is_refused_in_one_line(tmp_path: Path, raw: bytes, says: str) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(raw)
    assert says in refused(path)


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    for make in (os.mkfifo, Path.mkdir, lambda path: path.symlink_to("nowhere"), lambda path: path.symlink_to(path)):
        path = tmp_path / "a.md"
        make(path)
        refused(path)
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()


def test_two_agents_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(GOOD)
    (tmp_path / "b.md").write_text(GOOD)
    with pytest.raises(BadInput, match=r"b\.md: an agent named 'scribe' exists already"):
        load_agents(tmp_path)
