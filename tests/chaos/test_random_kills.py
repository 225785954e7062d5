"""Workers are killed (SIGKILL) at random moments with much work in flight; what must hold is in `Crew.demand_whole`."""

import random
import time
from pathlib import Path

import pytest

from tests.chaos.crew import PATIENCE_S, NewStore, crew, new_postgres, new_sqlite
from tests.chaos.worker_program import run_called
from tests.fakes.hive import until

EFFECTS = 4
"""Fewer than a run of `load` has: so many effects leave work to do, however the kills fall."""
STORES = [pytest.param(new_sqlite, 1, id="sqlite"), pytest.param(new_postgres, 3, id="postgres")]


def work_survives(folder: Path, new_store: NewStore, *, workers: int, runs: int, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    names = {f"run{number}": "load" for number in range(runs)}
    with crew(folder, new_store(folder), names) as team:
        processes = [team.start(f"w{number}") for number in range(workers)]
        happened = 0
        for _ in range(kills):
            happened += chance.randint(1, EFFECTS * runs // kills)
            until(lambda: team.outside.counts().total() >= happened, "the work does not go on", PATIENCE_S)  # noqa: B023
            time.sleep(chance.uniform(0.0, 0.05))
            victim = chance.randrange(workers)
            team.kill(processes[victim])
            processes[victim] = team.start(f"w{victim}")
        team.finish(*processes)
        assert team.deaths == kills, "each kill met a process whose work was not done"
        team.demand_whole()


@pytest.mark.parametrize(("new_store", "workers"), STORES)
def test_work_in_flight_survives_kills(tmp_path: Path, new_store: NewStore, workers: int) -> None:
    work_survives(tmp_path, new_store, workers=workers, runs=30, kills=4, seed=1)


@pytest.mark.chaos_long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("new_store", "workers"), STORES)
@pytest.mark.parametrize("seed", [2, 3])
def test_much_work_survives_many_kills(tmp_path: Path, new_store: NewStore, workers: int, seed: int) -> None:
    work_survives(tmp_path, new_store, workers=workers, runs=500, kills=40, seed=seed)


@pytest.mark.parametrize(("new_store", "workers"), STORES)
def test_what_was_accepted_is_there_after_a_kill(tmp_path: Path, new_store: NewStore, workers: int) -> None:
    names = {f"run{number}": "child" for number in range(20_000)}
    with crew(tmp_path, new_store(tmp_path), names) as team:
        processes = [team.start(f"w{number}", works=False, owner=False) for number in range(workers)]
        until(lambda: len(team.outside.lines("accepted")) > 50, "nothing was accepted", PATIENCE_S)
        for process in processes:
            team.kill(process)
        assert team.deaths == workers
        accepted = {name for (name,) in team.outside.lines("accepted")}
        assert len(accepted) < len(names), "the kill met a process that accepted"
        assert all(team.rows("run.get", run_called(name)) for name in list(accepted)[:200])
