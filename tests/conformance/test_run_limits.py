"""Laws of limits, on every store: once all of a measure is used nothing more is done, whatever a step asks for beforehand."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rucher.journal.rows import RunWrite
from rucher.journal.store import Place
from rucher.kernel.records import record
from rucher.kernel.spec import RunSpec
from rucher.kernel.steps import RunSteps
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import Exhausted
from rucher.protocol.ports import StepKind
from tests.fakes.drafts import NOW, run_spec
from tests.fakes.kernel import Counter, Scene, parks, tell, tool

USED = {"nanodollars": 5, "tokens": 42, "turns": 1, "wall_us": 1_500_000}
"""What one model call of these tests uses, without saying so beforehand."""
STEPS = {
    "a read": (StepKind.TOOL_CALL, Effect.READ),
    "a write": (StepKind.TOOL_CALL, Effect.IDEMPOTENT_WRITE),
    "a mail": (StepKind.TOOL_CALL, Effect.NON_IDEMPOTENT),
    "a model call": (StepKind.MODEL_CALL, Effect.MODEL_CALL),
    "a look": (StepKind.CHECKPOINT, Effect.READ),
}
ON_ITS_OWN_ACCOUNT_AND_ABOVE = pytest.mark.parametrize("account", ["own", "mission"])


def limited(name: str, account: str, **ceilings: int) -> RunSpec:
    """A run that is charged to its own account and to a mission of its own, one of which has these ceilings."""
    spec, mission = run_spec(name), f"mission of {name}"
    return replace(
        spec, accounts=(spec.run_id, mission), ceilings={spec.run_id if account == "own" else mission: ceilings}
    )


async def think(scene: Scene, steps: RunSteps) -> Mapping[str, Any]:
    async def act(_key: str) -> Mapping[str, Any]:
        scene.clock.advance(1.5)
        return {"usage": {"input_tokens": 30, "output_tokens": 12, "nanodollars": 5}}

    return await steps.perform(StepKind.MODEL_CALL, Effect.MODEL_CALL, {}, act)


@ON_ITS_OWN_ACCOUNT_AND_ABOVE
def test_once_all_of_any_measure_is_used_no_step_is_done_whatever_it_asks_for(
    place: Place, tmp_path: Path, account: str
) -> None:
    async def story(scene: Scene) -> None:
        for measure, used in USED.items():
            for named, (kind, effect) in STEPS.items():
                counter, spec = Counter(), limited(f"{measure}, then {named}", account, **{measure: used})
                run = await scene.open(spec)
                await think(scene, steps := RunSteps(run))
                with pytest.raises(Exhausted, match="budget"):
                    await steps.perform(kind, effect, {"n": 2}, counter.act)
                await run.finish("budget_exhausted", "")
                assert counter.keys == []
                assert (await scene.budget(spec.run_id)) == {name: (amount, 0) for name, amount in USED.items()}

    tell(tmp_path, story, place)


@ON_ITS_OWN_ACCOUNT_AND_ABOVE
def test_as_long_as_something_is_left_the_next_step_is_done(place: Place, tmp_path: Path, account: str) -> None:
    async def story(scene: Scene) -> None:
        for measure, used in USED.items():
            counter, spec = Counter(), limited(measure, account, **{measure: used + 1})
            await think(scene, steps := await scene.steps(spec))
            await tool(steps, counter.act)
            assert len(counter.keys) == 1

    tell(tmp_path, story, place)


def test_who_made_its_last_tool_call_may_still_say_what_came_of_it(place: Place, tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        spec = limited("r", "own", tool_calls=1)
        run = await scene.open(spec)
        await tool(steps := RunSteps(run), Counter().act)
        await think(scene, steps)
        with pytest.raises(Exhausted):
            await tool(steps, Counter().act)
        await run.finish("done", "")
        assert (await scene.budget(spec.run_id))["tool_calls"] == (1, 0)

    tell(tmp_path, story, place)


def test_waiting_uses_no_time(place: Place, tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async def work() -> Any:
            steps = await scene.steps(limited("r", "own", wall_us=2_000_000))
            await think(scene, steps)
            await steps.sleep(3600.0)
            return await tool(steps, Counter().act)

        await parks(work())
        scene.clock.advance(3600.0)
        assert await scene.timers.fire_due() == 1
        assert await work() == {"count": 1}

    tell(tmp_path, story, place)


def test_what_was_held_back_before_there_was_this_law_folds_as_it_did(place: Place, tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        spec = limited("r", "own", wall_us=1)
        used = {"run": spec.run_id, "step": "1", "accounts": [spec.run_id], "used": {"wall_us": 9}, "released": {}}
        held = {"run": spec.run_id, "step": "2", "accounts": [spec.run_id], "amounts": {"tool_calls": 1}}
        records = [record("run.created", spec.created()), record("run.spent", used), record("budget.reserved", held)]
        await scene.store.write(RunWrite(spec.head, 0, 0, NOW, records))
        assert await scene.budget(spec.run_id) == {"wall_us": (9, 0), "tool_calls": (0, 1)}

    tell(tmp_path, story, place)
