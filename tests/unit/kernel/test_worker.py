"""Laws of workers: what can go on is worked on by one of them, and what cannot hinders nobody."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from rucher.journal.units import Answer
from rucher.kernel.fairness import Limits
from rucher.kernel.leases import Identity, Leases, Times
from rucher.kernel.run import Run
from rucher.kernel.steps import RunSteps
from rucher.kernel.waits import question
from rucher.protocol.errors import BadInput, Corrupt, Retryable
from rucher.protocol.ports import StepKind
from tests.fakes.clock import until
from tests.fakes.kernel import Scene, Through, tell
from tests.fakes.worker import Gate, Script, called, claims, make, noted, quickly, unclaimed, working

TIMES = Times()


def test_what_is_there_and_what_comes_later_is_worked_on_and_given_back(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        body = Script()
        await make(scene, called("early"))
        async with working(scene, body):
            await noted(body, "done early")
            await make(scene, called("late"))
            await noted(body, "done late")
            await unclaimed(scene)
        assert await scene.state(called("early"), called("late")) == ["done", "done"]
        assert await scene.store.rows("workers.all") == []

    tell(tmp_path, story)


def test_trouble_makes_a_run_rest_and_hinders_nobody(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        fails = [Retryable("later"), BadInput("no"), ValueError("a bug")]

        async def troubled(run: Run) -> None:
            if fails:
                raise fails.pop(0)
            await quickly(run)

        body = Script({"sick": troubled})
        async with working(scene, body, Limits(worker=1)):
            await make(scene, called("sick"))
            await noted(body, "trouble sick: later")
            await make(scene, called("well"))
            await noted(body, "done well")
            while "done sick" not in body.notes:
                scene.clock.advance(0.1)
                await asyncio.sleep(0.001)
        assert [note for note in body.notes if note.startswith("trouble")] == [
            "trouble sick: later", "trouble sick: no", "trouble sick: a bug",
        ]  # fmt: skip

    tell(tmp_path, story)


def test_a_run_that_rests_again_leaves_its_place_to_one_that_became_ready_meanwhile(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        busy, again, tries = Gate(), asyncio.Event(), 0

        async def poisoned(_run: Run) -> None:
            nonlocal tries
            tries += 1
            if tries > 1:
                await again.wait()
            raise ValueError("a bug")

        body = Script({"poisoned": poisoned, "busy": busy})
        async with working(scene, body, Limits(worker=1)):
            await make(scene, called("poisoned"))
            await noted(body, "trouble poisoned: a bug")
            await make(scene, called("busy"))
            await until(lambda: busy.inside == 1)
            scene.clock.advance(1)  # it wants to try again, and waits for the place
            await make(scene, called("patient"))
            busy.open.set()
            await noted(body, "done busy")
            await until(lambda: tries > 1)
            again.set()
            await noted(body, "done patient")

    tell(tmp_path, story)


def test_a_worker_that_lost_its_lease_stops_and_begins_anew(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        gate, spec = Gate(), called("r")
        mine, other = Script({"r": gate}), Script()
        async with working(scene, mine) as (_, leases):
            await make(scene, spec)
            await until(lambda: gate.inside == 1)
            killer = Leases(
                scene.store, scene.clock, Identity("killer", "h", "all"), lambda row: row["worker"] == leases.worker
            )
            await killer.watch()
            async with working(scene, other):
                await noted(other, "done r")
            assert mine.notes == ["begin r"]  # it does not know yet, and can write nothing
            gate.open.set()
            await until(lambda: not mine.busy)
            scene.clock.advance(TIMES.renew_s)
            await make(scene, called("next"))
            await noted(mine, "done next")
        assert (await scene.types(spec)).count("run.finished") == 1

    tell(tmp_path, story)


def test_the_loss_of_a_lease_interrupts_what_is_in_hand(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        gate = Gate()
        body = Script({"r": gate})
        async with working(scene, body) as (_, leases):
            await make(scene, called("r"))
            await until(lambda: gate.inside == 1)
            killer = Leases(
                scene.store, scene.clock, Identity("killer", "h", "all"), lambda row: row["worker"] == leases.worker
            )
            await killer.watch()
            scene.clock.advance(TIMES.renew_s)
            await noted(body, "interrupted r")
            gate.open.set()
            await noted(body, "done r")

    tell(tmp_path, story)


def test_a_run_whose_claim_was_taken_from_its_living_worker_is_not_begun_twice_there(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        gate = Gate()
        body = Script({"r": gate})
        async with working(scene, body) as (_, leases):
            await make(scene, called("r"))
            await until(lambda: gate.inside == 1)
            await scene.store.command(
                "claim.release", {"worker": leases.worker, "runs": json.dumps([called("r").run_id])}
            )
            await make(scene, called("other"))
            await noted(body, "done other")
            gate.open.set()
            await noted(body, "done r")
            await unclaimed(scene)
        assert gate.inside == 1
        assert (await scene.types(called("r"))).count("run.acquired") == 1

    tell(tmp_path, story)


def test_two_workers_never_work_on_the_same_run(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        body = Script()  # both share it: it fails when two work on one run
        specs = [called(f"{number}") for number in range(30)]
        async with working(scene, body, Limits(worker=4)), working(scene, body, Limits(worker=4)):
            await asyncio.gather(*(make(scene, spec) for spec in specs))
            await until(lambda: sum(note.startswith("done") for note in body.notes) == 30)
        assert sorted(body.notes) == sorted(f"{word} {number}" for number in range(30) for word in ("begin", "done"))
        assert await scene.state(*specs) == ["done"] * 30

    tell(tmp_path, story)


@pytest.mark.parametrize(
    "limits", [Limits(worker=3), Limits(agent=3), Limits(mission=3)], ids=["worker", "agent", "mission"]
)
def test_no_more_runs_are_worked_on_at_once_than_allowed(tmp_path: Path, limits: Limits) -> None:
    async def story(scene: Scene) -> None:
        gates = {f"{number}": Gate() for number in range(9)}
        body = Script(gates)
        async with working(scene, body, limits):
            await make(scene, *(called(name, mission="M") for name in gates))
            await make(scene, replace(called("other"), agent="other", mission="N"))
            await until(lambda: sum(gate.inside for gate in gates.values()) == 3)
            if limits.worker != 3:
                await noted(body, "done other")
            for gate in gates.values():
                gate.open.set()
            await until(lambda: sum(note.startswith("done") for note in body.notes) == 10)
        assert body.most_busy <= (3 if limits.worker == 3 else 4)

    tell(tmp_path, story)


def test_the_messages_of_a_session_are_worked_on_in_order_and_those_of_others_meanwhile(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        body = Script()
        async with working(scene, body):
            await make(scene, *(called(f"{lane}{n}", lane=lane) for n in range(4) for lane in "ab"))
            await until(lambda: len(body.notes) == 16)
        for lane in "ab":
            mine = [note for note in body.notes if note.split()[1].startswith(lane)]
            assert mine == [f"{word} {lane}{n}" for n in range(4) for word in ("begin", "done")]

    tell(tmp_path, story)


def test_a_worker_that_is_told_to_stop_lets_go_of_everything(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        gate = Gate()
        body = Script({"r": gate})
        async with working(scene, body):
            await make(scene, called("r"))
            await until(lambda: gate.inside == 1)
        assert body.notes == ["begin r", "interrupted r"]
        assert await claims(scene) == 0
        assert await scene.store.rows("workers.all") == []
        assert await scene.claimable() == [called("r").run_id]

    tell(tmp_path, story)


class Sick:
    """A store that cannot obey some commands while it is ill."""

    def __init__(self, scene: Scene, *ill: str) -> None:
        self._store = scene.store
        self.ill = set(ill)

    async def rows(self, statement: str, *parameters: Any) -> list[Mapping[str, Any]]:
        self._demand_health(statement)
        return await self._store.rows(statement, *parameters)

    async def command(self, statement: str, parameters: Mapping[str, Any]) -> Answer:
        self._demand_health(statement)
        return await self._store.command(statement, parameters)

    async def refolded(self, after: int) -> int:
        return await self._store.refolded(after)

    def _demand_health(self, statement: str) -> None:
        if statement in self.ill:
            raise Retryable("the disk is full")


async def get_well(scene: Scene, store: Sick, seconds: float) -> None:
    store.ill.clear()
    scene.clock.advance(seconds)


@pytest.mark.parametrize("ill", ["worker.join", "workers.all", "runs.claimable", "claims.counts", "claim.take"])
def test_a_store_that_is_ill_is_tried_again_until_it_is_well(tmp_path: Path, ill: str) -> None:
    async def story(scene: Scene) -> None:
        store, body = Sick(scene, ill), Script()
        await make(scene, called("r"))
        async with working(scene, body, store=store):
            await until(lambda: scene.clock.sleeping > 0)
            await asyncio.sleep(0.01)
            assert body.notes == []
            while "done r" not in body.notes:
                await get_well(scene, store, 1)
                await asyncio.sleep(0.001)

    tell(tmp_path, story)


class Unreadable(Through):
    """A store that cannot read the logs of many runs, because one of them is damaged."""

    refused = 0

    @override
    async def run_logs(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Any]]:
        self.refused += 1
        raise Corrupt("the file is damaged")


def test_runs_go_on_when_their_logs_cannot_be_read_together(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        runs = [called("a"), called("b")]
        await make(scene, *runs)
        for spec in runs:
            await quickly(await scene.kernel().begin(spec))
        store, body = Unreadable(scene.store), Script()
        async with working(scene, body, kernel=scene.kernel(store)):
            await noted(body, "done a")
            await noted(body, "done b")
            await unclaimed(scene)
        assert store.refused == 1
        assert not any(note.startswith("trouble") for note in body.notes)

    tell(tmp_path, story)


def test_a_claim_that_could_not_be_given_back_is_given_back_later(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        store = Sick(scene, "claim.release")
        spec = called("r")

        async def waiting(run: Run) -> None:
            await RunSteps(run).wait(StepKind.WAIT_HUMAN, {}, "?", [question("q")])

        body = Script({"r": waiting})
        async with working(scene, body, store=store):
            await make(scene, spec)
            await until(lambda: not body.busy and bool(body.notes))
            await scene.signal("q", {})
            await make(scene, called("other"))
            await noted(body, "done other")
            assert "done r" not in body.notes
            while "done r" not in body.notes:
                await get_well(scene, store, TIMES.watch_s)
                await asyncio.sleep(0.001)
            await unclaimed(scene)

    tell(tmp_path, story)
