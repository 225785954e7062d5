"""Laws of leases: who lives is told by each observer's own steady clock, and a burial takes everything or nothing."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rucher.kernel.leases import Identity, Leases, Times
from tests.fakes.clock import ManualClock
from tests.fakes.drafts import run_spec
from tests.fakes.kernel import Scene, tell

TIMES = Times()


def leases(scene: Scene, worker: str, clock: ManualClock | None = None, *dead: str) -> Leases:
    def is_dead(row: Mapping[str, Any]) -> bool:
        return row["worker"] in dead

    return Leases(scene.store, clock or scene.clock, Identity(worker, "host", "all"), is_dead)


async def claim(scene: Scene, worker: str, name: str = "r") -> list[str]:
    spec = run_spec(name)
    await scene.kernel().create(spec)
    taken = await scene.store.command("claim.take", {"runs": json.dumps([spec.run_id]), "worker": worker, "at": 0})
    return [row["run_id"] for row in taken]


async def workers(scene: Scene) -> list[str]:
    return [row["worker"] for row in await scene.store.rows("workers.all")]


def test_a_worker_that_renews_is_never_buried(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        a, b = leases(scene, "a"), leases(scene, "b")
        await a.join()
        await b.join()
        for _ in range(10):
            scene.clock.advance(TIMES.renew_s)
            assert await a.renew()
            assert await b.renew()
            assert not await a.watch()
            assert not await b.watch()
        assert await workers(scene) == ["a", "b"]

    tell(tmp_path, story)


def test_a_worker_that_was_silent_for_the_length_of_its_lease_loses_everything(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        a, b = leases(scene, "a"), leases(scene, "b")
        await a.join()
        await claim(scene, "a")
        await b.join()
        scene.clock.advance(TIMES.lease_s)
        await b.renew()
        assert not await b.watch()
        assert await scene.claimable() == []
        scene.clock.advance(0.001)
        assert await b.watch()
        assert await workers(scene) == ["b"]
        assert await scene.claimable() == [run_spec().run_id]
        assert not await a.renew()
        assert await claim(scene, "a") == []  # whoever is not there can take nothing
        await a.join()
        assert await claim(scene, "a") == [run_spec().run_id]

    tell(tmp_path, story)


def test_no_jump_of_the_wall_clock_ends_a_lease_and_none_prolongs_it(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        a, b = leases(scene, "a"), leases(scene, "b")
        await a.join()
        await b.join()
        for jump in (3600, -7200, 86400):
            scene.clock.jump(jump)
            assert not await b.watch()
        scene.clock.jump(-86400)
        scene.clock.advance(TIMES.lease_s + 1)
        assert await b.watch()

    tell(tmp_path, story)


def test_observers_whose_clocks_disagree_each_wait_for_a_whole_lease(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        a = leases(scene, "a")
        await a.join()
        ahead = ManualClock()
        ahead.advance(1_000_000)
        b = leases(scene, "b", ahead)
        await b.join()
        ahead.advance(TIMES.lease_s - 1)
        assert not await b.watch()
        await a.renew()
        ahead.advance(TIMES.lease_s - 1)
        assert not await b.watch()  # sees the renewal only now
        ahead.advance(TIMES.lease_s - 1)
        assert not await b.watch()
        ahead.advance(2)
        assert await b.watch()

    tell(tmp_path, story)


def test_a_watcher_that_slept_sees_what_happened_meanwhile_before_it_buries(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        asleep = ManualClock()
        a, b = leases(scene, "a"), leases(scene, "b", asleep)
        await a.join()
        await b.join()
        asleep.advance(3 * TIMES.lease_s)
        await a.renew()
        assert not await b.watch()

    tell(tmp_path, story)


def test_whoever_surely_is_dead_is_buried_at_once(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        for worker in ("a", "c"):
            await leases(scene, worker).join()
            await claim(scene, worker, worker)
        await leases(scene, "b", None, "a").join()
        assert await workers(scene) == ["b", "c"]
        assert await scene.claimable() == [run_spec("a").run_id]

    tell(tmp_path, story)


def test_a_worker_that_shows_itself_at_the_last_moment_is_not_buried(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await leases(scene, "a").join()
        await claim(scene, "a")
        stale = {"worker": "a", "beats": 0}
        assert await leases(scene, "a").renew()
        assert list(await scene.store.command("worker.leave", stale)) == []
        assert await scene.claimable() == []

    tell(tmp_path, story)


def test_two_that_bury_the_same_worker_free_each_of_its_runs_once(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await leases(scene, "a").join()
        for number in range(4):
            await claim(scene, "a", f"{number}")
        both = [leases(scene, worker, None, "a") for worker in ("b", "c")]
        await asyncio.gather(*(each.join() for each in both))
        assert await workers(scene) == ["b", "c"]
        taken = await asyncio.gather(*(claim(scene, worker, f"{n}") for n in range(4) for worker in ("b", "c")))
        assert sorted(run for each in taken for run in each) == sorted(run_spec(f"{n}").run_id for n in range(4))

    tell(tmp_path, story)


@pytest.mark.parametrize("joins", [True, False])
def test_claims_whose_worker_is_unknown_are_freed_by_whoever_joins_or_looks(tmp_path: Path, *, joins: bool) -> None:
    async def story(scene: Scene) -> None:
        heir = leases(scene, "b")
        await leases(scene, "a").join()
        await heir.join()
        await claim(scene, "a")
        await scene.store.command("worker.leave", {"worker": "a", "beats": 0})
        await (leases(scene, "c").join() if joins else heir.watch())
        assert await scene.claimable() == [run_spec().run_id]

    tell(tmp_path, story)


def test_who_leaves_gives_everything_back(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        a = leases(scene, "a")
        await a.join()
        await claim(scene, "a")
        await a.renew()
        await a.leave()
        assert await workers(scene) == []
        assert await scene.claimable() == [run_spec().run_id]

    tell(tmp_path, story)
