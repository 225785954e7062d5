"""The guide to agents says what an agent's file may say, and no more."""

import re
from pathlib import Path
from typing import get_args

from rucher.daemon.offers import offered
from rucher.instance.agents import AgentFile, Tool, read_agent

PAGE = (Path(__file__).parents[3] / "docs" / "agents.md").read_text("utf-8")


def test_its_example_is_a_good_file(tmp_path: Path) -> None:
    (example,) = re.findall(r"```markdown\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "keeper.md").write_text(example, "utf-8")
    assert read_agent(tmp_path / "keeper.md").name == "keeper"


def test_it_names_every_field_and_every_tool() -> None:
    assert [name for name in AgentFile.model_fields if name != "persona" and f"| `{name}` |" not in PAGE] == []
    assert [name for name in get_args(Tool) if f"`{name}`" not in PAGE] == []


def test_every_tool_that_a_file_may_name_is_offered_and_has_a_declaration() -> None:
    tools = get_args(Tool)
    agent = AgentFile(name="one", description="one", tools=tools)
    assert sorted(spec.name for spec in offered(agent)) == sorted(tools)
    assert offered(AgentFile(name="one", description="one")) == ()
