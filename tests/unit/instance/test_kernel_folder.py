"""Laws of the kernel folder that comes with Rucher: its agents can be read, are all listed, and name no instance."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from rucher import __version__
from rucher.instance.agents import load_agents
from rucher.instance.create import KERNEL
from rucher.protocol.errors import BadInput

PERSONA_CHARACTERS = 700
"""A small model reads a thousand tokens in many seconds: a persona is short."""
FRONT = "---\nname: helper\ndescription: helps\n---\nYou help.\n"


def test_every_agent_can_be_read_and_is_listed_with_this_version() -> None:
    agents = load_agents(KERNEL / "agents")
    compose = YAML(typ="safe", pure=True).load((KERNEL / "compose.yml").read_text())
    assert compose["version"] == __version__
    assert sorted(name for group in compose["agents"].values() for name in group) == sorted(agents)


def test_scribe_has_hands_and_talker_has_none() -> None:
    agents = load_agents(KERNEL / "agents")
    assert agents["scribe"].tools == ("list_dir", "read_file", "search", "write_file", "shell")
    assert (agents["talker"].tools, agents["talker"].sandbox) == ((), 0)
    assert [name for name, agent in agents.items() if not 0 < len(agent.persona) < PERSONA_CHARACTERS] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no front matter", "line 1: front matter is missing"),
        (FRONT.replace("helps", "helps\ncolour: red"), "line 4: colour: .*the fields are: name"),
        (FRONT.replace("helper", "Helper"), "line 2: name"),
        (FRONT.replace("helps", "helps\ntools: [sudo]"), "line 4: tools"),
        (FRONT.replace("helps", "[helps"), "line "),
        (FRONT.replace("name: helper\ndescription: helps", "just words"), "line 2: front matter must be fields"),
    ],
    ids=["none", "unknown-field", "bad-name", "unknown-tool", "bad-yaml", "no-fields"],
)
def test_an_agent_file_that_cannot_be_used_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "helper.md").write_text(text)
    with pytest.raises(BadInput, match=says):
        load_agents(tmp_path)


def test_two_agents_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(FRONT)
    (tmp_path / "b.md").write_text(FRONT)
    with pytest.raises(BadInput, match=r"b\.md: an agent named 'helper' exists already"):
        load_agents(tmp_path)
