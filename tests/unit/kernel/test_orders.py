"""Laws of orders: each is obeyed in every state that a run can be in, once, and refused in words where it makes no sense."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rucher.kernel.orders import Orders
from rucher.kernel.run import Run
from rucher.kernel.spec import RunSpec, Versions
from rucher.kernel.steps import RunSteps
from rucher.kernel.waits import approval, question
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import BadInput, Suspended
from rucher.protocol.events import Draft
from rucher.protocol.ports import Appended, StepKind
from tests.fakes.drafts import run_spec
from tests.fakes.kernel import OWNER, Counter, Scene, Through, parks, tell, tool

Call = Callable[[RunSteps], Awaitable[Any]]
SPEC = run_spec()
SAME_LANE = replace(run_spec("ahead"), session=SPEC.session)
IN_EVERY_STATE = pytest.mark.parametrize("state", ["queued", "ready", "running", "waiting"])


async def brought_to(scene: Scene, state: str) -> Run | None:
    """The run in this state; its handle when it runs."""
    if state == "queued":
        await scene.kernel().create(SAME_LANE)
    if state in ("queued", "ready"):
        await scene.kernel().create(SPEC)
    run = None if state in ("queued", "ready") else await scene.open(SPEC)
    if state == "waiting":
        assert run is not None
        await parks(wait(run))
    assert await scene.state(SPEC) == [state]
    return run


async def wait(run: Run) -> Any:
    return await RunSteps(run).wait(StepKind.WAIT_HUMAN, {}, "why?", [question("q")])


@IN_EVERY_STATE
def test_a_paused_run_is_not_taken_until_it_is_resumed(tmp_path: Path, state: str) -> None:
    async def story(scene: Scene) -> None:
        run = await brought_to(scene, state)
        await scene.orders.pause(SPEC.run_id, "1")
        await scene.signal("q", {"text": "because"})
        if run is not None and state == "running":
            run.wish = "pause"
            await parks(tool(RunSteps(run), Counter().act))
        if state == "queued":
            await (await scene.open(SAME_LANE)).finish("done", "")
        assert SPEC.run_id not in await scene.claimable()
        assert await scene.state(SPEC) == ["queued:pause"]
        await scene.orders.resume(SPEC.run_id, "2")
        assert await scene.state(SPEC) == ["ready"]
        assert await scene.claimable() == [SPEC.run_id]

    tell(tmp_path, story)


@IN_EVERY_STATE
def test_a_cancelled_run_can_be_taken_at_once_to_be_ended(tmp_path: Path, state: str) -> None:
    async def story(scene: Scene) -> None:
        await brought_to(scene, state)
        await scene.orders.cancel(SPEC.run_id, "1", "enough")
        assert SPEC.run_id in await scene.claimable()
        run = await scene.open(SPEC, to_end=True)
        await run.finish("cancelled", "enough")
        assert await scene.state(SPEC) == ["cancelled"]
        assert await scene.store.rows("run.waits", SPEC.run_id) == []
        assert SPEC.run_id not in await scene.claimable()

    tell(tmp_path, story)


@IN_EVERY_STATE
def test_a_paused_run_can_be_cancelled(tmp_path: Path, state: str) -> None:
    async def story(scene: Scene) -> None:
        await brought_to(scene, state)
        await scene.orders.pause(SPEC.run_id, "1")
        await scene.orders.cancel(SPEC.run_id, "2")
        assert SPEC.run_id in await scene.claimable()

    tell(tmp_path, story)


@pytest.mark.parametrize("parks_by", ["wait", "pause"])
def test_a_cancel_that_crosses_a_run_on_its_way_to_bed_is_not_lost(tmp_path: Path, parks_by: str) -> None:
    async def story(scene: Scene) -> None:
        await scene.kernel().create(SAME_LANE)
        run = await scene.open(SPEC)
        await scene.orders.cancel(SPEC.run_id, "1")
        if parks_by == "wait":
            await parks(wait(run))
        else:
            run.wish = "pause"
            await parks(tool(RunSteps(run), Counter().act))
        assert SPEC.run_id in await scene.claimable()

    tell(tmp_path, story)


def test_a_pause_is_obeyed_before_the_next_step_and_not_in_a_replay(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        counter = Counter()
        steps = await scene.steps(SPEC)
        await tool(steps, counter.act)
        await steps.note(StepKind.CHECKPOINT, {}, {"n": 1})
        run = await scene.open(SPEC)
        run.wish = "pause"
        steps = RunSteps(run)
        assert await tool(steps, counter.act) == {"count": 1}
        assert await steps.note(StepKind.CHECKPOINT, {}, {}) == {"n": 1}
        calls: list[Call] = [
            lambda steps: tool(steps, counter.act),
            lambda steps: steps.note(StepKind.CHECKPOINT, {}, {}),
            lambda steps: steps.spawn({}, lambda run_id: run_spec("c", run_id=run_id)),
            lambda steps: steps.wait(StepKind.WAIT_HUMAN, {}, "x", [question("q")]),
        ]
        for call in calls:
            run = await scene.open(SPEC)
            run.wish = "pause"
            steps = RunSteps(run)
            await tool(steps, counter.act)
            await steps.note(StepKind.CHECKPOINT, {}, {})
            assert (await parks(call(steps))).step == "3"
        assert len(counter.keys) == 1

    tell(tmp_path, story)


async def family(scene: Scene) -> list[RunSpec]:
    """A run, its child, and the child of that, all made."""
    specs = [run_spec("root")]
    for name in ("child", "grandchild"):
        specs.append(run_spec(name, parent=specs[-1].run_id))
    for spec in specs:
        await scene.kernel().create(spec)
    return specs


def test_a_cancel_goes_from_the_root_to_the_leaves_and_the_leaves_end_first(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        specs = await family(scene)
        await scene.open(specs[1])
        await scene.orders.cancel(specs[0].run_id, "1")
        assert await scene.state(*specs) == ["ready:cancel", "running:cancel", "ready:cancel"]
        for spec in reversed(specs):
            assert await scene.claimable() == [spec.run_id]
            await (await scene.open(spec, to_end=True)).finish("cancelled", "")
        assert await scene.claimable() == []

    tell(tmp_path, story)


def test_a_cancel_leaves_the_parent_and_the_siblings_alone(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        specs = await family(scene)
        sibling = run_spec("sibling", parent=specs[0].run_id)
        await scene.kernel().create(sibling)
        await scene.orders.cancel(specs[1].run_id, "1")
        assert await scene.state(*specs, sibling) == ["ready", "ready:cancel", "ready:cancel", "ready"]

    tell(tmp_path, story)


def test_a_child_born_while_its_parent_is_cancelled_is_cancelled_too(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        steps = await scene.steps(SPEC)
        await scene.orders.cancel(SPEC.run_id, "1")
        child = await steps.spawn({}, lambda run_id: run_spec("c", run_id=run_id, parent=SPEC.run_id))
        assert (await scene.row(child))["wish"] == "cancel"
        assert await scene.claimable() == [child]

    tell(tmp_path, story)


@pytest.mark.parametrize("end", ["done", "cancelled"])
def test_orders_to_a_run_that_has_ended_are_refused(tmp_path: Path, end: str) -> None:
    async def story(scene: Scene) -> None:
        await (await scene.open(SPEC)).finish(end, "")
        head = scene.store.head
        for order in (scene.orders.cancel, scene.orders.pause, scene.orders.resume):
            with pytest.raises(BadInput, match=f"has ended|{end}"):
                await order(SPEC.run_id, "1")
        with pytest.raises(BadInput, match="has ended"):
            await scene.orders.steer(SPEC.run_id, "1", "x")
        assert scene.store.head == head

    tell(tmp_path, story)


class Crossed(Through):
    """A store in which something happens between an order's look at the run and its event."""

    def __init__(self, scene: Scene, between: Callable[[], Awaitable[object]]) -> None:
        super().__init__(scene.store)
        self._between = between

    async def append(self, *drafts: Draft) -> tuple[Appended, ...]:
        await self._between()
        return await self._store.append(*drafts)


def test_an_order_that_crosses_the_end_of_its_run_is_not_said_to_be_heeded(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        run = await scene.open(SPEC)
        store = Crossed(scene, lambda: run.finish("done", ""))
        with pytest.raises(BadInput, match="ended before it could heed this"):
            await Orders(store, scene.clock, OWNER).steer(SPEC.run_id, "1", "wait")

    tell(tmp_path, story)


def test_an_answer_that_crosses_its_expiry_is_said_to_be_too_late(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        due = scene.clock.now() + 1_000_000
        await parks((await scene.steps(SPEC)).wait(StepKind.WAIT_HUMAN, {}, "may I?", [approval("a", due)]))

        async def expired() -> None:
            scene.clock.advance(2)
            await scene.timers.fire_due()

        with pytest.raises(BadInput, match="this is too late"):
            await Orders(Crossed(scene, expired), scene.clock, OWNER).answer(SPEC.run_id, "1", {"approved": True})

    tell(tmp_path, story)


def test_orders_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.kernel().create(SPEC)
        with pytest.raises(BadInput, match="not paused"):
            await scene.orders.resume(SPEC.run_id, "1")
        await scene.orders.pause(SPEC.run_id, "2")
        with pytest.raises(BadInput, match="paused already"):
            await scene.orders.pause(SPEC.run_id, "3")
        await scene.orders.cancel(SPEC.run_id, "4")
        for order in (scene.orders.pause, scene.orders.resume, scene.orders.cancel):
            with pytest.raises(BadInput, match=r"being cancelled|not paused"):
                await order(SPEC.run_id, "5")
        with pytest.raises(BadInput, match="there is no run"):
            await scene.orders.cancel(run_spec("unknown").run_id, "6")

    tell(tmp_path, story)


def test_an_order_is_kept_with_its_author_in_the_runs_trace(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.kernel().create(SPEC)
        await scene.orders.pause(SPEC.run_id, "1")
        (order,) = [event for event in await scene.store.trace(SPEC.trace_id) if event.type == "run.paused"]
        assert (order.principal, order.body["run"]) == (OWNER, SPEC.run_id)

    tell(tmp_path, story)


async def worked(scene: Scene, spec: RunSpec, counter: Counter, *, all_of: bool = True) -> list[Any]:
    """A run of a read, a write, a word of the owner, two branches and a mail."""
    steps = await scene.steps(spec)
    results: list[Any] = [
        await tool(steps, counter.act, Effect.READ, "read"),
        await tool(steps, counter.act, Effect.IDEMPOTENT_WRITE, "write"),
        list(await steps.told()),
    ]
    results += [await tool(branch, counter.act, Effect.READ) for branch in steps.branches(2)]
    if all_of:
        results.append(await tool(steps, counter.act, Effect.NON_IDEMPOTENT, "mail"))
    await steps.note(StepKind.CHECKPOINT, {}, {})
    return results


def test_a_fork_takes_over_the_steps_before_and_names_what_it_would_repeat(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        counter = Counter()
        await worked(scene, SPEC, counter)
        before = await scene.types(SPEC)
        preview = await scene.orders.fork_preview(SPEC.run_id, "2")
        assert [(repeat.step, repeat.effect, repeat.request["tool"]) for repeat in preview.repeats] == [
            ("2", "idempotent_write", "write"), ("4", "non_idempotent", "mail"),
        ]  # fmt: skip
        fork = await scene.orders.fork(SPEC.run_id, "3.1.1", "k", "do it better")
        assert [repeat.step for repeat in fork.repeats] == ["4"]
        new = replace(SPEC, run_id=fork.run_id)
        results = await worked(scene, new, counter)
        assert results[:3] == [{"count": 1}, {"count": 2}, ["do it better"]]
        assert len(counter.keys) == 5 + 3
        assert len(set(counter.keys)) == 5 + 3  # what it does again, it does under keys of its own
        assert await scene.types(SPEC) == before

    tell(tmp_path, story)


def test_a_fork_of_a_child_is_nobodys_child_and_goes_on(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        child = run_spec("child", parent=SPEC.run_id)
        await scene.kernel().create(SPEC)
        await worked(scene, child, Counter())
        await scene.orders.cancel(SPEC.run_id, "1")
        fork = await scene.orders.fork(child.run_id, "2", "key")
        row = await scene.row(fork.run_id)
        assert (row["parent_id"], row["wish"]) == ("", "")

    tell(tmp_path, story)


def test_a_fork_given_twice_under_one_key_is_one_run(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await worked(scene, SPEC, Counter())
        forks = [await scene.orders.fork(SPEC.run_id, "2", key, "again") for key in ("a", "a", "b")]
        assert forks[0] == forks[1]
        assert forks[0].run_id != forks[2].run_id
        assert len(await scene.store.rows("run.steers", forks[0].run_id, 0)) == 1

    tell(tmp_path, story)


def test_a_fork_has_a_budget_of_its_own_with_the_ceilings_of_the_old_one(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        spec = replace(SPEC, accounts=(SPEC.run_id, "mission"), ceilings={SPEC.run_id: {"tool_calls": 9}})
        await worked(scene, spec, Counter())
        fork = await scene.orders.fork(spec.run_id, "2", "k")
        rows = {row["measure"]: row for row in await scene.store.rows("run.budget", fork.run_id)}
        assert (rows["tool_calls"]["ceiling"], rows["tool_calls"]["spent"]) == (9, 0)
        assert (await scene.budget("mission"))["tool_calls"] == (5, 0)

    tell(tmp_path, story)


def test_a_fork_at_a_step_that_is_not_there_is_refused_and_the_steps_are_named(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await worked(scene, SPEC, Counter())
        with pytest.raises(BadInput, match=r"no step '9'.*1, 2, 3"):
            await scene.orders.fork(SPEC.run_id, "9", "k")
        await scene.kernel().create(run_spec("new"))
        with pytest.raises(BadInput, match="it has none"):
            await scene.orders.fork_preview(run_spec("new").run_id, "1")

    tell(tmp_path, story)


OLD, NEW = Versions(1, "p", "t"), Versions(2, "p", "t")


def test_a_run_that_another_version_began_waits_for_its_owner_and_then_goes_on(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        counter, spec = Counter(), replace(SPEC, versions=OLD)
        await tool(steps := RunSteps(await scene.open(spec, OLD)), counter.act)
        await steps.note(StepKind.CHECKPOINT, {}, {})
        await parks((await scene.open(spec, NEW)).demand_fit())
        assert await scene.state(spec) == ["waiting"]
        assert (await scene.open(spec, NEW)).parked
        await scene.orders.migrate(spec.run_id)
        for _ in range(2):
            run = await scene.open(spec, NEW)
            await run.demand_fit()
            # What was recorded is taken as it is, even when the new version asks in other words.
            assert await tool(RunSteps(run), counter.act, name="in other words") == {"count": 1}
        assert (await scene.row(spec.run_id))["engine_version"] == 2

    tell(tmp_path, story)


@pytest.mark.parametrize("mode", ["any", "all"])
def test_a_wait_that_was_met_never_stands_for_the_owners_consent_to_another_version(tmp_path: Path, mode: str) -> None:
    async def story(scene: Scene) -> None:
        spec = replace(SPEC, versions=OLD)

        async def waits(versions: Versions) -> Any:
            run = await scene.open(spec, versions)
            await run.demand_fit()
            return await RunSteps(run).wait(StepKind.WAIT_HUMAN, {}, "why?", [question("q")], mode)  # type: ignore[arg-type]

        await parks(waits(OLD))
        await scene.signal("q", {"text": "because"})
        await parks(waits(NEW))
        assert await scene.state(spec) == ["waiting"]
        assert (await scene.open(spec, NEW)).parked
        await scene.orders.migrate(spec.run_id)
        assert await waits(NEW) == [{"text": "because"}]

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("now", "goes_on"),
    [(Versions(1, "other", "t"), True), (Versions(1, "p", "other"), False), (Versions(2, "p", "t"), False)],
    ids=["prompt", "tools", "engine"],
)
def test_only_what_a_replay_depends_on_makes_a_run_wait(
    tmp_path: Path, now: Versions, goes_on: bool  # noqa: FBT001 - a table's column
) -> None:  # fmt: skip
    async def story(scene: Scene) -> None:
        spec = replace(SPEC, versions=OLD)
        await scene.open(spec, OLD)
        run = await scene.open(spec, now)
        if goes_on:
            await run.demand_fit()
        else:
            with pytest.raises(Suspended):
                await run.demand_fit()

    tell(tmp_path, story)


def test_a_run_that_was_not_begun_begins_with_what_there_is_now(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        spec = replace(SPEC, versions=OLD)
        await (await scene.open(spec, NEW)).demand_fit()
        row = await scene.row(spec.run_id)
        assert (row["engine_version"], row["tools_hash"]) == (2, "t")

    tell(tmp_path, story)


def test_an_unfit_run_can_still_be_ended(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        spec = replace(SPEC, versions=OLD)
        await scene.open(spec, OLD)
        await parks((await scene.open(spec, NEW)).demand_fit())
        await scene.orders.cancel(spec.run_id, "1")
        await (await scene.open(spec, NEW, to_end=True)).finish("cancelled", "")
        assert await scene.state(spec) == ["cancelled"]

    tell(tmp_path, story)


def test_the_fork_of_a_migrated_run_takes_its_steps_as_they_are(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        counter, spec = Counter(), replace(SPEC, versions=OLD)
        await tool(RunSteps(await scene.open(spec, OLD)), counter.act)
        run = await scene.open(spec, OLD)
        await tool(steps := RunSteps(run), counter.act)
        await steps.note(StepKind.CHECKPOINT, {}, {})
        await parks((await scene.open(spec, NEW)).demand_fit())
        await scene.orders.migrate(spec.run_id)
        await (await scene.open(spec, NEW)).finish("done", "")
        fork = await scene.orders.fork(spec.run_id, "2", "k")
        forked = await scene.open(replace(spec, run_id=fork.run_id), NEW)
        await forked.demand_fit()
        assert await tool(RunSteps(forked), counter.act, name="in other words") == {"count": 2}

    tell(tmp_path, story)
