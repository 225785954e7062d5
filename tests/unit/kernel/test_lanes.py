"""Laws of lanes: the runs of one session go one after the other, in order; who waits or is paused lets the next one pass."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from rucher.kernel.run import Run
from rucher.kernel.spec import RunSpec
from rucher.kernel.steps import RunSteps
from rucher.kernel.waits import question
from rucher.protocol.ports import StepKind
from tests.fakes.drafts import run_spec
from tests.fakes.kernel import Counter, Scene, parks, tell, tool

LANE = [replace(run_spec(name), session="S") for name in "abcd"]
A, B, C, D = LANE


async def made(scene: Scene, *specs: RunSpec) -> None:
    for spec in specs:
        await scene.kernel().create(spec)


async def done(scene: Scene, spec: RunSpec) -> None:
    await (await scene.open(spec)).finish("done", "")


async def wait(run: Run) -> Any:
    return await RunSteps(run).wait(StepKind.WAIT_HUMAN, {}, "?", [question(f"to {run.spec.run_id}")])


def test_one_run_of_a_session_goes_at_a_time_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await made(scene, *LANE, run_spec("in a session of its own"))
        for spec in LANE:
            assert (await scene.claimable())[0] == spec.run_id
            assert len(await scene.claimable()) == 2
            await scene.open(spec)
            assert len(await scene.claimable()) == 2
            await done(scene, spec)
        assert len(await scene.claimable()) == 1

    tell(tmp_path, story)


def test_a_higher_priority_is_no_way_past_the_others_of_the_session(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await made(scene, A, replace(B, priority=9))
        assert await scene.claimable() == [A.run_id]

    tell(tmp_path, story)


def test_a_waiting_run_lets_the_next_pass_and_takes_its_turn_when_it_wakes(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await made(scene, A, B, C)
        await parks(wait(await scene.open(A)))
        assert await scene.state(A, B, C) == ["waiting", "ready", "queued"]
        await scene.open(B)
        await scene.signal(f"to {A.run_id}", {})
        assert await scene.state(A, B, C) == ["queued", "running", "queued"]
        await made(scene, D)
        await done(scene, B)
        assert await scene.state(A, B, C, D) == ["ready", "done", "queued", "queued"]
        await done(scene, A)
        assert await scene.state(C, D) == ["ready", "queued"]

    tell(tmp_path, story)


def test_two_that_wake_by_one_signal_go_one_after_the_other(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        for spec in (A, B):
            run = await scene.open(spec)
            await parks(RunSteps(run).wait(StepKind.WAIT_HUMAN, {}, "?", [question("both")]))
        assert await scene.state(A, B) == ["waiting"] * 2
        await scene.signal("both", {})
        assert await scene.state(A, B) == ["ready", "queued"]
        await done(scene, A)
        assert await scene.state(A, B) == ["done", "ready"]

    tell(tmp_path, story)


def test_a_run_that_was_met_at_once_keeps_its_turn(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await made(scene, A, B)
        await scene.signal(f"to {A.run_id}", {})
        await parks(wait(await scene.open(A)))
        assert await scene.state(A, B) == ["ready", "queued"]

    tell(tmp_path, story)


def test_a_paused_run_lets_those_behind_it_pass_also_those_that_come_later(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await made(scene, A, B)
        await scene.orders.pause(A.run_id, "1")
        assert await scene.state(A, B) == ["queued:pause", "ready"]
        await done(scene, B)
        await made(scene, C, D)
        assert await scene.state(A, C, D) == ["queued:pause", "ready", "queued"]
        await scene.orders.resume(A.run_id, "2")
        assert await scene.state(A, C, D) == ["queued", "ready", "queued"]
        await done(scene, C)
        assert await scene.state(A, D) == ["ready", "queued"]

    tell(tmp_path, story)


def test_a_run_paused_while_it_works_lets_the_next_pass_once_it_has_stopped(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await made(scene, A, B)
        run = await scene.open(A)
        await scene.orders.pause(A.run_id, "1")
        assert await scene.state(A, B) == ["running:pause", "queued"]
        run.wish = "pause"
        await parks(tool(RunSteps(run), Counter().act))
        assert await scene.state(A, B) == ["queued:pause", "ready"]

    tell(tmp_path, story)


def test_a_run_paused_while_it_was_nobodys_can_be_taken_to_be_parked(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await made(scene, A, B)
        await scene.open(A)  # and killed
        await scene.orders.pause(A.run_id, "1")
        assert await scene.claimable() == [A.run_id]

    tell(tmp_path, story)


def test_a_cancelled_run_that_ends_hands_its_turn_on(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await made(scene, *LANE)
        await scene.open(A)
        await scene.orders.cancel(B.run_id, "1")
        await scene.orders.cancel(A.run_id, "2")
        assert await scene.claimable() == [A.run_id, B.run_id]
        for spec in (A, B):
            assert await scene.state(C) == ["queued"]
            await (await scene.open(spec, to_end=True)).finish("cancelled", "")
        assert await scene.state(C, D) == ["ready", "queued"]

    tell(tmp_path, story)


def test_a_spawned_run_with_a_lane_of_its_own_needs_no_turn(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        steps = await scene.steps(A)
        child = await steps.spawn(
            {}, lambda run_id: replace(run_spec("c"), run_id=run_id, session="S", lane=run_id, parent=A.run_id)
        )
        assert (await scene.row(child))["state"] == "ready"

    tell(tmp_path, story)
