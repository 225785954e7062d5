"""Which tools an agent is offered: those that its definition names, in the order that every prompt shows them."""

from rucher.engine.tools.talking import TALKING_TOOLS
from rucher.engine.tools.waiting import WAITING_TOOLS
from rucher.engine.tools.workspace import WORKSPACE_TOOLS
from rucher.instance.agents import AgentFile
from rucher.protocol.conversation import ToolSpec


def offered(agent: AgentFile) -> tuple[ToolSpec, ...]:
    """The declarations of the agent's tools."""
    known = (*WORKSPACE_TOOLS, *WAITING_TOOLS.values(), *TALKING_TOOLS.values())
    return tuple(spec for spec in known if spec.name in agent.tools)
