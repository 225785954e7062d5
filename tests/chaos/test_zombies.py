"""Workers that stand still for longer than their lease and wake up, and workers that take over at the same moment."""

import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.chaos.crew import PATIENCE_S, SHORT, crew, new_postgres, new_sqlite
from tests.chaos.worker_program import run_called
from tests.fakes.hive import until

AT_ONCE = 6


def edges_of_an_undisturbed_run(folder: Path) -> Sequence[str]:
    with crew(folder / "undisturbed", new_postgres(folder), {"one": "sure"}) as workers:
        workers.finish(workers.start())
        return [" ".join(words) for words in workers.outside.lines("edges-a")]


def stopped_at(folder: Path, edge: str) -> None:
    with crew(folder, new_postgres(folder), {"one": "sure"}) as workers:
        zombie = workers.start("zombie", signals={edge: signal.SIGSTOP}, times=SHORT)
        workers.stopped(zombie)
        workers.finish(workers.start("heir", times=SHORT))
        before = workers.log("one")
        workers.go_on(zombie)
        workers.finish(zombie)
        assert workers.log("one") == before, "the zombie wrote"
        workers.demand_whole(repeats=1)


def zombies_are_harmless(folder: Path, edges: Sequence[str]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        cases = {edge: pool.submit(stopped_at, folder / str(number), edge) for number, edge in enumerate(edges)}
    failures = {edge: case.exception() for edge, case in cases.items() if case.exception()}
    assert not failures, "\n".join(f"{edge}: {error!r}" for edge, error in failures.items())


def test_a_zombie_that_stood_still_writes_nothing_and_has_no_second_effect(tmp_path: Path) -> None:
    zombies_are_harmless(tmp_path, edges_of_an_undisturbed_run(tmp_path)[::6])


@pytest.mark.chaos_long
@pytest.mark.timeout(300)
def test_a_zombie_that_stood_still_at_any_edge_is_harmless(tmp_path: Path) -> None:
    edges = edges_of_an_undisturbed_run(tmp_path)
    assert len(edges) > 50
    zombies_are_harmless(tmp_path, edges)


@pytest.mark.parametrize("acts_first", [True, False])
def test_a_zombie_in_an_act_that_nothing_can_prove_acts_once_by_its_owners_word(
    tmp_path: Path, *, acts_first: bool
) -> None:
    with crew(tmp_path, new_postgres(tmp_path), {"one": "held_blind"}) as workers:
        zombie = workers.start("zombie", owner=False, times=SHORT)
        until(lambda: workers.outside.lines("begun"), "the act did not begin", PATIENCE_S)
        workers.stop_in_its_tracks(zombie)
        heir = workers.start("heir", owner=False, times=SHORT)
        until(lambda: workers.state("one") == "waiting", "the owner is not asked", PATIENCE_S)
        if acts_first:
            workers.outside.open("release")
            workers.go_on(zombie)
            until(lambda: workers.outside.lines("effects"), "the zombie did not go on", PATIENCE_S)
        else:
            workers.kill(zombie)
            workers.outside.open("release")
        owner = workers.start("owner", works=False)
        workers.finish(heir, owner, *([zombie] if acts_first else []))
        workers.demand_whole()


def test_work_longer_than_the_lease_has_one_effect(tmp_path: Path) -> None:
    names = {f"run{number}": "long" for number in range(4)}
    with crew(tmp_path, new_postgres(tmp_path), names) as workers:
        workers.finish(*(workers.start(name, times=SHORT) for name in ("a", "b")))
        assert [workers.acquired(name) for name in names] == [1] * len(names), "nobody took over"
        workers.demand_whole()


def test_a_lone_worker_that_stood_still_for_longer_than_its_lease_goes_on_where_it_was(tmp_path: Path) -> None:
    with crew(tmp_path, new_sqlite(tmp_path), {"one": "held_blind"}) as workers:
        process = workers.start(times=SHORT)
        until(lambda: workers.outside.lines("begun"), "the act did not begin", PATIENCE_S)
        workers.stop_in_its_tracks(process)
        time.sleep(2 * SHORT.lease_s)
        workers.outside.open("release")
        workers.go_on(process)
        workers.finish(process)
        assert workers.acquired("one") == 1
        workers.demand_whole()


def test_two_who_recover_with_one_stale_list_give_each_run_one_new_owner(tmp_path: Path) -> None:
    names = {f"run{number}": "held" for number in range(16)}
    with crew(tmp_path, new_postgres(tmp_path), names) as workers:
        dead = workers.start("dead")
        until(lambda: len(workers.outside.lines("begun")) == len(names), "not all are in hand", PATIENCE_S)
        workers.kill(dead)
        heirs = [workers.start(name, gates=("before worker.leave",)) for name in ("b", "c")]
        for name in ("b", "c"):
            workers.at("before worker.leave", name)
        workers.outside.open("open")
        workers.outside.open("release")
        workers.finish(*heirs)
        assert [workers.acquired(name) for name in names] == [2] * len(names)
        workers.demand_whole()
        assert set(workers.outside.counts()) == {
            (run_called(name), label) for name in names for label in ("first", "second")
        }
