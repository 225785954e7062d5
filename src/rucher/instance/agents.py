"""Agents from Markdown files with YAML front matter: what each may do, and who it is in the file's body."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from rucher.instance.text import text_of
from rucher.protocol.errors import BadInput

Tool = Literal[
    "list_dir", "read_file", "search", "write_file", "shell", "ask_owner", "wait", "ask_agent", "notify", "propose",
    "no_answer",
]  # fmt: skip


class AgentFile(BaseModel):
    """The front matter of an agent's file, and its body as `persona`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,40}$")]
    description: Annotated[str, Field(min_length=1)]
    model: Literal["default"] = "default"
    tools: tuple[Tool, ...] = ()
    sandbox: Literal[0, 1] = 1
    runner: Literal["hands"] = "hands"
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    persona: str = ""


def load_agents(folder: Path) -> dict[str, AgentFile]:
    """Every agent of the folder by name; raises BadInput naming the file, the line and the mend."""
    if not folder.is_dir():
        raise BadInput(f"there are no agents at {folder}; restore the instance's kernel folder or link")
    agents: dict[str, AgentFile] = {}
    for path in sorted(folder.glob("*.md")):
        agent = read_agent(path)
        if agent.name in agents:
            raise BadInput(f"{path}: an agent named {agent.name!r} exists already; give this one another name")
        agents[agent.name] = agent
    return agents


def agent_files(folder: Path) -> dict[str, Path]:
    """The file of every agent of the folder by name; raises BadInput for one that cannot be read."""
    return {read_agent(path).name: path for path in sorted(folder.glob("*.md"))}


def read_agent(path: Path) -> AgentFile:
    """The agent of one file; raises BadInput."""
    text = text_of(path, "put the agent's Markdown file there, or remove it")
    if not text.startswith("---\n") or "\n---\n" not in text[4:]:
        raise BadInput(f"{path}: line 1: front matter is missing; begin with ---, the fields, and --- again")
    front, persona = text[4:].split("\n---\n", 1)
    try:
        fields = YAML(typ="safe", pure=True).load(front) or {}
        return AgentFile.model_validate({**fields, "persona": persona.strip()})
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 2 if error.problem_mark else 1
        raise BadInput(f"{path}: line {line}: {error.problem}") from error
    except (ValidationError, TypeError) as error:
        raise BadInput(f"{path}: {_first_fault(front, error)}") from error
    except (YAMLError, ValueError, RecursionError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"{path}: line 2: front matter cannot be read: {why}; write `name: value` lines") from error


def _first_fault(front: str, error: ValidationError | TypeError) -> str:
    if isinstance(error, TypeError):
        return "line 2: front matter must be fields, one `name: value` a line"
    fault = error.errors()[0]
    field = str(fault["loc"][0])
    line = next((number for number, text in enumerate(front.splitlines(), 2) if text.startswith(f"{field}:")), 1)
    allowed = ", ".join(name for name in AgentFile.model_fields if name != "persona")
    hint = f"; the fields are: {allowed}" if fault["type"] == "extra_forbidden" else ""
    return f"line {line}: {field}: {fault['msg']}{hint}"
