"""Laws of steps: recorded results come back, unfinished steps follow their effect, and only one owner writes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rucher.journal.rows import RunWrite
from rucher.kernel.run import Run
from rucher.kernel.runs import VERDICTS
from rucher.kernel.steps import RunSteps, step_key
from rucher.kernel.waits import question
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import BadInput, Diverged, Fenced, Uncertain
from rucher.protocol.ports import Proof, StepKind
from tests.fakes.drafts import run_spec, said
from tests.fakes.kernel import Counter, Killed, Scene, Through, parks, proving, tell, tool

SPEC = run_spec()


async def uncertain(_key: str) -> Mapping[str, Any]:
    raise Uncertain("it may have run")


async def interrupted(scene: Scene, act: Counter, effect: Effect) -> None:
    """A step that was acted, and killed before its result was recorded."""
    with pytest.raises(Killed):
        await tool(await scene.steps(SPEC), act.killed_after, effect)


@pytest.mark.parametrize("effect", Effect)
def test_a_recorded_result_is_returned_and_never_acted_again(tmp_path: Path, effect: Effect) -> None:
    async def story(scene: Scene) -> None:
        counter = Counter()
        first = await scene.steps(SPEC)
        await tool(first, counter.act, effect)
        await tool(first, counter.act)
        again = await scene.steps(SPEC)
        assert await tool(again, counter.act, effect) == {"count": 1}
        assert len(counter.keys) == 2

    tell(tmp_path, story)


@pytest.mark.parametrize("effect", [Effect.READ, Effect.IDEMPOTENT_WRITE, Effect.MODEL_CALL])
def test_an_unfinished_step_that_may_be_done_again_is_done_again_under_the_same_key(
    tmp_path: Path, effect: Effect
) -> None:
    async def story(scene: Scene) -> None:
        counter = Counter()
        await interrupted(scene, counter, effect)
        await tool(await scene.steps(SPEC), counter.act, effect)
        assert counter.keys == [step_key(SPEC.run_id, "1", 1)] * 2

    tell(tmp_path, story)


@pytest.mark.parametrize(("proof", "acted"), [(Proof.DONE, 1), (Proof.NOT_DONE, 1), (Proof.UNKNOWN, 0)])
def test_an_interrupted_step_that_must_not_run_twice_is_acted_only_after_a_proof(
    tmp_path: Path, proof: Proof, acted: int
) -> None:
    async def story(scene: Scene) -> None:
        before, after = Counter(), Counter()
        await interrupted(scene, before, Effect.NON_IDEMPOTENT)
        steps = await scene.steps(SPEC)
        probed = steps.perform(
            StepKind.TOOL_CALL, Effect.NON_IDEMPOTENT, {"tool": "x"}, after.act, proving(proof)
        )  # fmt: skip
        if acted:
            assert await probed == {"count": 1}
        else:
            assert (await parks(probed)).step == "1"
            assert await scene.state(SPEC) == ["waiting"]
        assert after.keys == before.keys[:acted]

    tell(tmp_path, story)


def test_a_step_that_was_not_interrupted_is_never_probed(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        counter = Counter()
        await (await scene.steps(SPEC)).perform(
            StepKind.TOOL_CALL, Effect.NON_IDEMPOTENT, {}, counter.act, proving(Proof.UNKNOWN)
        )
        assert len(counter.keys) == 1

    tell(tmp_path, story)


@pytest.mark.parametrize("effect", Effect)
@pytest.mark.parametrize("verdict", VERDICTS)
def test_an_uncertain_step_waits_for_its_owner_whose_word_is_then_its_result(
    tmp_path: Path, verdict: str, effect: Effect
) -> None:
    async def story(scene: Scene) -> None:
        counter = Counter()
        await parks(tool(await scene.steps(SPEC), uncertain, effect))
        waiting = await scene.open(SPEC)
        assert waiting.parked
        assert (waiting.log.waiting_for, waiting.log.waiting_reason) == ("1", "it may have run")
        await scene.orders.resolve(SPEC.run_id, "1", verdict)
        result = await tool(await scene.steps(SPEC), counter.act, effect)
        assert result == (VERDICTS[verdict] or {"count": 1})
        assert counter.keys == ([] if VERDICTS[verdict] else [step_key(SPEC.run_id, "1", 2)])
        assert await scene.state(SPEC) == ["running"]

    tell(tmp_path, story)


def test_a_verdict_survives_a_kill_right_after_it_was_taken_in(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await parks(tool(await scene.steps(SPEC), uncertain))
        await scene.orders.resolve(SPEC.run_id, "1", "ran")
        for _ in range(3):
            assert (await tool(await scene.steps(SPEC), uncertain))["ok"]
        assert (await scene.types(SPEC)).count("step.recorded") == 1

    tell(tmp_path, story)


def test_a_step_can_be_uncertain_again_and_is_asked_about_again(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        counter = Counter()

        async def perhaps(key: str) -> Mapping[str, Any]:
            await counter.act(key)
            raise Uncertain("it may have run")

        for _ in range(3):
            await parks(tool(await scene.steps(SPEC), perhaps))
            assert await scene.state(SPEC) == ["waiting"]
            await scene.orders.resolve(SPEC.run_id, "1", "not-run")
        await scene.orders.resolve(SPEC.run_id, "1", "not-run")  # said again before the run went on: the same word
        with pytest.raises(BadInput, match="decided already"):
            await scene.orders.resolve(SPEC.run_id, "1", "ran")
        await tool(await scene.steps(SPEC), counter.act)
        assert counter.keys == [step_key(SPEC.run_id, "1", attempt) for attempt in (1, 2, 3, 4)]
        assert len(set(counter.keys)) == 4

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("kind", "asked"),
    [(StepKind.TOOL_CALL, {"tool": "other"}), (StepKind.MODEL_CALL, {"tool": "x"})],
    ids=["request", "kind"],
)
@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "intended"])
def test_a_replay_that_asks_for_something_else_diverges_and_does_nothing(
    tmp_path: Path, kind: StepKind, asked: Mapping[str, Any], recorded: bool  # noqa: FBT001 - a table's column
) -> None:  # fmt: skip
    async def story(scene: Scene) -> None:
        counter = Counter()
        steps = await scene.steps(SPEC)
        await tool(steps, counter.act)
        if recorded:
            await tool(steps, counter.act)
        before = len(counter.keys)
        with pytest.raises(Diverged, match="step 1"):
            await (await scene.steps(SPEC)).perform(kind, Effect.NON_IDEMPOTENT, asked, counter.act)
        assert len(counter.keys) == before

    tell(tmp_path, story)


def test_the_same_request_in_another_order_of_its_fields_is_the_same(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        counter = Counter()
        for request in ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}):
            steps = await scene.steps(SPEC)
            await steps.perform(StepKind.TOOL_CALL, Effect.READ, request, counter.act)
            await steps.note(StepKind.CHECKPOINT, {}, {})
        assert len(counter.keys) == 1

    tell(tmp_path, story)


def test_a_result_and_the_next_intention_share_one_commit(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        store = Through(scene.store)
        run = await scene.open(SPEC, store=store)
        steps = RunSteps(run)
        for effect in (Effect.NON_IDEMPOTENT, Effect.IDEMPOTENT_WRITE, Effect.MODEL_CALL, Effect.READ, Effect.READ):
            await tool(steps, Counter().act, effect)
        await run.finish("done", "", said("answer"))
        assert store.writes == [
            ["run.created"],
            ["run.acquired"],
            ["step.intended"],
            ["step.recorded", "step.intended"],
            ["step.recorded", "step.intended"],
            ["step.recorded"],
            ["step.recorded"],
            ["step.recorded", "run.finished"],
        ]

    tell(tmp_path, story)


def test_nothing_is_acted_before_its_intention_is_committed(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        seen: list[list[str]] = []

        async def act(_key: str) -> Mapping[str, Any]:
            seen.append((await scene.types(SPEC))[2:])
            return {}

        steps = await scene.steps(SPEC)
        for effect in (Effect.NON_IDEMPOTENT, Effect.READ, Effect.MODEL_CALL):
            await tool(steps, act, effect)
        assert seen == [
            ["step.intended"],
            ["step.intended", "step.recorded"],
            ["step.intended", "step.recorded", "step.recorded", "step.intended"],
        ]

    tell(tmp_path, story)


def test_after_a_failed_write_its_owner_writes_no_more_and_another_goes_on(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        store, counter = Through(scene.store), Counter()
        run = await scene.open(SPEC, store=store)
        steps = RunSteps(run)
        await tool(steps, counter.act)

        async def fail(_write: RunWrite) -> None:
            raise Killed

        store.before = fail
        with pytest.raises(Killed):
            await tool(steps, counter.act)
        store.before = store.after
        for _ in range(2):
            with pytest.raises(Fenced, match="opened again"):
                await run.finish("done", "")
        assert len(counter.keys) == 1
        again = await scene.steps(SPEC)
        await tool(again, counter.act)
        assert counter.keys == [step_key(SPEC.run_id, "1", 1)] * 2  # its result was in the write that failed

    tell(tmp_path, story)


def test_a_write_refused_for_itself_leaves_what_came_before_to_be_written(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async def unstorable(_key: str) -> Mapping[str, Any]:
            return {"text": float("nan")}

        run = await scene.open(SPEC)
        steps = RunSteps(run)
        await tool(steps, Counter().act)
        with pytest.raises(BadInput):
            await tool(steps, unstorable)
        await run.finish("failed", "its result cannot be stored")
        assert await scene.state(SPEC) == ["failed"]
        assert (await scene.types(SPEC)).count("step.recorded") == 1

    tell(tmp_path, story)


@pytest.mark.parametrize("what", ["perform", "note", "wait", "spawn", "finish", "queued"])
def test_the_former_owner_of_a_run_can_write_nothing_more(tmp_path: Path, what: str) -> None:
    async def story(scene: Scene) -> None:
        counter = Counter()
        run = await scene.open(SPEC)
        zombie = RunSteps(run)
        await tool(zombie, counter.act, Effect.READ)  # its result is held
        owner = await scene.steps(SPEC)
        before = len(await scene.types(SPEC))
        branches = zombie.branches(3) if what == "queued" else [zombie]
        late: Mapping[str, Callable[[RunSteps], Awaitable[Any]]] = {
            "perform": lambda steps: tool(steps, counter.act),
            "note": lambda steps: steps.note(StepKind.CHECKPOINT, {}, {}),
            "wait": lambda steps: steps.wait(StepKind.TIMER, {}, "late", [question("q")]),
            "spawn": lambda steps: steps.spawn({}, lambda run_id: run_spec("child", run_id=run_id)),
            "finish": lambda _: run.finish("done", "", said("a late answer")),
            "queued": lambda steps: tool(steps, counter.act),
        }
        refused = await asyncio.gather(*(late[what](each) for each in branches), return_exceptions=True)
        assert all(isinstance(each, Fenced) for each in refused)
        with pytest.raises(Fenced):
            await run.finish("done", "")
        assert len(counter.keys) == 1
        assert len(await scene.types(SPEC)) == before
        assert await scene.store.event(said("a late answer").id) is None
        await tool(owner, counter.act)

    tell(tmp_path, story)


def test_of_those_that_open_a_run_at_once_one_can_write(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        kernels = [scene.kernel() for _ in range(6)]
        assert sorted([await kernel.create(SPEC) for kernel in kernels]) == [False] * 5 + [True]
        opened = await asyncio.gather(*(kernel.open(SPEC) for kernel in kernels), return_exceptions=True)
        owners = [one for one in opened if isinstance(one, Run)]
        assert owners
        assert all(isinstance(one, Run | Fenced) for one in opened)
        written = await asyncio.gather(*(owner.finish("done", "") for owner in owners), return_exceptions=True)
        assert [type(each) for each in written].count(type(None)) == 1
        assert (await scene.types(SPEC)).count("run.finished") == 1

    tell(tmp_path, story)


def test_a_finished_run_is_not_taken_again(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await (await scene.open(SPEC)).finish("failed", "because")
        head = scene.store.head
        assert (await scene.open(SPEC)).finished == "failed"
        assert scene.store.head == head
        assert await scene.claimable() == []

    tell(tmp_path, story)


def test_what_a_run_emits_is_committed_with_its_end_or_not_at_all(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        run = await scene.open(SPEC)
        with pytest.raises(BadInput):
            await run.finish("done", "", said("a"), said("b", text="x" * (2 << 20)))
        assert await scene.store.event(said("a").id) is None
        assert await scene.state(SPEC) == ["running"]
        await run.finish("partial", "", said("a"))
        assert await scene.store.event(said("a").id) is not None
        assert await scene.state(SPEC) == ["partial"]

    tell(tmp_path, story)


def test_a_note_is_recalled_as_it_was(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        assert await (await scene.steps(SPEC)).note(StepKind.VERDICT, {"of": "x"}, {"good": True}) == {"good": True}
        again = await scene.steps(SPEC)
        assert await again.note(StepKind.VERDICT, {"of": "x"}, {"good": False}) == {"good": True}
        with pytest.raises(Diverged):
            await (await scene.steps(SPEC)).note(StepKind.VERDICT, {"of": "y"}, {})

    tell(tmp_path, story)
