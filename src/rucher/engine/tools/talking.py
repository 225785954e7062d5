"""Tools by which an agent talks: ask another one, tell somebody, propose a change to the owner, or say that it has no answer.

The loop acts on them by the Steps port: what is said is an event, committed with its step. The daemon gives them to agents
whose definition names them, and decides what may be said to whom. No tool here answers: an agent's last text is its answer.
"""

from collections.abc import Mapping
from typing import Any

from rucher.protocol.conversation import Effect, ToolCall, ToolResult, ToolSpec
from rucher.protocol.ports import Steps

MOST_CHARACTERS = 100_000
USUAL_HOURS = 24.0
"""How long an agent waits for another one's reply when it does not say."""
_TEXT = {"type": "string", "minLength": 1, "maxLength": MOST_CHARACTERS}
_WHY = {"type": "string", "minLength": 1, "maxLength": 2000}


def _only(**properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "type": "object", "properties": properties, "required": [name for name in properties if name != "expires_in_hours"],
        "additionalProperties": False,
    }  # fmt: skip


ASK_AGENT = ToolSpec(
    name="ask_agent",
    description=(
        "Ask another agent and wait for its reply. agent is its name; text says all that it needs to know, as it sees"
        " nothing of your conversation. Without a reply in expires_in_hours (24 when you do not say) you go on without one."
    ),
    parameters=_only(
        agent={"type": "string", "minLength": 1, "maxLength": 100},
        text=_TEXT,
        expires_in_hours={"type": "number", "exclusiveMinimum": 0, "maximum": 8760},
    ),
    effect=Effect.IDEMPOTENT_WRITE,
)

NOTIFY = ToolSpec(
    name="notify",
    description=(
        "Tell somebody something and go on without waiting; nobody answers it."
        " to is agent:NAME, group:SURFACE:GROUP (a room), or owner."
    ),
    parameters=_only(to={"type": "string", "minLength": 1, "maxLength": 500}, text=_TEXT),
    effect=Effect.IDEMPOTENT_WRITE,
)

PROPOSE = ToolSpec(
    name="propose",
    description=(
        "Propose a new rule or schedule to the owner, who decides; nothing changes before that and you go on without waiting."
        " text is what would be added to the file: one or more [[rule]] or [[schedule]] tables in TOML."
    ),
    parameters=_only(what={"type": "string", "enum": ["rules", "schedule"]}, text=_TEXT, why=_WHY),
    effect=Effect.IDEMPOTENT_WRITE,
)

NO_ANSWER = ToolSpec(
    name="no_answer",
    description=(
        "End without an answer, because there is nothing to say or it is not for you to say it."
        " Whoever asked learns that you gave no answer, and why."
    ),
    parameters=_only(why=_WHY),
    effect=Effect.READ,
)

TALKING_TOOLS: Mapping[str, ToolSpec] = {spec.name: spec for spec in (ASK_AGENT, NOTIFY, PROPOSE, NO_ANSWER)}


async def talk(steps: Steps, call: ToolCall) -> ToolResult:
    """What came of the call, whose arguments are checked; of `ask_agent` raises Suspended until that is known."""
    request = {"tool": call.name, "arguments": dict(call.arguments)}
    match call.name:
        case NO_ANSWER.name:
            return ToolResult(call.id, call.name, ok=True, text="You give no answer.")
        case ASK_AGENT.name:
            hours = call.arguments.get("expires_in_hours", USUAL_HOURS)
            ok, text = _replied(await steps.consult(request, hours * 3600.0), str(call.arguments["agent"]), hours)
        case _:
            result = await steps.emit(request)
            ok, text = result["ok"], result["text"]
    return ToolResult(call.id, call.name, ok=ok, text=text)


def no_answer(answer: tuple[ToolCall, ...], results: list[ToolResult]) -> str:
    """Why the agent gives no answer, if it said so in one of these calls; else empty."""
    agreed = {result.call_id for result in results if result.ok and result.name == NO_ANSWER.name}
    return next((str(call.arguments["why"]) for call in answer if call.id in agreed), "")


def _replied(outcome: Mapping[str, Any], agent: str, hours: float) -> tuple[bool, str]:
    who, text = outcome.get("from", f"agent:{agent}"), str(outcome.get("text", ""))
    if outcome.get("expired"):
        return False, f"{who} did not reply within {hours:g} hours; go on without its reply."
    if not outcome.get("ok"):
        return False, f"There is no reply: {text}"
    return True, f"{who} replies: {text}"
