"""Laws of the views under chance: whatever happens to runs, nobody is forgotten, and folding anew gives the same views."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from typing_extensions import override

from rucher.journal.artifacts import Artifacts
from rucher.journal.store import open_store
from rucher.kernel.run import Run
from rucher.kernel.spec import TERMINAL, RunSpec
from rucher.kernel.steps import RunSteps
from rucher.kernel.waits import Item, event, timer
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import BadInput, Suspended
from rucher.protocol.ports import StepKind
from tests.fakes.clock import ManualClock
from tests.fakes.drafts import run_spec
from tests.fakes.kernel import MEMORY, Counter, Scene, tool, views_of

LANES, TOPICS = ("L", "M"), ("t0", "t1", "t2")
Part = Callable[[RunSteps], Awaitable[Any]]
which = st.integers(0, 99)
items = st.lists(st.sampled_from(TOPICS) | st.integers(0, 30), max_size=3)


@dataclass
class Actor:
    """A run, what it does from its first step on, and the process that has it."""

    spec: RunSpec
    parts: list[Part] = field(default_factory=list)
    run: Run | None = None
    steps: RunSteps | None = None


class Runs(RuleBasedStateMachine):
    """Runs in two lanes, with their children; the worker takes only what the views say can be taken."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY)))
        self.actors: list[Actor] = []
        self.key = 0
        self.do(self._open())

    async def _open(self) -> None:
        clock = ManualClock()
        store = await self.stack.enter_async_context(open_store(self.folder / "rucher.db", clock))
        self.scene = Scene(store, clock, Artifacts(self.folder / "artifacts"))

    def do(self, what: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(what)

    def actor(self, number: int) -> Actor | None:
        return self.actors[number % len(self.actors)] if self.actors else None

    def next_key(self) -> str:
        self.key += 1
        return f"{self.key}"

    @rule(lane=st.sampled_from(LANES), priority=st.integers(0, 1))
    def somebody_asks(self, lane: str, priority: int) -> None:
        spec = run_spec(self.next_key(), lane=lane, priority=priority)
        self.actors.append(Actor(spec))
        self.do(self.scene.kernel().create(spec))

    @rule(number=which)
    def takes_a_step(self, number: int) -> None:
        self.works(number, lambda steps: tool(steps, Counter().act, Effect.IDEMPOTENT_WRITE))

    @rule(number=which, waited=items, of_all=st.booleans())
    def waits(self, number: int, waited: list[str | int], of_all: bool) -> None:  # noqa: FBT001 - drawn
        now = self.scene.clock.now()
        wanted: list[Item] = [
            event(each) if isinstance(each, str) else timer(now + each * 1_000_000) for each in waited
        ]
        self.works(number, lambda steps: steps.wait(StepKind.JOIN, {}, "waits", wanted, "all" if of_all else "any"))

    @rule(number=which, joined=st.booleans())
    def spawns(self, number: int, joined: bool) -> None:  # noqa: FBT001 - drawn
        actor = self.actor(number)
        if actor is None:
            return
        parent = actor.spec.run_id

        def child(run_id: str) -> RunSpec:
            return run_spec(run_id, run_id=run_id, parent=parent, lane=run_id)

        async def part(steps: RunSteps) -> None:
            run_id = await steps.spawn({}, child)
            if all(each.spec.run_id != run_id for each in self.actors):
                self.actors.append(Actor(child(run_id)))
            if joined:
                await steps.join([run_id])

        self.works(number, part)

    def works(self, number: int, part: Part) -> None:
        """The run does this next, if it can be worked on: taken over first by a process that has it not."""
        actor = self.actor(number)
        if actor is not None:
            self.do(self._works(actor, part))

    async def _works(self, actor: Actor, part: Part) -> None:
        row = await self.scene.row(actor.spec.run_id)
        if actor.steps is None:
            if row["state"] not in ("ready", "running") or row["wish"] == "cancel":
                return
            actor.run = await self.scene.kernel().open(actor.spec)
            assert not actor.run.parked, "a run that must still wait could be taken"
            actor.steps = RunSteps(actor.run)
            again = list(actor.parts)
        else:
            again = []
        assert actor.run is not None
        actor.run.wish = "pause" if row["wish"] == "pause" else ""
        actor.parts.append(part)
        try:
            for each in (*again, part):  # what is recorded comes back, what is not is done
                await each(actor.steps)
        except Suspended:
            actor.run = actor.steps = None

    @rule(number=which)
    def is_killed(self, number: int) -> None:
        if (actor := self.actor(number)) is not None:
            actor.run = actor.steps = None

    @rule(number=which, state=st.sampled_from(["done", "failed"]))
    def ends(self, number: int, state: str) -> None:
        actor = self.actor(number)
        if actor is not None:
            self.do(self._ends(actor, state))

    async def _ends(self, actor: Actor, state: str) -> None:
        run_id = actor.spec.run_id
        if (await self.scene.row(run_id))["wish"] == "cancel":
            if run_id not in await self.scene.claimable():
                return
            actor.run, state = await self.scene.kernel().open(actor.spec, to_end=True), "cancelled"
        if actor.run is not None:
            await actor.run.finish(state, "")
            actor.run = actor.steps = None

    @rule(topic=st.sampled_from(TOPICS))
    def is_signalled(self, topic: str) -> None:
        self.do(self.scene.signal(topic, {"to": topic}))

    @rule(seconds=st.integers(1, 20))
    def time_passes(self, seconds: int) -> None:
        self.scene.clock.advance(seconds)
        self.do(self.scene.timers.fire_due())

    @rule(
        orders=st.lists(st.tuples(st.sampled_from(["pause", "resume", "resume", "cancel", "steer"]), which), max_size=3)
    )
    def the_owner_orders(self, orders: list[tuple[str, int]]) -> None:
        self.do(self._ordered(orders))

    async def _ordered(self, orders: list[tuple[str, int]]) -> None:
        async def order(kind: str, run_id: str, key: str) -> None:
            at = self.scene.orders
            calls = {"pause": at.pause, "resume": at.resume, "cancel": at.cancel}
            await (at.steer(run_id, key, "faster") if kind == "steer" else calls[kind](run_id, key))

        given = [(kind, actor.spec.run_id, self.next_key()) for kind, at in orders if (actor := self.actor(at))]
        said = await asyncio.gather(*(order(*each) for each in given), return_exceptions=True)
        assert all(each is None or isinstance(each, BadInput) for each in said), said

    @invariant()
    def nobody_is_forgotten(self) -> None:
        self.do(self._nobody_is_forgotten())

    async def _nobody_is_forgotten(self) -> None:
        rows = {actor.spec.run_id: dict(await self.scene.row(actor.spec.run_id)) for actor in self.actors}
        waits = {run_id: await self.scene.store.rows("run.waits", run_id) for run_id in rows}
        claimable = set(await self.scene.claimable())
        for run_id, row in rows.items():
            if row["state"] in TERMINAL:
                assert not waits[run_id]
                assert run_id not in claimable
            elif row["wish"] == "cancel":
                parents_wait = any(
                    each["parent_id"] == run_id and each["state"] not in TERMINAL for each in rows.values()
                )
                assert (run_id in claimable) != parents_wait
            elif row["state"] == "waiting":
                met = [wait["state"] == "met" for wait in waits[run_id]]
                assert not all(met)
                assert not (any(met) and waits[run_id][0]["mode"] == "any")
            elif row["wish"] == "pause":
                assert run_id not in claimable or row["state"] == "running"
        for lane in {row["lane"] for row in rows.values()}:
            mine = [row for row in rows.values() if row["lane"] == lane]
            going = [row for row in mine if row["state"] in ("ready", "running")]
            assert sum(row["wish"] != "cancel" for row in going) <= 1
            assert going or not any(row["state"] == "queued" and row["wish"] == "" for row in mine), (
                "a lane stands still"
            )

    @override
    def teardown(self) -> None:
        before = views_of(self.folder / "rucher.db")
        assert self.do(self.scene.store.rebuild()) == self.scene.store.head
        assert views_of(self.folder / "rucher.db") == before
        self.do(self.stack.aclose())
        self.runner.close()


TestRuns = Runs.TestCase
TestRuns.settings = settings(max_examples=20, stateful_step_count=30)
