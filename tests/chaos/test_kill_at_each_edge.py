"""A worker is killed (SIGKILL) at each edge of what it does, one after the other; the next one finishes the work.

The edges are those that an undisturbed run passes: before and after every commit and every effect, for each effect class and
each kind of step. What counts is outside: nothing is lost, nothing is doubled, and what cannot be known is the owner's to say.
"""

import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.chaos.crew import NewStore, crew, new_postgres, new_sqlite

AT_ONCE = 4
LONG = [pytest.mark.chaos_long, pytest.mark.timeout(300)]
STORES = [
    pytest.param(new_sqlite, 3, id="sqlite-each-third"),
    pytest.param(new_postgres, 8, id="postgres-each-eighth"),
    pytest.param(new_sqlite, 1, id="sqlite", marks=LONG),
    pytest.param(new_postgres, 1, id="postgres", marks=LONG),
]


def edges_of_an_undisturbed_run(folder: Path, store: str, script: str) -> Sequence[str]:
    with crew(folder / "undisturbed", store, {"undisturbed": script}) as workers:
        workers.finish(workers.start())
        workers.demand_whole(repeats=0)
        return [" ".join(words) for words in workers.outside.lines("edges-a")]


def killed_at(folder: Path, store: str, script: str, edge: str) -> None:
    with crew(folder, store, {folder.name: script}) as workers:
        workers.died(workers.start(signals={edge: signal.SIGKILL}))
        workers.finish(workers.start())
        workers.demand_whole()


def killed_at_each(folder: Path, new_store: NewStore, script: str, edges: Sequence[str]) -> list[str]:
    """What went wrong; one store serves all of these edges, as long as nothing does."""
    failures = []
    store = ""
    folder.mkdir()
    for number, edge in enumerate(edges):
        place = folder / f"{folder.name}-{number}"
        place.mkdir()
        store = store or new_store(place)
        try:
            killed_at(place, store, script, edge)
        except AssertionError as error:
            failures.append(f"{edge}: {error}")
            store = ""
    return failures


def survives_a_kill_at_each(folder: Path, new_store: NewStore, script: str, each: int = 1) -> Sequence[str]:
    edges = edges_of_an_undisturbed_run(folder, new_store(folder), script)
    chosen = edges[::each]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        chains = [
            pool.submit(killed_at_each, folder / f"chain{chain}", new_store, script, chosen[chain::AT_ONCE])
            for chain in range(AT_ONCE)
        ]
        failures = [failure for chain in chains for failure in chain.result()]
    assert not failures, "\n".join(failures)
    return edges


@pytest.mark.parametrize(("new_store", "each"), STORES)
def test_a_kill_at_any_edge_loses_nothing_and_doubles_nothing(tmp_path: Path, new_store: NewStore, each: int) -> None:
    edges = survives_a_kill_at_each(tmp_path, new_store, "everything", each)
    assert len(edges) > 80
    assert {"between spawn and join", "before timer.fired", "after claim.take"} <= {*edges}


@pytest.mark.parametrize(("new_store", "each"), STORES)
def test_after_a_kill_at_any_edge_a_model_is_asked_with_a_result_for_every_call(
    tmp_path: Path, new_store: NewStore, each: int
) -> None:
    survives_a_kill_at_each(tmp_path, new_store, "talking", each)
