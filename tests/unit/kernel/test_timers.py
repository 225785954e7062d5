"""Laws of timers: each fires once, whoever brings it and however the clock jumps, and none sleeps past its time."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from rucher.kernel.timers import BATCH, Timers
from rucher.kernel.waits import Item, event, timer
from rucher.protocol.ports import StepKind
from tests.fakes.clock import until
from tests.fakes.drafts import NOW, run_spec
from tests.fakes.kernel import Scene, parks, tell

SPEC = run_spec()
HOUR = 3600.0
DUE = NOW + 1_800_000_000


async def wait_for(scene: Scene, *items: Item, name: str = "r") -> None:
    steps = await scene.steps(run_spec(name))
    await parks(steps.wait(StepKind.TIMER, {}, "later", items))


@pytest.mark.parametrize(
    ("jumps", "fires"),
    [((), False), ((HOUR,), True), ((-HOUR, HOUR), False), ((-HOUR, HOUR, HOUR), True), ((HOUR, -HOUR), False)],
)
def test_what_the_clock_shows_when_it_is_looked_at_decides(
    tmp_path: Path, jumps: tuple[float, ...], fires: bool  # noqa: FBT001 - a table's column
) -> None:  # fmt: skip
    async def story(scene: Scene) -> None:
        await wait_for(scene, timer(DUE))
        for jump in jumps:
            scene.clock.jump(jump)
        assert await scene.timers.fire_due() == fires
        assert await scene.state(SPEC) == ["ready" if fires else "waiting"]

    tell(tmp_path, story)


def test_a_timer_that_fired_stays_fired_when_the_clock_goes_back(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await wait_for(scene, timer(DUE))
        scene.clock.jump(HOUR)
        await scene.timers.fire_due()
        scene.clock.jump(-2 * HOUR)
        assert await scene.timers.fire_due() == 0
        steps = await scene.steps(SPEC)
        assert await steps.wait(StepKind.TIMER, {}, "later", [timer(DUE)]) == [{"fired": True}]
        assert await scene.state(SPEC) == ["running"]

    tell(tmp_path, story)


def test_timers_brought_by_several_fire_once(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        for number in range(5):
            await wait_for(scene, timer(DUE), name=f"{number}")
        scene.clock.advance(HOUR)
        await asyncio.gather(*(scene.timers.fire_due() for _ in range(4)))
        fired = [event for event in await scene.store.read(0, 999) if event.type == "timer.fired"]
        assert len(fired) == 5
        assert await scene.state(*(run_spec(f"{number}") for number in range(5))) == ["ready"] * 5

    tell(tmp_path, story)


def test_more_than_one_batch_that_is_due_fires_in_one_go(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await wait_for(scene, *(timer(NOW + number) for number in range(BATCH + 3)))
        scene.clock.advance(1)
        assert await scene.timers.fire_due() == BATCH + 3
        assert await scene.state(SPEC) == ["ready"]

    tell(tmp_path, story)


def test_a_wait_opened_again_for_a_moment_that_has_fired_before_fires_again(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await wait_for(scene, timer(DUE))
        scene.clock.advance(HOUR)
        await scene.timers.fire_due()
        # Another branch of the run waits now, and the first one asks again when it is replayed.
        one, two = (await scene.steps(SPEC)).branches(2)
        await parks(two.wait(StepKind.TIMER, {}, "x", [event("t")]))
        await scene.signal("t", {})
        await wait_for(scene, timer(DUE))
        assert await asyncio.wait_for(scene.timers.fire_due(), 5) == 1
        assert await scene.state(SPEC) == ["ready"]
        assert one is not two

    tell(tmp_path, story)


def test_the_loop_fires_in_time_and_hears_of_new_timers(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async def fires(name: str) -> None:
            async def ready() -> bool:
                return await scene.state(run_spec(name)) == ["ready"]

            await until(ready, f"the timer of {name}")

        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(Timers(scene.store, scene.clock).run())
            await wait_for(scene, timer(NOW - 1), name="past")
            await fires("past")
            await wait_for(scene, timer(DUE), name="later")
            scene.clock.jump(HOUR)
            await scene.signal("anything", {})  # rings the bell; without one it looks again within seconds
            await fires("later")
            scene.clock.jump(-2 * HOUR)
            await wait_for(scene, timer(scene.clock.now() - 1), name="after the jump")
            await fires("after the jump")
            running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    tell(tmp_path, story)
