"""What the runs of chaos tests do: scripts of steps whose effects are outside, and what must be counted of each.

Played by `worker_program.py`. A script is ordinary code, as the engine is: run again with the same answers, it asks for the
same steps.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from rucher.engine.loop import Agent, converse
from rucher.kernel.run import Run
from rucher.kernel.runs import VERDICTS
from rucher.kernel.spec import RunSpec
from rucher.kernel.steps import RunSteps
from rucher.kernel.waits import approval, timer
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
    Usage,
    User,
)
from rucher.protocol.ports import Clock, Proof, StepKind
from tests.chaos.outside import Outside, once

NAP_US = 60_000
LARGE = 20_000


class Way(StrEnum):
    """How a step acts on what is outside."""

    READ = "read"
    MODEL = "model"
    STORED = "stored"
    PROBED = "probed"
    BLIND = "blind"

    @property
    def effect(self) -> Effect:
        """Its effect class."""
        match self:
            case Way.READ:
                return Effect.READ
            case Way.MODEL:
                return Effect.MODEL_CALL
            case Way.STORED:
                return Effect.IDEMPOTENT_WRITE
            case Way.PROBED | Way.BLIND:
                return Effect.NON_IDEMPOTENT

    @property
    def may_repeat(self) -> bool:
        """Whether a kill may make it happen once more."""
        return self in (Way.READ, Way.MODEL)


class Hands:
    """What a script acts with: the steps of its run, and the outside."""

    def __init__(self, outside: Outside, reach: Callable[[str], Awaitable[None]], clock: Clock, run: Run) -> None:
        self.run = run
        self.steps = RunSteps(run)
        self.clock = clock
        self._outside = outside
        self._reach = reach

    async def do(
        self, way: Way, label: str, *, kind: StepKind | None = None, size: int = 0, gate: str = "", seconds: float = 0.0
    ) -> str:
        """One step; before its effect it waits for the `gate`, then for so many `seconds`."""

        async def act(key: str) -> Mapping[str, Any]:
            await self._wait_at(gate, label)
            await asyncio.sleep(seconds)
            await self.have_effect(way, label, key)
            usage = {"input_tokens": 10, "output_tokens": 5, "nanodollars": 7} if way is Way.MODEL else {}
            return {"text": label, "rest": "x" * size, "usage": usage}

        async def probe(key: str) -> Proof:
            if way is Way.BLIND:
                return Proof.UNKNOWN
            return self.proof(key)

        kind = kind or (StepKind.MODEL_CALL if way is Way.MODEL else StepKind.TOOL_CALL)
        most = {"tokens": 100} if way is Way.MODEL else None
        result = await self.steps.perform(kind, way.effect, {"label": label}, act, probe, most)
        return label if result == VERDICTS["ran"] else str(result["text"])

    async def _wait_at(self, gate: str, label: str) -> None:
        if gate:
            self._outside.note("begun", self.run.spec.run_id, label)
            await once(lambda: self._outside.is_open(gate))

    def proof(self, key: str) -> Proof:
        """Whether there was an effect under this key."""
        return Proof.DONE if self._outside.knows(key) else Proof.NOT_DONE

    async def have_effect(self, way: Way, label: str, key: str) -> None:
        """Act on what is outside; there is an edge before it and one after it."""
        run_id = self.run.spec.run_id
        await self._reach(f"before {label}")
        if way is Way.STORED:
            self._outside.act_once(run_id, label, key)
        elif way is not Way.PROBED or not self._outside.knows(key):
            self._outside.act(way, run_id, label, key)
        await self._reach(f"after {label}")

    def _on(self, branch: RunSteps) -> "Hands":
        hands = copy(self)
        hands.steps = branch
        return hands

    async def reads(self, *labels: str) -> list[str]:
        """Reads at the same time, in branches."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._on(branch).do(Way.READ, label))
                    for label, branch in zip(labels, self.steps.branches(len(labels)), strict=True)
                ]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    async def nap(self, microseconds: int = NAP_US) -> None:
        """Sleep by the wall clock, holding nothing meanwhile."""
        due = self.clock.now() + microseconds
        await self.steps.wait(StepKind.TIMER, {"nap": microseconds}, "naps", [timer(due)])

    async def may(self) -> bool:
        """Ask the owner."""
        topic = f"may:{self.run.spec.run_id}"
        (said,) = await self.steps.wait(StepKind.WAIT_HUMAN, {"may": True}, "asks its owner", [approval(topic)])
        return bool(said and said["approved"])

    async def helped(self, agent: str) -> list[str]:
        """What a child run says."""
        child = await self.steps.spawn({"agent": agent}, lambda run_id: self._child(run_id, agent))
        await self._reach("between spawn and join")
        (ended,) = await self.steps.join([child])
        return list(ended["result"]["said"]) if ended else []

    def _child(self, run_id: str, agent: str) -> RunSpec:
        old = self.run.spec
        return replace(
            old, run_id=run_id, agent=agent, parent=old.run_id, lane=run_id, accounts=(run_id, *old.accounts),
            ceilings={run_id: {"tokens": 1000}},
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Script:
    """What a run does, and each effect that it must have had when it is done; `said` is its result."""

    play: Callable[[Hands], Awaitable[list[str]]]
    effects: Mapping[str, Way]
    said: tuple[str, ...]


async def _everything(it: Hands) -> list[str]:
    await it.steps.note(StepKind.CHECKPOINT, {"at": "begin"}, {"kept": True})
    said = [await it.do(Way.MODEL, "ask"), *await it.reads("left", "right")]
    said += [await it.do(Way.STORED, "store"), await it.do(Way.PROBED, "post"), await it.do(Way.BLIND, "mail")]
    said += [await it.do(Way.READ, "book", size=LARGE), *await it.helped("child")]
    await it.nap()
    said += ["yes" if await it.may() else "no"]
    await it.steps.note(StepKind.COMPACTION, {"at": "end"}, {"kept": True})
    said += [await it.do(Way.MODEL, "again"), await it.do(Way.STORED, "deliver", kind=StepKind.DELIVERY)]
    await it.steps.note(StepKind.VERDICT, {"good": True}, {"good": True})
    return said


async def _child(it: Hands) -> list[str]:
    return [await it.do(Way.MODEL, "think"), await it.do(Way.PROBED, "help")]


async def _load(it: Hands) -> list[str]:
    said = [await it.do(Way.MODEL, "ask", seconds=0.01), *await it.reads("left", "right")]
    said += [await it.do(Way.STORED, "store", seconds=0.01), await it.do(Way.PROBED, "post", seconds=0.01)]
    await it.nap()
    return [*said, await it.do(Way.BLIND, "mail", seconds=0.02), *await it.helped("child")]


async def _sure(it: Hands) -> list[str]:
    said = [await it.do(Way.MODEL, "ask"), await it.do(Way.READ, "look"), await it.do(Way.STORED, "store")]
    await it.nap()
    return [*said, await it.do(Way.PROBED, "post"), *await it.helped("child"), await it.do(Way.STORED, "deliver")]


async def _held(it: Hands) -> list[str]:
    return [await it.do(Way.PROBED, "first", gate="release"), await it.do(Way.PROBED, "second")]


async def _held_blind(it: Hands) -> list[str]:
    return [await it.do(Way.BLIND, "first", gate="release"), await it.do(Way.PROBED, "second")]


async def _long(it: Hands) -> list[str]:
    return [await it.do(Way.BLIND, "long", seconds=3.0), await it.do(Way.BLIND, "after")]


async def _asking(it: Hands) -> list[str]:
    return ["yes" if await it.may() else "no", await it.do(Way.BLIND, "act")]


async def _sleeping(it: Hands) -> list[str]:
    for _ in range(3):
        await it.nap(300_000)
    return [await it.do(Way.BLIND, "wake")]


async def _talking(it: Hands) -> list[str]:
    specs = [ToolSpec(way, "", {"type": "object"}, way.effect) for way in (Way.READ, Way.STORED, Way.PROBED)]
    agent = Agent(_TalkingModel(it), _OutsideTools(it), specs, it.steps, it.clock)
    outcome = await converse(agent, Conversation("", (User("go"),)))
    return [outcome.state, *outcome.text.split()]


class _TalkingModel:
    """Calls tools in two turns, then says what came of them; takes no conversation that a provider would refuse."""

    name = "talking"

    def __init__(self, it: Hands) -> None:
        self._it = it

    async def stream(
        self, conversation: Conversation, _tools: Sequence[ToolSpec], _options: ModelOptions
    ) -> AsyncIterator[ModelEvent]:
        results = _demand_valid(conversation)
        turn = sum(isinstance(message, Assistant) for message in conversation.messages)
        await self._it.have_effect(Way.MODEL, f"turn{turn}", "-")
        if turn == len(_TURNS):
            yield TextDelta(" ".join(result.text for result in results))
            yield Finished(Stop.END, Usage(10, 0, 5))
            return
        for way, label in _TURNS[turn]:
            yield CallRequested(ToolCall(f"call-{label}", way, {"label": label}))
        yield Finished(Stop.TOOL_CALLS, Usage(10, 0, 5))


class _OutsideTools:
    """Tools whose effects are outside."""

    def __init__(self, it: Hands) -> None:
        self._it = it

    async def execute(self, call: ToolCall, _spec: ToolSpec, key: str) -> ToolResult:
        label = str(call.arguments["label"])
        await self._it.have_effect(Way(call.name), label, key)
        return ToolResult(call.id, call.name, ok=True, text=label)

    async def probe(self, key: str) -> Proof:
        return self._it.proof(key)

    async def cancel(self, _keys: Collection[str]) -> None:
        raise AssertionError("the loop cancels nothing")


def _demand_valid(conversation: Conversation) -> list[ToolResult]:
    """All results so far; every call has its result right behind it, in order, and nothing else comes between."""
    results: list[ToolResult] = []
    open_calls: list[str] = []
    for message in conversation.messages:
        match message:
            case ToolResult():
                assert open_calls[:1] == [message.call_id], "a result without its call, or out of order"
                open_calls.pop(0)
                results.append(message)
            case Assistant() | User():
                assert not open_calls, f"calls without results: {open_calls}"
                open_calls = [call.id for call in message.calls] if isinstance(message, Assistant) else []
    assert not open_calls, f"calls without results: {open_calls}"
    return results


_TURNS = (
    ((Way.READ, "first"), (Way.READ, "second"), (Way.STORED, "store"), (Way.PROBED, "post")),
    ((Way.PROBED, "more"), (Way.STORED, "deliver")),
)


async def _tiny(it: Hands) -> list[str]:
    return [await it.do(Way.READ, "look")]


SCRIPTS: Mapping[str, Script] = {
    "everything": Script(
        _everything,
        {
            "ask": Way.MODEL, "left": Way.READ, "right": Way.READ, "store": Way.STORED, "post": Way.PROBED,
            "mail": Way.BLIND, "book": Way.READ, "again": Way.MODEL, "deliver": Way.STORED,
        },
        ("ask", "left", "right", "store", "post", "mail", "book", "think", "help", "yes", "again", "deliver"),
    ),
    "child": Script(_child, {"think": Way.MODEL, "help": Way.PROBED}, ("think", "help")),
    "load": Script(
        _load,
        {
            "ask": Way.MODEL, "left": Way.READ, "right": Way.READ, "store": Way.STORED, "post": Way.PROBED,
            "mail": Way.BLIND,
        },
        ("ask", "left", "right", "store", "post", "mail", "think", "help"),
    ),
    "sure": Script(
        _sure,
        {"ask": Way.MODEL, "look": Way.READ, "store": Way.STORED, "post": Way.PROBED, "deliver": Way.STORED},
        ("ask", "look", "store", "post", "think", "help", "deliver"),
    ),
    "held": Script(_held, {"first": Way.PROBED, "second": Way.PROBED}, ("first", "second")),
    "held_blind": Script(_held_blind, {"first": Way.BLIND, "second": Way.PROBED}, ("first", "second")),
    "long": Script(_long, {"long": Way.BLIND, "after": Way.BLIND}, ("long", "after")),
    "asking": Script(_asking, {"act": Way.BLIND}, ("yes", "act")),
    "sleeping": Script(_sleeping, {"wake": Way.BLIND}, ("wake",)),
    "talking": Script(
        _talking,
        {label: way for turn in _TURNS for way, label in turn} | {f"turn{turn}": Way.MODEL for turn in range(3)},
        ("done", *(label for turn in _TURNS for _, label in turn)),
    ),
    "tiny": Script(_tiny, {"look": Way.READ}, ("look",)),
}  # fmt: skip
