"""Laws of the loop: it ends, always with something to say, and a replay repeats nothing."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from copy import copy
from typing import Any

import pytest
from typing_extensions import override

from rucher.engine.loop import Agent, Limits, Outcome, converse
from rucher.engine.tools.waiting import ASK_OWNER, WAIT
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
from rucher.protocol.errors import Denied, Exhausted, Permanent, Retryable, Suspended
from rucher.protocol.ports import Proof, StepKind
from tests.fakes.clock import ManualClock

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
READ = ToolSpec("read", "reads", SCHEMA, Effect.READ)
WRITE = ToolSpec("write", "writes", SCHEMA, Effect.NON_IDEMPOTENT)
Reply = str | list[Any] | Exception
"""A text, calls as (name, arguments or the one argument `n`), or an error."""


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
                for name, given in calls:
                    arguments = {"n": given} if isinstance(given, int) else given
                    yield CallRequested(ToolCall(f"{len(self.seen)}-{given}", name, arguments))
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

    async def cancel(self, _keys: Collection[str]) -> None:
        raise AssertionError("the loop cancels nothing")


class Notebook:
    """Steps that remember results by their number, as the kernel does. `spoken` are the owner's words by turn."""

    def __init__(self, spoken: Mapping[int, str] | None = None, answers: Sequence[Mapping[str, Any]] = ()) -> None:
        self.results: dict[str, Mapping[str, Any]] = {}
        self.kinds: list[StepKind] = []
        self.most: list[Mapping[str, int] | None] = []
        self.waited: list[tuple[str, float | None]] = []
        self._spoken = spoken or {}
        self._answers = list(answers)
        self._turn = 0
        self._prefix = ""
        self._count = 0

    def again(self) -> "Notebook":
        """The same notebook, read from its first page: nothing new is said."""
        other = Notebook(self._spoken)
        other.results = self.results
        return other

    async def perform(
        self,
        kind: StepKind,
        effect: Effect,
        request: Mapping[str, Any],
        act: Callable[[str], Awaitable[Mapping[str, Any]]],
        probe: Callable[[str], Awaitable[Proof]] | None = None,
        most: Mapping[str, int] | None = None,
    ) -> Mapping[str, Any]:
        assert json.dumps(request)
        assert (probe is None) == (effect is Effect.MODEL_CALL)
        step = self._next()
        if step not in self.results:
            self.kinds.append(kind)
            self.most.append(most)
            self.results[step] = await act(step)
        return self.results[step]

    async def told(self) -> Sequence[str]:
        self._turn += 1
        return [self._spoken[self._turn]] if self._turn in self._spoken else []

    async def ask(self, question: str, expires_in_s: float | None) -> Mapping[str, Any]:
        self.waited.append((question, expires_in_s))
        step = self._next()
        if step not in self.results:
            self.results[step] = self._answers.pop(0)
        return self.results[step]

    async def sleep(self, seconds: float) -> None:
        self.waited.append(("sleep", seconds))
        self._next()

    async def emit(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self.consult(request, 0.0)

    async def consult(self, request: Mapping[str, Any], expires_in_s: float) -> Mapping[str, Any]:
        self.waited.append((json.dumps(request["arguments"]), expires_in_s))
        step = self._next()
        if step not in self.results:
            self.results[step] = self._answers.pop(0)
        return self.results[step]

    def branches(self, count: int) -> "Sequence[Notebook]":
        step = self._next()
        branches = [copy(self) for _ in range(count)]
        for number, branch in enumerate(branches, 1):
            branch._prefix, branch._count = f"{step}.{number}.", 0  # noqa: SLF001 - its own kind
        return branches

    def _next(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"


async def run(model: Talker, tools: Bench | None = None, steps: Notebook | None = None) -> Outcome:
    clock = ManualClock()
    specs = (READ, WRITE, ASK_OWNER, WAIT)
    agent = Agent(model, tools or Bench(), specs, steps or Notebook(), clock, Limits(turns=5, model_attempts=3))
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
    assert [tools for _, tools in model.seen] == [4, 4, 4, 0]
    assert (ended.state, ended.text) == ("partial", "all right")


def test_the_last_turn_is_for_answering() -> None:
    model = Talker(*([("read", n)] for n in range(4)), "what I have")
    assert asyncio.run(run(model)).state == "partial"
    assert [tools for _, tools in model.seen] == [4, 4, 4, 4, 0]


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
    first = asyncio.run(run(Talker([("read", 1), ("read", 3)], [("write", 2)], "done"), bench, steps))
    silent = Bench()
    assert asyncio.run(run(Talker(), silent, steps.again())) == first
    assert silent.log == []


def test_reads_side_by_side_are_steps_of_branches_and_all_else_of_the_run_itself() -> None:
    steps = Notebook()
    asyncio.run(run(Talker([("read", 1), ("read", 2), ("write", 3), ("read", 4)], "done"), Bench(), steps))
    assert list(steps.results) == ["1", "2.1.1", "2.2.1", "3", "4", "5"]
    assert steps.kinds == [StepKind.MODEL_CALL, *[StepKind.TOOL_CALL] * 4, StepKind.MODEL_CALL]


@pytest.mark.parametrize(
    ("answer", "ok", "heard"),
    [({"text": "blue"}, True, "The owner says: blue"), ({"expired": True}, False, "did not answer in time")],
)
def test_a_question_to_the_owner_is_a_wait_and_what_comes_of_it_reaches_the_model(
    answer: Mapping[str, Any], ok: bool, heard: str  # noqa: FBT001 - a table's column
) -> None:  # fmt: skip
    model = Talker([("ask_owner", {"question": "which?", "expires_in_hours": 2}), ("wait", {"minutes": 3})], "done")
    steps, bench = Notebook(answers=[answer]), Bench()
    assert asyncio.run(run(model, bench, steps)).state == "done"
    assert steps.waited == [("which?", 7200.0), ("sleep", 180.0)]
    assert bench.log == []
    told, waited = model.seen[-1][0].messages[-2:]
    assert isinstance(told, ToolResult)
    assert isinstance(waited, ToolResult)
    assert (told.ok, heard in told.text, waited.ok) == (ok, True, True)


def test_what_the_owner_says_meanwhile_reaches_the_model_before_its_next_turn() -> None:
    model = Talker([("read", 1)], [("read", 2)], "done")
    asyncio.run(run(model, steps=Notebook({1: "be quick", 3: "and kind"})))
    said = [[part.text for part in seen.messages if isinstance(part, User)] for seen, _ in model.seen]
    assert said == [["hello", "be quick"], ["hello", "be quick"], ["hello", "be quick", "and kind"]]
    assert isinstance(model.seen[-1][0].messages[-1], User)


def test_a_model_call_says_at_most_how_many_tokens_it_may_use_and_that_grows_with_the_conversation() -> None:
    steps = Notebook()
    asyncio.run(run(Talker([("read", 1)], "done"), Bench(), steps))
    first, tool, second = steps.most
    assert first is not None
    assert second is not None
    assert tool is None
    assert ModelOptions().max_tokens < first["tokens"] < second["tokens"]


def test_a_budget_that_is_used_up_ends_the_run_visibly() -> None:
    class Poor(Notebook):
        @override
        async def perform(self, kind: StepKind, *given: Any, **named: Any) -> Mapping[str, Any]:
            if kind is StepKind.MODEL_CALL and self.kinds:
                raise Exhausted("the budget does not cover it")
            return await super().perform(kind, *given, **named)

    ended = asyncio.run(run(Talker([("read", 1)], "never said"), Bench(), Poor()))
    assert ended.state == "budget_exhausted"
    assert "the budget does not cover it" in ended.text


def test_an_empty_answer_is_not_success() -> None:
    assert outcome("").state == "failed"
