"""The loop: ask the model, run the tools it calls, until it answers. Called by whoever runs a session.

Every model call and tool call is a journaled step behind the Steps port, so that running this function again after a kill
gives back what was recorded and goes on from there. What the owner says meanwhile is read before each model call. It imports
no store and no sandbox, it sees ports.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import Any

from rucher.engine.arguments import fault
from rucher.engine.tools.talking import TALKING_TOOLS, no_answer, talk
from rucher.engine.tools.waiting import WAITING_TOOLS, wait_for
from rucher.protocol.backoff import waits
from rucher.protocol.conversation import (
    Assistant,
    CallRequested,
    Conversation,
    Effect,
    Finished,
    ModelOptions,
    Stop,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    User,
)
from rucher.protocol.errors import Denied, Exhausted, Permanent, Retryable
from rucher.protocol.ports import Clock, Model, StepKind, Steps, Tools

EMPTY = "empty answer"
"""The reason of an outcome where the model said nothing at all."""
_CHARACTERS_A_TOKEN = 3
"""Fewer than any tokenizer needs on average for text or code: what is reserved for a prompt is rather too much."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run stops by itself, and how patient it is with a model that is not ready.

    In the last turn, and after `repeats` identical calls in a row, the model is offered no tools: it must answer.
    """

    turns: int = 12
    repeats: int = 2
    model_attempts: int = 5
    first_backoff_s: float = 0.5
    longest_backoff_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: a terminal state, the text for whoever asked, and the reason when it is not `done`.

    A `silent` one gives no answer; its text says why.
    """

    state: str
    text: str
    reason: str = ""
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Agent:
    """What the loop needs to act as an agent: its ports, the tools it may call and its limits."""

    model: Model
    tools: Tools
    specs: Sequence[ToolSpec]
    steps: Steps
    clock: Clock
    limits: Limits = Limits()
    options: ModelOptions = field(default_factory=ModelOptions)


async def converse(agent: Agent, conversation: Conversation) -> Outcome:
    """Go from a conversation that ends with a request to its outcome.

    Raises what the Steps port raises (Suspended, Fenced, Diverged, Retryable of the store): the run is then not over.
    """
    try:
        return await _take_turns(agent, conversation)
    except Exhausted as error:
        return Outcome("budget_exhausted", f"I stopped: {error}. Raise the budget, or ask for less.", str(error))


async def _take_turns(agent: Agent, conversation: Conversation) -> Outcome:
    last_call, repeats = "", 0
    for turn in range(1, agent.limits.turns + 1):
        conversation = conversation.plus(*(User(text) for text in await agent.steps.told()))
        cornered = turn == agent.limits.turns or repeats >= agent.limits.repeats
        try:
            answer, stop = await _ask(agent, conversation, () if cornered else agent.specs)
        except Permanent as error:
            return Outcome("failed", f"I could not work on this: {error}", str(error))
        if not answer.calls:
            return _cut_short(answer.text, turn) if cornered else _ended(answer.text, stop)
        results: list[ToolResult] = []
        for reads, calls in groupby(answer.calls, key=lambda call: _effect(agent, call) is Effect.READ):
            act = _together if reads else _in_order
            results += await act(agent, tuple(calls), last_call)
        if why := no_answer(answer.calls, results):
            return Outcome("done", why, silent=True)
        repeats = repeats + 1 if _fingerprint(answer.calls[-1]) == last_call else 0
        last_call = _fingerprint(answer.calls[-1])
        conversation = conversation.plus(answer, *results)
    return _cut_short("", agent.limits.turns)


async def _ask(agent: Agent, conversation: Conversation, specs: Sequence[ToolSpec]) -> tuple[Assistant, Stop]:
    async def act(_key: str) -> Mapping[str, Any]:
        return await _patiently(agent, lambda: _collect(agent, conversation, specs))

    request = {"messages": len(conversation.messages), "digest": _digest(conversation, specs)}
    most = {"tokens": agent.options.max_tokens + _characters(conversation) // _CHARACTERS_A_TOKEN}
    result = await agent.steps.perform(StepKind.MODEL_CALL, Effect.MODEL_CALL, request, act, most=most)
    calls = tuple(ToolCall(call["id"], call["name"], call["arguments"]) for call in result["calls"])
    return Assistant(result["text"], calls), Stop(result["stop"])


async def _collect(agent: Agent, conversation: Conversation, specs: Sequence[ToolSpec]) -> Mapping[str, Any]:
    text, calls, end = "", [], Finished(Stop.END, Usage())
    async for event in agent.model.stream(conversation, specs, agent.options):
        match event:
            case TextDelta():
                text += event.text
            case CallRequested():
                calls.append(asdict(event.call))
            case Finished():
                end = event
    return {"text": text, "calls": calls, "stop": end.stop.value, "model": agent.model.name, "usage": asdict(end.usage)}


async def _patiently(agent: Agent, call: Callable[[], Awaitable[Mapping[str, Any]]]) -> Mapping[str, Any]:
    """Retry what may work later, as long as the limits allow; then it is final."""
    limits = agent.limits
    for attempt, wait in enumerate(waits(limits.first_backoff_s, limits.longest_backoff_s), 1):
        try:
            return await call()
        except Retryable as error:
            if attempt == limits.model_attempts:
                raise Permanent(f"{error} (tried {attempt} times)") from error
            await agent.clock.sleep(min(error.retry_after or wait, limits.longest_backoff_s))
    raise AssertionError("waits never ends")


async def _together(agent: Agent, calls: Sequence[ToolCall], last_call: str) -> list[ToolResult]:
    if len(calls) == 1:
        return await _in_order(agent, calls, last_call)
    branches = agent.steps.branches(len(calls))
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_call(replace(agent, steps=branch), call, last_call))
                for branch, call in zip(branches, calls, strict=True)
            ]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def _in_order(agent: Agent, calls: Sequence[ToolCall], last_call: str) -> list[ToolResult]:
    return [await _call(agent, call, last_call) for call in calls]


async def _call(agent: Agent, call: ToolCall, last_call: str) -> ToolResult:
    spec = next((spec for spec in agent.specs if spec.name == call.name), None)
    if spec is None:
        names = ", ".join(spec.name for spec in agent.specs)
        return ToolResult(call.id, call.name, ok=False, text=f"There is no tool {call.name!r}. The tools are: {names}.")
    if wrong := fault(spec, call.arguments):
        return ToolResult(call.id, call.name, ok=False, text=f"The call was not made: {wrong}.")
    if _fingerprint(call) == last_call:
        return ToolResult(call.id, call.name, ok=False, text="You just made this very call; use its result, or answer.")

    if call.name in WAITING_TOOLS:
        return await wait_for(agent.steps, call)
    if call.name in TALKING_TOOLS:
        return await talk(agent.steps, call)

    async def act(key: str) -> Mapping[str, Any]:
        try:
            result = await agent.tools.execute(call, spec, key)
        except (Denied, Permanent, Retryable) as error:
            return {"ok": False, "text": f"The tool could not run: {error}"}
        return {"ok": result.ok, "text": result.text}

    request = {"tool": call.name, "arguments": call.arguments}
    result = await agent.steps.perform(StepKind.TOOL_CALL, spec.effect, request, act, agent.tools.probe)
    return ToolResult(call.id, call.name, ok=result["ok"], text=result["text"])


def _effect(agent: Agent, call: ToolCall) -> Effect | None:
    return next((spec.effect for spec in agent.specs if spec.name == call.name), None)


def _cut_short(text: str, turns: int) -> Outcome:
    reason = f"stopped after {turns} turns"
    if text:
        return Outcome("partial", text, reason)
    return Outcome("budget_exhausted", f"I {reason} without an answer. Ask again with a smaller question.", reason)


def _ended(text: str, stop: Stop) -> Outcome:
    match stop:
        case Stop.REFUSAL:
            return Outcome("blocked", text or "The model refused this request.", "the model refused")
        case Stop.MAX_TOKENS:
            return Outcome("partial", text or "My answer did not fit.", "the answer was cut at the token limit")
        case Stop.END | Stop.TOOL_CALLS:
            return Outcome("done", text) if text else Outcome("failed", "The model gave no answer.", EMPTY)


def _fingerprint(call: ToolCall) -> str:
    return json.dumps([call.name, call.arguments], sort_keys=True)


def _characters(conversation: Conversation) -> int:
    return len(conversation.system) + sum(len(json.dumps(asdict(message))) for message in conversation.messages)


def _digest(conversation: Conversation, specs: Sequence[ToolSpec]) -> str:
    said = [[type(message).__name__, asdict(message)] for message in conversation.messages]
    tools = [[spec.name, spec.description, spec.parameters] for spec in specs]
    text = json.dumps([conversation.system, said, tools], ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
