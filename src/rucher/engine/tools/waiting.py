"""Two tools that need no sandbox: ask the owner, and wait. While they wait nothing runs, for minutes or for weeks.

The loop acts on them by the Steps port, whose waits are durable; the daemon gives them to agents whose definition names them.
"""

from collections.abc import Mapping

from rucher.protocol.conversation import Effect, ToolCall, ToolResult, ToolSpec
from rucher.protocol.ports import Steps

ASK_OWNER = ToolSpec(
    name="ask_owner",
    description=(
        "Ask the owner one question and wait for the answer, however long it takes."
        " Use it when only the owner can know or decide."
        " With expires_in_hours you go on without an answer after that time."
    ),
    parameters={
        "type": "object",
        "properties": {
            "question": {"type": "string", "minLength": 1},
            "expires_in_hours": {"type": "number", "exclusiveMinimum": 0, "maximum": 8760},
        },
        "required": ["question"],
        "additionalProperties": False,
    },
    effect=Effect.IDEMPOTENT_WRITE,
)

WAIT = ToolSpec(
    name="wait",
    description="Do nothing for so many minutes, then go on. Use it to look at something again later.",
    parameters={
        "type": "object",
        "properties": {"minutes": {"type": "number", "exclusiveMinimum": 0, "maximum": 525_600}},
        "required": ["minutes"],
        "additionalProperties": False,
    },
    effect=Effect.IDEMPOTENT_WRITE,
)

WAITING_TOOLS: Mapping[str, ToolSpec] = {spec.name: spec for spec in (ASK_OWNER, WAIT)}


async def wait_for(steps: Steps, call: ToolCall) -> ToolResult:
    """What came of the call, whose arguments are checked; raises Suspended until that is known."""
    if call.name == WAIT.name:
        minutes = call.arguments["minutes"]
        await steps.sleep(minutes * 60.0)
        return ToolResult(call.id, call.name, ok=True, text=f"{minutes} minutes have passed.")
    hours = call.arguments.get("expires_in_hours")
    outcome = await steps.ask(call.arguments["question"], None if hours is None else hours * 3600.0)
    if outcome.get("expired"):
        return ToolResult(
            call.id, call.name, ok=False, text="The owner did not answer in time; go on without an answer."
        )
    return ToolResult(call.id, call.name, ok=True, text=f"The owner says: {outcome.get('text', '')}")
