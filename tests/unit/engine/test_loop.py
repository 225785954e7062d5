"""Laws of the loop: it ends, always with something to say, and a replay repeats nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
from typing_extensions import override

from rucher.engine.loop import Agent, Limits, Outcome, converse
from rucher.protocol.conversation import (
    Assistant,
    CallRequested,
    Conversation,
    Effect,
    Finished,
    ModelEvent,
    ModelOptions,
    Stop,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    User,
)
from rucher.protocol.errors import Denied, Permanent, Retryable, Suspended
from rucher.protocol.ports import Proof
from tests.fakes.clock import ManualClock

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
READ = ToolSpec("read", "reads", SCHEMA, Effect.READ)
WRITE = ToolSpec("write", "writes", SCHEMA, Effect.NON_IDEMPOTENT)
Reply = str | list[tuple[str, int]] | Exception


class Talker:
    """A model that gives these replies in turn: a text, tool calls, or an error."""

    name = "talker"

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.seen: list[tuple[Conversation, int]] = []

    async def stream(
        self, conversation: Conversation, tools: Sequence[ToolSpec], _options: ModelOptions
    ) -> AsyncIterator[ModelEvent]:
        self.seen.append((conversation, len(tools)))
        match self.replies.pop(0):
            case str() as text:
                yield TextDelta(text)
                yield Finished(Stop.END)
            case list() as calls:
                for name, n in calls:
                    yield CallRequested(ToolCall(f"{len(self.seen)}-{n}", name, {"n": n}))
                yield Finished(Stop.TOOL_CALLS)
            case Exception() as error:
                raise error


class Bench:
    """Tools that note when each call begins and ends."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.log: list[str] = []
        self.fails = fails

    async def execute(self, call: ToolCall, spec: ToolSpec, _key: str) -> ToolResult:
        self.log.append(f"begin {spec.name} {call.arguments['n']}")
        await asyncio.sleep(0)
        self.log.append(f"end {spec.name} {call.arguments['n']}")
        if self.fails:
            raise self.fails
        return ToolResult(call.id, call.name, ok=True, text=f"got {call.arguments['n']}")

    async def probe(self, _key: str) -> Proof:
        return Proof.NOT_DONE


class Notebook:
    """Steps that remember results, as the kernel does."""

    def __init__(self) -> None:
        self.results: list[tuple[str, Mapping[str, Any]]] = []
        self.at = 0

    async def perform(
        self,
        kind: str,
        _effect: Effect,
        _request: Mapping[str, Any],
        act: Callable[[str], Awaitable[Mapping[str, Any]]],
        _probe: Callable[[str], Awaitable[Proof]] | None = None,
    ) -> Mapping[str, Any]:
        place, self.at = self.at, self.at + 1
        if place < len(self.results):
            return self.results[place][1]
        result = await act(str(place))
        self.results.append((kind, result))
        return result


async def run(model: Talker, tools: Bench | None = None, steps: Notebook | None = None) -> Outcome:
    clock = ManualClock()
    agent = Agent(model, tools or Bench(), (READ, WRITE), steps or Notebook(), clock, Limits(turns=5, model_attempts=3))
    task = asyncio.ensure_future(converse(agent, Conversation("be good", (User("hello"),))))
    while not task.done():
        await asyncio.sleep(0)
        clock.advance(1)
    return task.result()


def outcome(*replies: Reply, tools: Bench | None = None) -> Outcome:
    return asyncio.run(run(Talker(*replies), tools))


def test_a_text_ends_the_run() -> None:
    assert outcome("hi") == Outcome("done", "hi")


def test_results_reach_the_model_right_after_the_calls_they_answer() -> None:
    model = Talker([("read", 1), ("read", 2)], "done")
    asyncio.run(run(model))
    conversation, _ = model.seen[-1]
    _, answer, first, second = conversation.messages
    assert isinstance(answer, Assistant)
    assert isinstance(first, ToolResult)
    assert isinstance(second, ToolResult)
    assert [first.call_id, second.call_id] == [call.id for call in answer.calls]


def test_reads_run_side_by_side_and_writes_in_order() -> None:
    bench = Bench()
    outcome([("read", 1), ("read", 2), ("write", 3), ("write", 4), ("read", 5)], "done", tools=bench)
    assert bench.log == [
        "begin read 1", "begin read 2", "end read 1", "end read 2", "begin write 3", "end write 3", "begin write 4",
        "end write 4", "begin read 5", "end read 5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("fly", {"n": 1}, "no tool 'fly'"),
        ("read", {"n": "x"}, "argument n"),
        ("read", {}, "required"),
        ("read", {"n": 1, "m": 2}, "m"),
    ],
)
def test_a_call_that_cannot_be_made_is_told_to_the_model_and_not_made(
    name: str, arguments: Mapping[str, Any], said: str
) -> None:
    class Wild(Talker):
        @override
        async def stream(
            self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions
        ) -> AsyncIterator[ModelEvent]:
            if not self.seen:
                self.seen.append((conversation, 0))
                yield CallRequested(ToolCall("1", name, arguments))
                yield Finished(Stop.TOOL_CALLS)
                return
            async for event in super().stream(conversation, tools, options):
                yield event

    bench, model = Bench(), Wild("sorry")
    assert asyncio.run(run(model, bench)).state == "done"
    assert bench.log == []
    result = model.seen[-1][0].messages[-1]
    assert isinstance(result, ToolResult)
    assert said in result.text


def test_a_model_that_repeats_itself_is_left_without_tools_and_must_answer() -> None:
    bench = Bench()
    model = Talker([("read", 1)], [("read", 1)], [("read", 1)], "all right")
    ended = asyncio.run(run(model, bench))
    assert bench.log == ["begin read 1", "end read 1"]
    assert [tools for _, tools in model.seen] == [2, 2, 2, 0]
    assert (ended.state, ended.text) == ("partial", "all right")


def test_the_last_turn_is_for_answering() -> None:
    model = Talker(*([("read", n)] for n in range(4)), "what I have")
    assert asyncio.run(run(model)).state == "partial"
    assert [tools for _, tools in model.seen] == [2, 2, 2, 2, 0]


def test_a_model_that_never_answers_ends_visibly() -> None:
    ended = outcome(*([("read", n)] for n in range(5)))
    assert ended.state == "budget_exhausted"
    assert ended.text


def test_what_may_work_later_is_tried_again_and_then_fails_visibly() -> None:
    assert outcome(Retryable("busy"), Retryable("busy"), "hi").state == "done"
    ended = outcome(*(Retryable("busy") for _ in range(3)))
    assert (ended.state, "busy" in ended.text) == ("failed", True)


def test_what_will_never_work_is_tried_once() -> None:
    model = Talker(Permanent("bad key"), "never said")
    ended = asyncio.run(run(model))
    assert (ended.state, len(model.seen)) == ("failed", 1)
    assert "bad key" in ended.text


@pytest.mark.parametrize("error", [Denied("no sandbox here"), Retryable("it died"), Permanent("no")])
def test_a_tool_that_cannot_run_is_told_to_the_model(error: Exception) -> None:
    model = Talker([("write", 1)], "I see")
    assert asyncio.run(run(model, Bench(error))).state == "done"
    result = model.seen[-1][0].messages[-1]
    assert isinstance(result, ToolResult)
    assert (result.ok, str(error) in result.text) == (False, True)


def test_what_the_kernel_raises_passes_through_also_from_reads_side_by_side() -> None:
    class Parked(Bench):
        @override
        async def execute(self, call: ToolCall, spec: ToolSpec, _key: str) -> ToolResult:
            raise Suspended("R", "2", f"{spec.name} {call.id}")

    for calls in ([("write", 1)], [("read", 1), ("read", 2)]):
        with pytest.raises(Suspended):
            outcome(calls, tools=Parked())


def test_a_replay_asks_neither_model_nor_tools_again() -> None:
    steps, bench = Notebook(), Bench()
    first = asyncio.run(run(Talker([("read", 1)], [("write", 2)], "done"), bench, steps))
    steps.at = 0
    silent = Bench()
    assert asyncio.run(run(Talker(), silent, steps)) == first
    assert silent.log == []


def test_an_empty_answer_is_not_success() -> None:
    assert outcome("").state == "failed"
