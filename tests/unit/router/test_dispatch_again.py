"""Laws of hops that their owner has tried again: handed out at once, whatever waits before and behind them."""

import asyncio
from functools import partial

import pytest

from rucher.protocol.errors import Permanent
from rucher.protocol.events import control_event
from rucher.router import dispatch
from tests.fakes.clock import settled, until
from tests.unit.router.test_dispatch import World, during


async def retry(world: World, hop: str, number: int = 1) -> None:
    (made,) = [event for event in world.journal.events if event.id == hop]
    draft = control_event(
        tenant="home", part="owner", kind="hop.retried", key=f"{hop}:{number}", trace_id=made.trace_id, parent_id=hop,
        occurred_at=1, body={"hop": hop, "by": "owner:ana", "number": number},
    )  # fmt: skip
    await world.journal.append(draft)


def _failed(world: World, times: int) -> bool:
    return len(world.ended("hop.failed")) == times


def test_a_hop_that_failed_twice_is_recorded_as_failed_twice_and_then_taken() -> None:
    world = World()

    async def story() -> None:
        world.agents.failures["bad"] = [Permanent("no"), Permanent("no again")]
        hop = await world.send("bad")
        for number in (1, 2):
            await until(partial(_failed, world, number))
            await retry(world, hop, number)
        await until(lambda: world.ended("hop.acknowledged") == [hop])

    during(world, story)
    assert [event.body["reason"] for event in world.journal.of_type("hop.failed")] == ["no", "no again"]


def test_one_tried_again_while_its_lane_is_full_is_taken_once_and_no_other_is_lost_or_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "LANE_BOUND", 3)
    world = World()

    async def story() -> None:
        world.agents.failures["bad"] = [Permanent("no")]
        bad = await world.send("bad")
        await until(lambda: world.ended("hop.failed") == [bad])
        world.agents.hold("0")
        for number in range(10):
            await world.send(str(number))
        await settled()
        await retry(world, bad)
        await settled()
        world.agents.release()
        await until(lambda: len(world.agents.took) == 11)
        await settled()

    during(world, story)
    assert sorted(world.agents.took) == sorted(["bad>agent:a", *(f"{number}>agent:a" for number in range(10))])
    others = [took for took in world.agents.took if not took.startswith("bad")]
    assert others == [f"{number}>agent:a" for number in range(10)]


def test_ten_lanes_that_are_stuck_for_ever_starve_no_other() -> None:
    world = World()

    async def story() -> None:
        for number in range(10):
            world.agents.hold(f"stuck{number}")
            await world.send(f"stuck{number}", thread=f"t{number}")
        for number in range(50):
            await world.send(str(number), thread="free")
        await until(lambda: len(world.agents.took) == 50)
        assert len(world.ended("hop.acknowledged")) <= 50
        await asyncio.sleep(0)

    during(world, story)
    assert not [took for took in world.agents.took if took.startswith("stuck")]
