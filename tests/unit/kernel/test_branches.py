"""Laws of branches and of the owner's words: a replay finds each under the key that it had, whatever finished first."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from rucher.kernel.steps import RunSteps
from rucher.kernel.waits import question
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import Suspended
from rucher.protocol.ports import StepKind
from tests.fakes.drafts import run_spec
from tests.fakes.kernel import Counter, Killed, Scene, parks, tell, tool

SPEC = run_spec()


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_branches_replay_under_the_same_keys_whatever_order_they_finished_in(
    tmp_path: Path, order: Sequence[int]
) -> None:
    async def story(scene: Scene) -> None:
        gates = [asyncio.Event() for _ in order]

        async def branch(number: int, steps: RunSteps) -> list[Any]:
            async def act(key: str) -> Mapping[str, Any]:
                await gates[number].wait()
                return {"branch": number, "key": key}

            # Not every branch has as many steps; what each asks for is its own.
            return [await tool(steps, act, Effect.READ, f"{number}.{turn}") for turn in range(number + 1)]

        async def all_of(steps: RunSteps) -> list[list[Any]]:
            branches = steps.branches(3)
            return await asyncio.gather(*(branch(number, each) for number, each in enumerate(branches)))

        running = asyncio.ensure_future(all_of(steps := await scene.steps(SPEC)))
        for number in order:
            gates[number].set()
            await asyncio.sleep(0.001)
        first = await running
        await steps.note(StepKind.CHECKPOINT, {"after": "branches"}, {})
        log = [event.body["step"] for event in await scene.store.run_log(SPEC.run_id) if "step" in event.body]
        assert sorted(log) == ["1.1.1", "1.2.1", "1.2.2", "1.3.1", "1.3.2", "1.3.3", "2"]
        for gate in gates:
            gate.clear()  # an act would now hang
        assert await asyncio.wait_for(all_of(await scene.steps(SPEC)), 5) == first

    tell(tmp_path, story)


def test_branches_that_were_killed_half_way_do_only_what_was_missing(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        done, missing = Counter(), Counter()
        steps = await scene.steps(SPEC)
        one, two = steps.branches(2)
        await tool(one, done.act)
        await tool(one, done.act)
        with pytest.raises(Killed):
            await tool(two, missing.killed_after, Effect.READ)
        one, two = (await scene.steps(SPEC)).branches(2)
        await tool(two, missing.act, Effect.READ)
        await tool(one, done.act)
        await tool(one, done.act, Effect.NON_IDEMPOTENT)
        assert (len(done.keys), len(missing.keys), len(set(missing.keys))) == (2, 2, 1)

    tell(tmp_path, story)


def test_branches_beneath_branches_have_keys_of_their_own(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        counter = Counter()
        for _ in range(2):
            steps = await scene.steps(SPEC)
            for branch in steps.branches(2):
                for leaf in branch.branches(2):
                    await tool(leaf, counter.act, Effect.IDEMPOTENT_WRITE)
            await steps.note(StepKind.CHECKPOINT, {}, {})
        assert len(counter.keys) == len(set(counter.keys)) == 4

    tell(tmp_path, story)


def test_branches_that_wait_side_by_side_each_get_their_own_answer(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async def asks(steps: RunSteps, name: str) -> Any:
            return await steps.wait(StepKind.WAIT_HUMAN, {"ask": name}, name, [question(f"q:{name}")])

        async def both() -> list[Any] | None:
            run = await scene.open(SPEC)
            if run.parked:
                return None
            one, two = RunSteps(run).branches(2)
            answers: list[Any] = []
            with contextlib.suppress(ExceptionGroup):
                async with asyncio.TaskGroup() as tasks:
                    answers = [tasks.create_task(asks(one, "a")), tasks.create_task(asks(two, "b"))]
            failed = [task for task in answers if task.cancelled() or task.exception()]
            assert all(task.cancelled() or isinstance(task.exception(), Suspended) for task in failed)
            return None if failed else [task.result() for task in answers]

        assert await both() is None
        await scene.signal("q:b", {"text": "to b"})
        for _ in range(3):
            assert await both() is None
        assert await scene.state(SPEC) == ["waiting"]
        await scene.signal("q:a", {"text": "to a"})
        answers = None
        while answers is None:
            assert await scene.state(SPEC) == ["ready"]
            answers = await both()
        assert answers == [[{"text": "to a"}], [{"text": "to b"}]]

    tell(tmp_path, story)


async def told(scene: Scene, *, killed: bool = False) -> tuple[list[list[str]], list[str]]:
    """What a run hears before each of its three turns, and what it is told to do in each."""
    steps, heard, did = await scene.steps(SPEC), [], []
    for turn in range(3):
        heard.append(list(await steps.told()))

        async def act(key: str, turn: int = turn) -> Mapping[str, Any]:
            did.append(f"{turn}")
            if killed and turn == 1:
                raise Killed
            return {"key": key}

        await tool(steps, act, Effect.MODEL_CALL, f"turn {turn}: {heard}")
    await steps.note(StepKind.CHECKPOINT, {}, {})
    return heard, did


def test_what_the_owner_says_is_heard_once_and_replayed_at_the_same_place(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.open(SPEC)
        await scene.orders.steer(SPEC.run_id, "1", "be brief")
        await scene.orders.steer(SPEC.run_id, "2", "be kind")
        with pytest.raises(Killed):
            await told(scene, killed=True)
        await scene.orders.steer(SPEC.run_id, "3", "be quick")
        # Its second turn was intended before this was said, so it is heard in the third.
        heard, did = await told(scene)
        assert heard == [["be brief", "be kind"], [], ["be quick"]]
        assert did == ["1", "2"]
        assert await told(scene) == (heard, [])
        await scene.orders.steer(SPEC.run_id, "4", "too late")
        assert await told(scene) == (heard, [])

    tell(tmp_path, story)


def test_a_word_said_while_a_read_was_interrupted_is_heard_before_it(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        counter = Counter()
        steps = await scene.steps(SPEC)
        assert not await steps.told()
        with pytest.raises(Killed):
            await tool(steps, counter.killed_after, Effect.READ)
        await scene.orders.steer(SPEC.run_id, "1", "wait")
        for _ in range(2):
            steps = await scene.steps(SPEC)
            assert await steps.told() == ["wait"]
            await tool(steps, counter.act, Effect.READ)
            assert not await steps.told()
            await steps.note(StepKind.CHECKPOINT, {}, {})
        assert len(counter.keys) == 2

    tell(tmp_path, story)


def test_a_word_given_twice_under_one_key_is_heard_once(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.open(SPEC)
        for _ in range(2):
            await scene.orders.steer(SPEC.run_id, "same", "once")
        assert await (await scene.steps(SPEC)).told() == ["once"]

    tell(tmp_path, story)


def test_a_parked_run_hears_what_was_said_meanwhile(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async def work() -> Any:
            steps = await scene.steps(SPEC)
            answer = await steps.wait(StepKind.WAIT_HUMAN, {}, "why", [question("q")])
            return answer, await steps.told()

        await parks(work())
        await scene.orders.steer(SPEC.run_id, "1", "meanwhile")
        await scene.signal("q", {"text": "because"})
        for _ in range(2):
            assert await work() == ([{"text": "because"}], ["meanwhile"])

    tell(tmp_path, story)
