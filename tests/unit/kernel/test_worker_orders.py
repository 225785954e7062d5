"""Laws of a worker's obedience: what the owner wants happens at once, also to runs that are being worked on."""

import asyncio
from pathlib import Path

from rucher.kernel.fairness import Limits
from rucher.kernel.run import Run
from rucher.kernel.steps import RunSteps
from rucher.kernel.waits import question
from rucher.protocol.errors import Retryable
from rucher.protocol.ports import StepKind
from tests.fakes.clock import until
from tests.fakes.kernel import Scene, tell
from tests.fakes.worker import Gate, Script, called, make, noted, unclaimed, working


def test_a_cancel_interrupts_a_running_tool_at_once_and_the_run_is_ended(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        gate, spec = Gate(), called("long")
        body = Script({"long": gate})
        async with working(scene, body, Limits(worker=1)):
            await make(scene, spec)
            await until(lambda: gate.inside == 1)
            await scene.orders.cancel(spec.run_id, "1")
            await noted(body, "cancelled long")
            await unclaimed(scene)
        assert body.notes == ["begin long", "interrupted long", "cancelled long"]
        assert await scene.state(spec) == ["cancelled"]

    tell(tmp_path, story)


def test_a_cancelled_run_that_rests_or_waits_is_ended_without_being_worked_on(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async def troubled(_run: Run) -> None:
            raise Retryable("later")

        async def waiting(run: Run) -> None:
            await RunSteps(run).wait(StepKind.WAIT_HUMAN, {}, "?", [question("q")])

        body = Script({"resting": troubled, "waiting": waiting})
        specs = [called("resting"), called("waiting")]
        async with working(scene, body):
            await make(scene, *specs)
            await noted(body, "trouble resting: later")
            await noted(body, "begin waiting")
            for spec in specs:
                await scene.orders.cancel(spec.run_id, "1")
                await noted(body, f"cancelled {spec.model}")
            await unclaimed(scene)
        assert await scene.state(*specs) == ["cancelled"] * 2

    tell(tmp_path, story)


def test_of_a_tree_that_is_cancelled_while_all_of_it_works_the_leaves_end_first(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        gates = {name: Gate() for name in ("root", "child", "leaf")}
        slow, body = asyncio.Event(), Script(gates)
        root = called("root")
        child = called("child", parent=root.run_id)
        leaf = called("leaf", parent=child.run_id)

        async def slowly(run: Run) -> None:
            if run.spec.model == "leaf":
                await slow.wait()

        body.ending = slowly
        async with working(scene, body):
            await make(scene, root, child, leaf)
            await until(lambda: all(gate.inside for gate in gates.values()))
            await scene.orders.cancel(root.run_id, "1")
            await noted(body, "cancelled leaf")
            await until(lambda: not body.busy)
            assert await scene.state(root, child, leaf) == ["running:cancel"] * 3
            slow.set()
            await noted(body, "cancelled root")
            await unclaimed(scene)
        assert [note for note in body.notes if note.startswith("cancelled")] == [
            "cancelled leaf", "cancelled child", "cancelled root",
        ]  # fmt: skip

    tell(tmp_path, story)


def test_a_pause_parks_the_run_at_its_next_step_and_a_resume_lets_it_go_on(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        gate, spec = Gate(), called("r")
        body = Script({"r": gate})
        async with working(scene, body):
            await make(scene, spec)
            await until(lambda: gate.inside == 1)
            await scene.orders.pause(spec.run_id, "1")
            # The worker has heard of it once it hears of something later.
            await make(scene, called("other"))
            await noted(body, "done other")
            gate.open.set()
            await unclaimed(scene)
            assert await scene.state(spec) == ["queued:pause"]
            assert (await scene.types(spec))[-2:] == ["step.recorded", "run.parked"]
            await scene.orders.resume(spec.run_id, "2")
            await noted(body, "done r")
        assert gate.inside == 1

    tell(tmp_path, story)


def test_a_pause_that_is_taken_back_within_the_same_step_does_not_park_the_run(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        gate, spec = Gate(), called("r")
        body = Script({"r": gate})
        async with working(scene, body):
            await make(scene, spec)
            await until(lambda: gate.inside == 1)
            for number, order in enumerate((scene.orders.pause, scene.orders.resume)):
                await order(spec.run_id, f"{number}")
                await make(scene, called(f"other{number}"))
                await noted(body, f"done other{number}")
            gate.open.set()
            await noted(body, "done r")
        assert "run.parked" not in await scene.types(spec)

    tell(tmp_path, story)


def test_a_run_paused_after_its_worker_was_killed_is_parked_and_its_lane_goes_on(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        first, second = called("first", lane="L"), called("second", lane="L")
        await make(scene, first, second)
        await scene.open(first)  # and killed
        await scene.orders.pause(first.run_id, "1")
        body = Script()
        async with working(scene, body):
            await noted(body, "done second")
        assert await scene.state(first, second) == ["queued:pause", "done"]

    tell(tmp_path, story)


def test_a_worker_can_be_stopped_while_it_ends_a_cancelled_run(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        gate, spec = Gate(), called("r")
        body = Script({"r": gate})
        never = asyncio.Event()

        async def hang(_run: Run) -> None:
            await never.wait()

        body.ending = hang
        async with asyncio.timeout(5), working(scene, body):
            await make(scene, spec)
            await until(lambda: gate.inside == 1)
            await scene.orders.cancel(spec.run_id, "1")
            await noted(body, "cancelled r")
        assert await scene.state(spec) == ["running:cancel"]
        body.ending = None
        async with working(scene, body):

            async def ended() -> bool:
                return await scene.state(spec) == ["cancelled"]

            await until(ended)

    tell(tmp_path, story)
