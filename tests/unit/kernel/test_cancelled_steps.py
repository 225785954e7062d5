"""A run that its owner cancels takes no further step, also where its task's cancellation is lost on the way."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rucher.kernel.run import Run
from rucher.kernel.steps import RunSteps
from rucher.kernel.waits import question
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import Suspended
from rucher.protocol.ports import StepKind
from tests.fakes.clock import until
from tests.fakes.drafts import run_spec
from tests.fakes.kernel import Counter, Scene, tell, tool
from tests.fakes.worker import Script, called, make, noted, returning, unclaimed, working


def test_a_cancel_that_an_error_swallows_is_obeyed_at_the_next_step(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        inside, later = asyncio.Event(), Counter()

        async def losing(run: Run) -> None:
            steps = RunSteps(run)

            async def fail_when_cancelled(_key: str) -> Mapping[str, Any]:
                inside.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError as cancelled:
                    raise ValueError("an error beats the cancellation") from cancelled
                return {}

            try:
                async with asyncio.TaskGroup() as tasks:
                    for branch in steps.branches(2):
                        tasks.create_task(tool(branch, fail_when_cancelled, Effect.READ))
            except* ValueError:
                pass
            await tool(steps, later.act)

        body, spec = Script({"r": losing}), called("r")
        async with working(scene, body):
            await make(scene, spec)
            await inside.wait()
            await scene.orders.cancel(spec.run_id, "1")
            await until(lambda: not body.busy)
            await noted(body, "cancelled r")
            await unclaimed(scene)
        assert later.keys == []
        assert await scene.state(spec) == ["cancelled"]

    tell(tmp_path, story)


def test_a_cancelled_run_takes_no_step_of_any_kind_and_keeps_what_it_has_done(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        spec = run_spec("r")
        await make(scene, spec)
        run = await scene.open(spec)
        steps, later = RunSteps(run), Counter()
        await tool(steps, returning)
        run.wish = "cancel"
        for step in (
            tool(steps, later.act),
            tool(steps, later.act, Effect.READ),
            steps.note(StepKind.CHECKPOINT, {}, {}),
            steps.wait(StepKind.WAIT_HUMAN, {}, "?", [question("q")]),
            steps.spawn({}, lambda _: pytest.fail("no child is made")),
        ):
            with pytest.raises(Suspended):
                await step
        assert later.keys == []
        assert await scene.types(spec) == ["run.created", "run.acquired", "step.intended", "step.recorded"]

    tell(tmp_path, story)
