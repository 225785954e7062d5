"""Laws of budgets: held back before anything is done, settled when it is recorded, up the whole tree, exact over kills."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rucher.kernel.spec import RunSpec
from rucher.kernel.steps import RunSteps
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import Exhausted
from rucher.protocol.ports import StepKind
from tests.fakes.drafts import run_spec
from tests.fakes.kernel import Counter, Killed, Scene, tell, tool

MISSION = "the mission"
UNLIMITED: Mapping[str, int] = {}


def limited(
    name: str, *above: str, own: Mapping[str, int] = UNLIMITED, mission: Mapping[str, int] = UNLIMITED
) -> RunSpec:
    """A run whose steps are charged to its own account and those above it, the mission last."""
    spec = run_spec(name)
    accounts = (spec.run_id, *above, MISSION)
    return replace(spec, accounts=accounts, ceilings={spec.run_id: own, MISSION: mission})


async def think(steps: RunSteps, counter: Counter, most: int = 100, name: str = "") -> Mapping[str, Any]:
    """The next step, a model call of at most so many tokens."""
    return await steps.perform(
        StepKind.MODEL_CALL, Effect.MODEL_CALL, {"n": name}, counter.act, most={"tokens": most, "nanodollars": 7}
    )


def test_a_step_is_held_back_and_then_settled_on_every_account_up_the_tree(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        parent = limited("parent")
        child = limited("child", parent.run_id)
        steps, held = await scene.steps(child), []

        async def act(_key: str) -> Mapping[str, Any]:
            held.append([await scene.budget(account) for account in child.accounts])
            scene.clock.advance(1.5)
            return {"usage": {"input_tokens": 30, "output_tokens": 12, "nanodollars": 5}}

        await steps.perform(
            StepKind.MODEL_CALL, Effect.MODEL_CALL, {}, act, most={"tokens": 100, "nanodollars": 7, "wall_us": 9}
        )
        await tool(steps, Counter().act)
        assert held == [[{"tokens": (0, 100), "turns": (0, 1), "nanodollars": (0, 7), "wall_us": (0, 9)}] * 3]
        settled = {"tokens": (42, 0), "turns": (1, 0), "nanodollars": (5, 0), "wall_us": (1_500_000, 0)}
        assert [await scene.budget(account) for account in child.accounts] == [settled | {"tool_calls": (0, 1)}] * 3
        row = await scene.row(child.run_id)
        assert [row[name] for name in ("input_tokens", "output_tokens", "nanodollars", "unpriced")] == [30, 12, 5, 0]

    tell(tmp_path, story)


@pytest.mark.parametrize("where", ["own", "mission"])
def test_what_a_budget_does_not_cover_is_refused_before_it_is_done_and_nothing_of_it_stays(
    tmp_path: Path, where: str
) -> None:
    async def story(scene: Scene) -> None:
        counter, ceiling = Counter(), {"tokens": 150}
        spec = limited("r", own=ceiling) if where == "own" else limited("r", mission=ceiling)
        run = await scene.open(spec)
        steps = RunSteps(run)
        await think(steps, counter)
        await tool(steps, counter.act)
        await steps.note(StepKind.CHECKPOINT, {}, {})
        with pytest.raises(Exhausted, match="budget"):
            await think(steps, counter, 151)
        assert len(counter.keys) == 2
        await run.finish("budget_exhausted", "")
        assert (await scene.types(spec)).count("step.recorded") == 3
        assert {step for event in await scene.store.run_log(spec.run_id) if (step := event.body.get("step"))} == {
            "1", "2", "3",
        }  # fmt: skip
        assert all(reserved == 0 for _, reserved in (await scene.budget(MISSION)).values())

    tell(tmp_path, story)


def test_a_refusal_keeps_the_results_that_were_not_yet_written(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        counter, spec = Counter(), limited("r", own={"tool_calls": 1})
        run = await scene.open(spec)
        steps = RunSteps(run)
        await tool(steps, counter.act)  # its result is held
        with pytest.raises(Exhausted):
            await tool(steps, counter.act)
        await run.finish("budget_exhausted", "")
        assert await scene.budget(spec.run_id) == {"tool_calls": (1, 0)}
        assert (await scene.types(spec))[-3:] == ["step.recorded", "run.spent", "run.finished"]

    tell(tmp_path, story)


def test_runs_that_share_a_mission_never_do_more_together_than_it_allows(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        counter = Counter()
        allowed = {"tool_calls": 5}

        async def work(number: int) -> int:
            steps, done = await scene.steps(limited(f"{number}", mission=allowed)), 0
            try:
                while True:
                    await tool(steps, counter.act)
                    done += 1
            except Exhausted:
                return done

        done = await asyncio.gather(*(work(number) for number in range(4)))
        assert sum(done) == len(counter.keys) == 5

    tell(tmp_path, story)


def test_a_model_call_lost_in_a_kill_is_charged_in_full_at_a_price_nobody_knows(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        counter, spec = Counter(usage={"input_tokens": 1, "output_tokens": 2, "nanodollars": 3}), limited("r")
        for _ in range(2):
            steps = await scene.steps(spec)
            with pytest.raises(Killed):
                await steps.perform(
                    StepKind.MODEL_CALL, Effect.MODEL_CALL, {"n": ""}, counter.killed_after,
                    most={"tokens": 100, "nanodollars": 7},
                )  # fmt: skip
        run = await scene.open(spec)
        await think(RunSteps(run), counter)
        await run.finish("done", "")
        assert await scene.budget(MISSION) == {"tokens": (203, 0), "turns": (3, 0), "nanodollars": (17, 0)}
        row = await scene.row(spec.run_id)
        assert [row[name] for name in ("input_tokens", "output_tokens", "nanodollars", "unpriced")] == [1, 2, 17, 2]
        lost = [event.body for event in await scene.store.run_log(spec.run_id) if event.body.get("lost")]
        assert [body["step"] for body in lost] == ["1", "1"]

    tell(tmp_path, story)


@pytest.mark.parametrize("effect", [Effect.READ, Effect.IDEMPOTENT_WRITE, Effect.NON_IDEMPOTENT])
def test_a_tool_call_done_again_after_kills_counts_once(tmp_path: Path, effect: Effect) -> None:
    async def story(scene: Scene) -> None:
        counter, spec = Counter(), limited("r", own={"tool_calls": 1})
        for _ in range(3):
            with pytest.raises(Killed):
                await tool(await scene.steps(spec), counter.killed_after, effect)
            assert await scene.budget(spec.run_id) == {"tool_calls": (0, 1)}
        run = await scene.open(spec)
        await tool(RunSteps(run), counter.act, effect)
        await run.finish("done", "")
        assert await scene.budget(spec.run_id) == {"tool_calls": (1, 0)}

    tell(tmp_path, story)


@pytest.mark.parametrize("reopened", [True, False])
@pytest.mark.parametrize("effect", [Effect.READ, Effect.NON_IDEMPOTENT, Effect.MODEL_CALL])
def test_whatever_was_held_back_is_free_when_the_run_has_ended(
    tmp_path: Path, effect: Effect, reopened: bool  # noqa: FBT001 - a table's column
) -> None:  # fmt: skip
    async def story(scene: Scene) -> None:
        spec = limited("r")
        kind = StepKind.MODEL_CALL if effect is Effect.MODEL_CALL else StepKind.TOOL_CALL
        run = await scene.open(spec)
        with pytest.raises(Killed):
            await RunSteps(run).perform(kind, effect, {}, Counter().killed_after, most={"tokens": 9})
        if reopened:
            run = await scene.open(spec)
        await run.finish("cancelled", "")
        charged = {"tokens": (9, 0), "turns": (1, 0)} if effect is Effect.MODEL_CALL else {}
        assert await scene.budget(MISSION) == charged

    tell(tmp_path, story)


def test_a_word_said_while_a_read_was_interrupted_does_not_take_its_place_and_its_reservation(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        counter, spec = Counter(), limited("r")
        with pytest.raises(Killed):
            await tool(await scene.steps(spec), counter.killed_after, Effect.READ)
        await scene.orders.steer(spec.run_id, "1", "hold on")
        run = await scene.open(spec)
        steps = RunSteps(run)
        assert not await steps.told()
        await tool(steps, counter.act, Effect.READ)
        assert await steps.told() == ["hold on"]
        await run.finish("done", "")
        assert await scene.budget(spec.run_id) == {"tool_calls": (1, 0)}

    tell(tmp_path, story)


def test_tokens_without_a_price_are_counted_as_unpriced_and_not_as_free(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        run = await scene.open(run_spec())
        await think(RunSteps(run), Counter(usage={"input_tokens": 1, "output_tokens": 2}))
        await run.finish("done", "")
        row = await scene.row(run.spec.run_id)
        assert (row["input_tokens"], row["output_tokens"], row["unpriced"]) == (1, 2, 1)

    tell(tmp_path, story)


def test_a_run_that_nothing_limits_keeps_no_accounts(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        run = await scene.open(run_spec())
        await think(RunSteps(run), Counter())
        await run.finish("done", "")
        assert await scene.types(run.spec) == [
            "run.created", "run.acquired", "step.intended", "step.recorded", "run.finished",
        ]  # fmt: skip

    tell(tmp_path, story)
