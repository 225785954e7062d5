"""Laws of another version: what a run waited for and was given before it came, the run has when its owner lets it go on."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rucher.kernel.contents import ARTIFACT, LARGEST_INLINE
from rucher.kernel.spec import RunSpec, Versions
from rucher.kernel.steps import RunSteps
from rucher.kernel.waits import event
from rucher.protocol.conversation import Effect
from rucher.protocol.ports import Proof, StepKind
from tests.fakes.drafts import run_spec
from tests.fakes.kernel import Counter, Killed, Scene, parks, proving, tell

OLD, NEW, NEWER = (Versions(number, "p", "t") for number in (1, 2, 3))
SPEC = replace(run_spec("r"), versions=OLD)
DAYS_S = 864_000.0
Work = Callable[[RunSteps], Awaitable[Any]]
Happens = Callable[[Scene], Awaitable[Any]]


async def asks(steps: RunSteps) -> Any:
    return await steps.ask("may I?", None)


async def answered(scene: Scene, text: str = "yes") -> None:
    await scene.orders.answer(SPEC.run_id, "1", {"text": text})


async def sleeps(steps: RunSteps) -> Any:
    await steps.sleep(DAYS_S)
    return "awake"


async def its_time_came(scene: Scene) -> None:
    scene.clock.advance(DAYS_S)
    assert await scene.timers.fire_due() == 1


def born(run_id: str) -> RunSpec:
    return run_spec("child", run_id=run_id, parent=SPEC.run_id, lane=run_id)


async def joins(steps: RunSteps) -> Any:
    return await steps.join([await steps.spawn({}, born)])


async def its_child_ended(scene: Scene) -> None:
    (child,) = await scene.store.rows("run.children", SPEC.run_id)
    await (await scene.kernel().open(await scene.spec(child["run_id"]))).finish("done", "because", result={"text": "x"})


async def waits_for_either(steps: RunSteps) -> Any:
    return await steps.wait(StepKind.WAIT_HUMAN, {}, "?", [event("a"), event("b")], "any")


async def one_came(scene: Scene) -> None:
    await scene.signal("b", {"n": 1})


WAITS: Mapping[str, tuple[Work, Happens, Any]] = {
    "question": (asks, answered, {"text": "yes"}),
    "timer": (sleeps, its_time_came, "awake"),
    "child": (joins, its_child_ended, [{"state": "done", "reason": "because", "result": {"text": "x"}}]),
    "any": (waits_for_either, one_came, [None, {"n": 1}]),
}
IN_EVERY_WAIT = pytest.mark.parametrize(("work", "happens", "brought"), WAITS.values(), ids=WAITS)


async def go(scene: Scene, versions: Versions, work: Work) -> Any:
    """What a process of this version gets of the run's work, and that it goes on from there."""
    run = await scene.open(SPEC, versions)
    await run.demand_fit()
    steps = RunSteps(run)
    result = await work(steps)
    await steps.note(StepKind.CHECKPOINT, {"after": "the wait"}, {})
    return result


async def migrated(scene: Scene, versions: Versions, work: Work) -> None:
    """This version takes the run up, asks its owner, and is told to go on."""
    parked = await parks(go(scene, versions, work))
    assert "another version" in str(parked)
    assert await scene.state(SPEC) == ["waiting"]
    await scene.orders.migrate(SPEC.run_id)


@IN_EVERY_WAIT
def test_what_came_before_another_version_is_not_asked_for_or_waited_for_again(
    tmp_path: Path, work: Work, happens: Happens, brought: Any
) -> None:
    async def story(scene: Scene) -> None:
        await parks(go(scene, OLD, work))
        assert (await scene.open(SPEC, NEW)).parked  # nothing is asked before there is anything to go on with
        await happens(scene)
        await migrated(scene, NEW, work)
        for _ in range(2):
            assert await go(scene, NEW, work) == brought
        assert await scene.store.rows("run.waits", SPEC.run_id) == []

    tell(tmp_path, story)


@IN_EVERY_WAIT
def test_it_is_there_after_kills_and_after_a_third_version_too(
    tmp_path: Path, work: Work, happens: Happens, brought: Any
) -> None:
    async def story(scene: Scene) -> None:
        await parks(go(scene, OLD, work))
        await happens(scene)
        for versions in (NEW, NEWER):
            await migrated(scene, versions, work)
            for _ in range(2):
                assert not (await scene.open(SPEC, versions)).parked  # taken, and killed
                assert await scene.claimable() == [SPEC.run_id]
        assert await go(scene, NEWER, work) == brought

    tell(tmp_path, story)


def test_a_large_answer_lies_in_a_file_meanwhile(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        large = "ß" * LARGEST_INLINE
        await parks(go(scene, OLD, asks))
        await answered(scene, large)
        await migrated(scene, NEW, asks)
        waiting = [event.body for event in await scene.store.run_log(SPEC.run_id) if event.type == "run.waiting"]
        assert ARTIFACT in waiting[-1]["before"]["result"]
        assert await go(scene, NEW, asks) == {"text": large}

    tell(tmp_path, story)


def test_a_run_that_is_ended_between_two_versions_leaves_nothing_behind(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await parks(go(scene, OLD, asks))
        await answered(scene)
        await parks(go(scene, NEW, asks))
        await scene.orders.cancel(SPEC.run_id, "1")
        await (await scene.open(SPEC, NEW, to_end=True)).finish("cancelled", "")
        assert await scene.store.rows("run.waits", SPEC.run_id) == []

    tell(tmp_path, story)


def test_a_verdict_about_an_interrupted_step_comes_before_the_question_of_the_version(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        counter = Counter()

        async def calls(steps: RunSteps) -> Any:
            return await steps.perform(
                StepKind.TOOL_CALL, Effect.NON_IDEMPOTENT, {}, counter.act, proving(Proof.UNKNOWN)
            )

        with pytest.raises(Killed):
            await RunSteps(await scene.open(SPEC, OLD)).perform(
                StepKind.TOOL_CALL, Effect.NON_IDEMPOTENT, {}, counter.killed_after
            )
        await parks(go(scene, OLD, calls))
        await scene.orders.resolve(SPEC.run_id, "1", "ran")
        await migrated(scene, NEW, calls)
        assert (await go(scene, NEW, calls))["ok"]
        assert len(counter.keys) == 1

    tell(tmp_path, story)


def test_a_wait_in_another_branch_takes_nothing_from_one_that_was_met(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async def first_of(branch: int) -> Any:
            steps = (await scene.steps(SPEC)).branches(2)
            return await steps[branch].wait(StepKind.WAIT_HUMAN, {}, "?", [event(f"{branch} {scene.store.head}")])

        async def signalled(n: int) -> None:
            (wait,) = await scene.store.rows("run.waits", SPEC.run_id)
            await scene.signal(wait["topic"], {"n": n})

        await parks(first_of(0))
        await signalled(0)
        await parks(first_of(1))
        await signalled(1)
        assert await first_of(1) == [{"n": 1}]
        assert await first_of(0) == [{"n": 0}]

    tell(tmp_path, story)
