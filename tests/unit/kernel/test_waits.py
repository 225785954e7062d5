"""Laws of waits: rows and nothing else while they last, no wake-up lost, each first word final."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rucher.kernel import waits
from rucher.kernel.steps import RunSteps
from rucher.kernel.waits import Item, Mode
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import BadInput, Diverged
from rucher.protocol.ports import StepKind
from tests.fakes.drafts import NOW, run_spec, said
from tests.fakes.kernel import Counter, Scene, parks, tell, tool

SPEC = run_spec()
HOUR = 3600 * 1_000_000


async def wait(scene: Scene, items: Sequence[Item], mode: Mode = "all") -> Any:
    """What the run's first step, a wait, brings; taken over anew each time."""
    steps = await scene.steps(SPEC)
    outcomes = await steps.wait(StepKind.WAIT_HUMAN, {"for": len(items)}, "it must know", items, mode)
    await steps.note(StepKind.CHECKPOINT, {"after": "the wait"}, {})
    return outcomes


@pytest.mark.parametrize("early", [True, False], ids=["signal first", "wait first"])
def test_a_signal_is_never_lost_whether_it_or_the_wait_comes_first(
    tmp_path: Path, early: bool  # noqa: FBT001 - a table's column
) -> None:  # fmt: skip
    async def story(scene: Scene) -> None:
        if early:
            await scene.signal("t", {"n": 1})
        parked = await parks(wait(scene, [waits.event("t")]))
        assert (parked.step, str(parked)) == ("1", "it must know")
        assert await scene.state(SPEC) == ["ready" if early else "waiting"]
        await scene.signal("t", {"n": 2})
        assert await scene.state(SPEC) == ["ready"]
        for _ in range(2):
            assert await wait(scene, [waits.event("t")]) == [{"n": 1 if early else 2}]
        assert await scene.store.rows("run.waits", SPEC.run_id) == []

    tell(tmp_path, story)


def test_signals_and_waits_that_cross_are_never_lost(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        specs = [run_spec(f"crossing {number}") for number in range(12)]

        async def waits_for(number: int) -> None:
            steps = await scene.steps(specs[number])
            await parks(steps.wait(StepKind.JOIN, {}, "x", [waits.event(f"t{number}")]))

        both = [waits_for(number) for number in range(12)]
        both += [scene.signal(f"t{number}", {"n": number}) for number in range(12)]
        await asyncio.gather(*both)
        assert await scene.state(*specs) == ["ready"] * 12

    tell(tmp_path, story)


def test_all_waits_for_all_and_any_for_the_first(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        items = [waits.event("a"), waits.event("b"), waits.timer(NOW + HOUR)]
        modes: Mapping[Mode, list[str]] = {"any": ["ready"], "all": ["waiting"]}
        for mode, state in modes.items():
            spec = run_spec(f"waits for {mode}")
            await parks((await scene.steps(spec)).wait(StepKind.WAIT_HUMAN, {}, "x", items, mode))
            await scene.signal("b", {"n": 1})
            assert await scene.state(spec) == state
        assert (await scene.open(run_spec("waits for all"))).parked
        steps = await scene.steps(run_spec("waits for any"))
        assert await steps.wait(StepKind.WAIT_HUMAN, {}, "x", items, "any") == [None, {"n": 1}, None]
        scene.clock.advance(3600)
        await scene.signal("a", {"n": 2})
        assert await scene.timers.fire_due() == 1  # of the one whose wait is over, nothing is left to fire
        assert await scene.state(run_spec("waits for all")) == ["ready"]
        steps = await scene.steps(run_spec("waits for all"))
        assert await steps.wait(StepKind.WAIT_HUMAN, {}, "x", items) == [{"n": 2}, {"n": 1}, {"fired": True}]

    tell(tmp_path, story)


def test_a_wait_for_nothing_is_over_at_once(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        modes: tuple[Mode, ...] = ("any", "all")
        for mode in modes:
            steps = await scene.steps(run_spec(mode))
            assert await steps.join([], mode) == []
        assert await scene.state(run_spec("all")) == ["running"]

    tell(tmp_path, story)


@pytest.mark.parametrize("kind", ["approval", "question", "event", "child", "timer"])
def test_what_time_brings_depends_on_what_was_waited_for_and_nobody_is_not_a_yes(tmp_path: Path, kind: str) -> None:
    item = {
        "approval": waits.approval("t", NOW + HOUR),
        "question": waits.question("t", NOW + HOUR),
        "event": waits.event("t", NOW + HOUR),
        "child": waits.child("T", NOW + HOUR),
        "timer": waits.timer(NOW + HOUR),
    }[kind]
    brought = {
        "approval": {"approved": False, "reason": "nobody decided in time", "expired": True},
        "timer": {"fired": True},
    }

    async def story(scene: Scene) -> None:
        await parks(wait(scene, [item]))
        assert await scene.timers.fire_due() == 0
        scene.clock.advance(3600)
        assert await scene.timers.fire_due() == 1
        assert await wait(scene, [item]) == [brought.get(kind, {"expired": True})]

    tell(tmp_path, story)


def test_the_first_of_an_answer_and_an_expiry_counts_and_the_other_is_told_so(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        item, spec = waits.approval("early", NOW + HOUR), run_spec("answered in time")
        await parks((await scene.steps(spec)).wait(StepKind.WAIT_HUMAN, {}, "may I?", [item]))
        await scene.orders.answer(spec.run_id, "1", {"approved": True})
        late = waits.approval("late", NOW + HOUR)
        await parks(wait(scene, [late]))
        scene.clock.advance(3601)
        assert await scene.timers.fire_due() == 1
        with pytest.raises(BadInput, match="nobody decided in time"):
            await scene.orders.answer(SPEC.run_id, "1", {"approved": True})
        assert await (await scene.steps(spec)).wait(StepKind.WAIT_HUMAN, {}, "may I?", [item]) == [{"approved": True}]
        assert (await wait(scene, [late]))[0]["approved"] is False

    tell(tmp_path, story)


def test_two_answers_act_once_and_the_second_is_told_when_it_differs(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await parks(wait(scene, [waits.question("q")]))
        given = [scene.orders.answer(SPEC.run_id, "1", {"text": text}) for text in ("yes", "yes", "no")]
        said = await asyncio.gather(*given, return_exceptions=True)
        outcome = await wait(scene, [waits.question("q")])
        first = [{"text": text} for text, fault in zip(("yes", "yes", "no"), said, strict=True) if fault is None]
        assert outcome == first[:1]
        assert [str(fault).startswith("this was decided already") for fault in said if fault] == [True] * (
            3 - len(first)
        )
        assert len(first) == (2 if first[0]["text"] == "yes" else 1)
        with pytest.raises(BadInput, match="does not wait"):
            await scene.orders.answer(SPEC.run_id, "1", {"text": "no"})
        assert await wait(scene, [waits.question("q")]) == outcome

    tell(tmp_path, story)


def test_an_answer_to_a_step_that_does_not_wait_is_refused(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await parks(wait(scene, [waits.timer(NOW + HOUR)]))
        for step in ("1", "2"):
            with pytest.raises(BadInput, match="does not wait"):
                await scene.orders.answer(SPEC.run_id, step, {"text": "x"})
        with pytest.raises(BadInput, match="does not wait"):
            await scene.orders.resolve(SPEC.run_id, "1", "ran")
        with pytest.raises(BadInput, match="does not wait"):
            await scene.orders.migrate(SPEC.run_id)
        with pytest.raises(BadInput, match="there is no run"):
            await scene.orders.answer(run_spec("unknown").run_id, "1", {"text": "x"})
        with pytest.raises(BadInput, match="no verdict"):
            await scene.orders.resolve(SPEC.run_id, "1", "perhaps")

    tell(tmp_path, story)


def test_a_child_is_made_once_with_its_step_and_its_end_is_what_joining_brings(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async def work() -> Any:
            steps = await scene.steps(SPEC)
            children = [
                await steps.spawn(
                    {"do": n}, lambda run_id: run_spec("c", run_id=run_id, parent=SPEC.run_id, lane=run_id)
                )
                for n in range(2)
            ]
            return children, await steps.join(children)

        await parks(work())
        children = [row["run_id"] for row in await scene.store.rows("run.children", SPEC.run_id)]
        assert len(children) == 2
        assert await scene.claimable() == children
        kernel = scene.kernel()
        for number, child in enumerate(children):
            assert await scene.state(SPEC) == ["waiting"]
            run = await kernel.open(await scene.spec(child))
            await run.finish("done" if number else "failed", "because", result={"text": f"{number}"})
        assert await scene.state(SPEC) == ["ready"]
        for _ in range(2):
            assert await work() == (
                children,
                [
                    {"state": "failed", "reason": "because", "result": {"text": "0"}},
                    {"state": "done", "reason": "because", "result": {"text": "1"}},
                ],
            )
        assert len(await scene.store.rows("run.children", SPEC.run_id)) == 2

    tell(tmp_path, story)


def test_a_child_that_ended_before_it_was_joined_is_not_waited_for_in_vain(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        steps = await scene.steps(SPEC)
        child = await steps.spawn({}, lambda run_id: run_spec("c", run_id=run_id, parent=SPEC.run_id, lane=run_id))
        kernel = scene.kernel()
        await (await kernel.open(await scene.spec(child))).finish("done", "")
        await parks(steps.join([child]))
        assert await scene.state(SPEC) == ["ready"]

    tell(tmp_path, story)


def test_a_waiting_run_is_not_taken_and_its_wait_is_asked_about_once(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await parks(wait(scene, [waits.question("q")]))
        head = scene.store.head
        assert (await scene.open(SPEC)).parked
        assert await scene.claimable() == []
        assert scene.store.head == head

    tell(tmp_path, story)


def test_a_wait_that_was_met_survives_a_kill_before_it_was_taken_in(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await parks(wait(scene, [waits.question("q")]))
        await scene.signal("q", {"text": "yes"})
        for _ in range(3):
            assert not (await scene.open(SPEC)).parked  # taken, and killed
            assert await scene.claimable() == [SPEC.run_id]
        assert await wait(scene, [waits.question("q")]) == [{"text": "yes"}]

    tell(tmp_path, story)


def test_a_second_wait_at_another_step_knows_nothing_of_the_first(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async def work() -> Any:
            steps, got = await scene.steps(SPEC), list[Any]()
            for number in range(3):
                got += await steps.wait(StepKind.TIMER, {"n": number}, "x", [waits.event(f"t{number}")])
            return got

        for number in range(3):
            await parks(work())
            assert await scene.state(SPEC) == ["waiting"]
            await scene.signal(f"t{number}", {"n": number})
        assert await work() == [{"n": 0}, {"n": 1}, {"n": 2}]

    tell(tmp_path, story)


def test_a_run_that_sleeps_goes_on_when_its_time_has_passed_counted_from_when_it_lay_down(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async def work() -> None:
            steps = await scene.steps(SPEC)
            await steps.sleep(60)
            await steps.note(StepKind.CHECKPOINT, {}, {})

        await parks(work())
        scene.clock.advance(59)
        assert await scene.timers.fire_due() == 0
        scene.clock.advance(1)
        assert await scene.timers.fire_due() == 1
        for _ in range(2):
            await work()

    tell(tmp_path, story)


def test_a_question_is_answered_by_its_owner_or_by_time(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async def work(expires: float | None) -> list[Any]:
            steps = await scene.steps(SPEC)
            return [await steps.ask(question, expires) for question in ("which?", "and then?")]

        await parks(work(60))
        await scene.orders.answer(SPEC.run_id, "1", {"text": "blue"})
        await parks(work(60))
        scene.clock.advance(60)
        assert await scene.timers.fire_due() == 1
        for _ in range(2):
            assert await work(60) == [{"text": "blue"}, {"expired": True}]

    tell(tmp_path, story)


def test_a_wait_recorded_for_another_request_diverges(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await tool(await scene.steps(SPEC), Counter().act, Effect.NON_IDEMPOTENT)
        with pytest.raises(Diverged):
            await wait(scene, [waits.question("q")])

    tell(tmp_path, story)


def test_what_is_said_with_a_wait_is_in_its_commit(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        run = await scene.open(SPEC)
        run.asks = lambda parking: [said(f"{parking.kind} {parking.step} {parking.reason} {parking.place}")]
        head = scene.store.head
        await parks(RunSteps(run).wait(StepKind.WAIT_HUMAN, {}, "who are you?", [waits.question("q")]))
        assert await scene.store.event(said("wait_human 1 who are you? 2").id) is not None
        assert scene.store.head == head + 2

    tell(tmp_path, story)
