"""Laws of budgets under chance: over any steps, kills and retries the books agree with a plain model of them."""

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rucher.kernel.run import Run
from rucher.kernel.spec import RunSpec
from rucher.kernel.steps import RunSteps
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import Exhausted
from rucher.protocol.ports import StepKind
from tests.fakes.drafts import run_spec
from tests.fakes.kernel import MEMORY, Killed, Scene, tell

CEILINGS = {"tokens": 60, "turns": 4, "tool_calls": 5, "wall_us": 15}
EXACT = "tool_calls"
"""What every step that uses it holds back: all of it may be used and other steps still be done."""


@dataclass(frozen=True)
class Op:
    """One step of a run: what it may use and does use, whether it is killed in it; or, with kind `end`, its end."""

    run: int
    kind: str
    most: int
    used: int
    killed: bool


ops = st.builds(
    lambda run, kind, most, share, killed: Op(run, kind, most, most * share // 4, killed),
    st.integers(0, 2), st.sampled_from(["model", "model", "write", "read", "kill", "end"]), st.integers(0, 30),
    st.integers(0, 4), st.booleans(),
)  # fmt: skip


@dataclass
class Books:
    """The plain model of all accounts."""

    spent: Counter[tuple[str, str]] = field(default_factory=Counter)
    reserved: Counter[tuple[str, str]] = field(default_factory=Counter)

    def reserve(self, accounts: tuple[str, ...], amounts: Mapping[str, int]) -> bool:
        """Whether every account covers it, with nothing used up; nothing is held back when one does not."""
        for account in accounts:
            for measure, most in CEILINGS.items():
                amount, spent = amounts.get(measure, 0), self.spent[account, measure]
                ceiling = most * (2 if account == "mission" else 1)
                if spent + self.reserved[account, measure] + amount > ceiling:
                    return False
                if spent >= ceiling and measure != EXACT:
                    return False
        for account in accounts:
            self.reserved.update({(account, measure): amount for measure, amount in amounts.items()})
        return True

    def settle(self, accounts: tuple[str, ...], used: Mapping[str, int], freed: Mapping[str, int]) -> None:
        for account in accounts:
            self.spent.update({(account, measure): amount for measure, amount in used.items()})
            self.reserved.subtract({(account, measure): amount for measure, amount in freed.items()})


@dataclass
class Actor:
    """A run as the model knows it: the steps it asked for, how far they are recorded, and the process that has it."""

    spec: RunSpec
    asked: list[Op] = field(default_factory=list)
    recorded: int = 0
    held: Op | None = None
    pending: Mapping[str, int] | None = None
    run: Run | None = None
    steps: RunSteps | None = None
    ended: bool = False


def amounts(op: Op, tokens: int) -> dict[str, int]:
    if op.kind != "model":
        return {"tool_calls": 1}
    return {"turns": 1} | ({"tokens": tokens} if tokens else {})


class Play:
    """What the operations do to the real runs, and to the model."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.books = scene, Books()
        specs = [run_spec(name) for name in ("parent", "child", "other")]
        above: list[tuple[str, ...]] = [(), (specs[0].run_id,), ()]
        mission = {name: 2 * most for name, most in CEILINGS.items()}
        self.actors = []
        for spec, up in zip(specs, above, strict=True):
            accounts, ceilings = (spec.run_id, *up, "mission"), {spec.run_id: CEILINGS, "mission": mission}
            self.actors.append(Actor(replace(spec, accounts=accounts, ceilings=ceilings)))

    async def do(self, op: Op) -> None:
        actor = self.actors[op.run]
        if actor.ended:
            return
        match op.kind:
            case "kill":
                self.killed(actor)
            case "end":
                await self.end(actor)
            case _:
                await self.step(actor, op)

    def killed(self, actor: Actor) -> None:
        if actor.held is not None:
            actor.pending, actor.held = self.wanted(actor.held), None
        actor.run = actor.steps = None

    def wanted(self, op: Op) -> dict[str, int]:
        return amounts(op, op.most)

    async def step(self, actor: Actor, op: Op) -> None:
        steps = await self.reopened(actor)
        if actor.held is None and len(actor.asked) > actor.recorded:
            op = replace(actor.asked[-1], killed=op.killed)  # what was interrupted is asked for again
        if not self.begun(actor, op):
            try:
                await self.perform(steps, actor, op)
            except Exhausted:
                return
            raise AssertionError("a budget was passed")
        try:
            await self.perform(steps, actor, op)
        except Killed:
            actor.run = actor.steps = None
            return
        actor.held, actor.pending = op, None

    def begun(self, actor: Actor, op: Op) -> bool:
        """Whether the books cover the step: the results before it are written with its intention, or stay held."""
        wanted, before = self.wanted(op), (Counter(self.books.spent), Counter(self.books.reserved))
        held, pending = actor.held, actor.pending
        self.written(actor)
        covered = True
        if actor.pending is None:
            covered = self.books.reserve(actor.spec.accounts, wanted)
        elif op.kind == "model":
            self.books.settle(actor.spec.accounts, wanted, wanted)
            covered = self.books.reserve(actor.spec.accounts, wanted)
        if not covered:
            self.books.spent, self.books.reserved = before
            if held is not None:
                actor.recorded -= 1
            actor.held, actor.pending = held, pending
            return False
        if len(actor.asked) == actor.recorded:
            actor.asked.append(op)
        actor.pending = wanted
        return True

    def written(self, actor: Actor) -> None:
        """The held result is committed."""
        if actor.held is not None:
            op = actor.held
            used = amounts(op, op.used) | ({"wall_us": op.used} if op.used else {})
            self.books.settle(actor.spec.accounts, used, self.wanted(op))
            actor.recorded += 1
            actor.held = None

    async def perform(self, steps: RunSteps, actor: Actor, op: Op) -> Mapping[str, Any]:
        number = actor.recorded

        async def act(_key: str) -> Mapping[str, Any]:
            if op.killed:
                raise Killed
            self.scene.clock.advance(op.used / 1e6)
            return {"usage": {"input_tokens": op.used, "output_tokens": 0}} if op.kind == "model" else {}

        kind = StepKind.MODEL_CALL if op.kind == "model" else StepKind.TOOL_CALL
        effect = {"model": Effect.MODEL_CALL, "write": Effect.IDEMPOTENT_WRITE, "read": Effect.READ}[op.kind]
        most = {"tokens": op.most} if op.kind == "model" else {}
        return await steps.perform(kind, effect, {"n": number, "kind": op.kind}, act, most=most)

    async def reopened(self, actor: Actor) -> RunSteps:
        """The process that has the run, or a new one that has replayed what is recorded."""
        if actor.steps is None:
            actor.run = await self.scene.open(actor.spec)
            actor.steps = RunSteps(actor.run)
            recorded, actor.recorded = actor.recorded, 0
            for number in range(recorded):
                actor.recorded = number
                await self.perform(actor.steps, actor, replace(actor.asked[number], killed=True))
            actor.recorded = recorded
        return actor.steps

    async def end(self, actor: Actor) -> None:
        await self.reopened(actor)
        self.written(actor)
        if actor.pending is not None:
            charged = self.wanted(actor.asked[-1]) if actor.asked[-1].kind == "model" else {}
            self.books.settle(actor.spec.accounts, charged, actor.pending)
        assert actor.run is not None
        await actor.run.finish("done", "")
        actor.ended = True

    async def check(self) -> None:
        accounts = {account for actor in self.actors for account in actor.spec.accounts}
        for account in accounts:
            for row in await self.scene.store.rows("run.budget", account):
                place = (account, row["measure"])
                assert (row["spent"], row["reserved"]) == (self.books.spent[place], self.books.reserved[place]), place
                assert row["reserved"] >= 0
                assert row["measure"] == "wall_us" or row["spent"] + row["reserved"] <= (row["ceiling"] or sys.maxsize)


def each(played: list[Op]) -> Iterator[Op]:
    """The operations, then the end of every run."""
    yield from played
    for run in range(3):
        yield Op(run, "end", 0, 0, killed=False)


INTERRUPTED_AND_REFUSED = [
    Op(0, "model", 25, 0, killed=True),
    Op(1, "model", 11, 0, killed=False),
    Op(0, "model", 0, 0, killed=False),
    Op(1, "model", 0, 0, killed=False),
    Op(0, "model", 0, 0, killed=False),
]
"""A call that was interrupted is refused until another run has freed what it needs."""


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(played=st.lists(ops, max_size=25))
@example(played=INTERRUPTED_AND_REFUSED)
def test_the_books_agree_with_a_plain_model_whatever_happens(played: list[Op]) -> None:
    async def story(scene: Scene) -> None:
        play = Play(scene)
        for actor in play.actors:
            await scene.kernel().create(actor.spec)
        for op in each(played):
            await play.do(op)
            await play.check()
        for account in {account for actor in play.actors for account in actor.spec.accounts}:
            assert all(row["reserved"] == 0 for row in await scene.store.rows("run.budget", account))

    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        tell(Path(folder), story)


def test_runs_side_by_side_pass_no_ceiling_together() -> None:
    async def story(scene: Scene) -> None:
        play = Play(scene)

        async def spend(actor: Actor) -> int:
            steps, turns = RunSteps(await scene.open(actor.spec)), 0
            try:
                while True:
                    op = Op(0, "model", 10, 0, killed=False)
                    actor.recorded = turns
                    await play.perform(steps, actor, op)
                    turns += 1
            except Exhausted:
                return turns

        turns = await asyncio.gather(*(spend(actor) for actor in play.actors))
        assert sum(turns) == 2 * CEILINGS["turns"]

    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        tell(Path(folder), story)
