"""Wall clocks jump by an hour, forward and back, or differ between workers: no run has two owners, no timer is lost."""

import itertools
import time
from collections import Counter
from pathlib import Path

import pytest

from rucher.kernel.leases import Times
from tests.chaos.crew import Crew, NewStore, crew, new_postgres, new_sqlite

HOUR_S = 3600.0
TIMES = Times(lease_s=3.0, renew_s=0.5, watch_s=0.05)
"""Looked at far more often than renewed, so that a jump falls between two looks at the same counter."""
STORES = [pytest.param(new_sqlite, ("a",), id="sqlite"), pytest.param(new_postgres, ("a", "b"), id="postgres")]


def taken_only_after_waits(workers: Crew, names: list[str]) -> None:
    """Nobody took a run from a living worker: each is taken once at the start, and once after each of its waits."""
    for name in names:
        kinds = Counter(event.type for event in workers.log(name))
        assert kinds["run.acquired"] == 1 + kinds["run.waiting"], f"{name} had two owners"


@pytest.mark.parametrize(("new_store", "team"), STORES)
def test_jumps_of_an_hour_lose_no_timer_and_no_lease(
    tmp_path: Path, new_store: NewStore, team: tuple[str, ...]
) -> None:
    names = {f"run{number}": "sleeping" for number in range(12)} | {f"load{number}": "sure" for number in range(12)}
    with crew(tmp_path, new_store(tmp_path), names) as workers:
        processes = [workers.start(name, times=TIMES) for name in team]
        for name in team:
            workers.up(name)
        jumps = itertools.islice(itertools.cycle((HOUR_S, 0.0, -HOUR_S, 0.0)), 12)
        for jump in jumps:
            time.sleep(0.25)
            for name in team:
                workers.outside.set_clock(name, jump)
        for name in team:
            workers.outside.set_clock(name, 0.0)
        if any(workers.state(name) != "done" for name in names):
            for name in team:
                workers.outside.set_clock(name, HOUR_S)
        workers.finish(*processes)
        taken_only_after_waits(workers, list(names))
        workers.demand_whole()


@pytest.mark.parametrize("skew_s", [1.0, -1.0, HOUR_S])
def test_workers_whose_clocks_differ_never_take_each_others_runs(tmp_path: Path, skew_s: float) -> None:
    names = {f"run{number}": "sleeping" for number in range(10)} | {f"load{number}": "sure" for number in range(10)}
    with crew(tmp_path, new_postgres(tmp_path), names) as workers:
        workers.outside.set_clock("b", skew_s)
        workers.finish(*(workers.start(name, times=TIMES) for name in ("a", "b")))
        taken_only_after_waits(workers, list(names))
        workers.demand_whole()
