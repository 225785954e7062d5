"""Twenty thousand runs wait and a reader stands still: the memory of the process that works on them stays flat."""

import asyncio
import gc
import tracemalloc
from pathlib import Path

import psutil
import pytest

from rucher.journal.artifacts import Artifacts
from rucher.journal.store import JournalStore, open_store
from rucher.kernel.fairness import Limits
from rucher.kernel.leases import Identity, Leases
from rucher.kernel.run import Run
from rucher.kernel.runs import Kernel
from rucher.kernel.spec import RunSpec, Versions
from rucher.kernel.steps import RunSteps
from rucher.kernel.worker import Worker
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.ids import derived
from rucher.protocol.ports import StepKind
from tests.chaos.crew import NewStore, exit_code, in_a_process, new_postgres, new_sqlite, place_of
from tests.chaos.outside import Outside

TOGETHER = 100
WORKED = 1500
"""Runs that are worked on while the others wait."""
HELD_MB = 1.5
"""What Python's objects may take more after all of these than after a fifth of them; what they wrote would take 10."""
RESIDENT_MB = 64.0
"""The same for the whole process, in which the page caches of SQLite's connections fill, each up to 32 MB."""


class _Noting:
    """The Body: each run notes one thing and ends."""

    def versions(self, spec: RunSpec) -> Versions | None:
        return spec.versions

    async def prepare(self, run: Run) -> None:
        pass

    async def work(self, run: Run) -> None:
        await RunSteps(run).note(StepKind.CHECKPOINT, {"at": "begin"}, {"rest": "x" * 6000})
        await run.finish("done", "")

    async def stop(self, run: Run, state: str, reason: str) -> None:
        await run.finish(state, reason)

    async def troubled(self, spec: RunSpec, error: Exception) -> None:
        raise AssertionError(spec.run_id) from error


def churn(store: str, folder: Path, runs: int) -> None:
    """Queue so many runs, work on some of them, and note the memory on the way."""
    tracemalloc.start()
    asyncio.run(_churn(store, folder, runs))


async def _churn(place: str, folder: Path, runs: int) -> None:
    outside, clock = Outside(folder), SystemClock()
    async with open_store(place_of(place), clock) as store:
        kernel = Kernel(store, clock, SystemEntropy(), Artifacts(folder / "artifacts"))
        await _queue(kernel, range(runs))
        leases = Leases(store, clock, Identity(kernel.worker, "here", "worker"), lambda _row: False)
        async with asyncio.TaskGroup() as group:
            stalled = group.create_task(_read_once_and_stall(store))
            working = group.create_task(Worker(store, kernel, clock, _Noting(), leases, Limits()).run())
            await _worked(store, WORKED // 5)
            _note_memory(outside, "begun")
            await _worked(store, WORKED)
            _note_memory(outside, "done")
            stalled.cancel()
            working.cancel()


async def _queue(kernel: Kernel, numbers: range) -> None:
    for start in numbers[::TOGETHER]:
        async with asyncio.TaskGroup() as group:
            for number in range(start, start + TOGETHER):
                group.create_task(_create(kernel, derived("run", str(number))))


async def _create(kernel: Kernel, run_id: str) -> None:
    await kernel.create(
        RunSpec(run_id=run_id, tenant="local", agent="a", model="none", trace_id=run_id, session=run_id)
    )


async def _read_once_and_stall(store: JournalStore) -> None:
    events = await store.read(0, 100)
    await store.grown(1 << 62)
    raise AssertionError(events)


async def _worked(store: JournalStore, runs: int) -> None:
    """Return when so many runs have ended."""
    folds = 0
    while (await store.rows("run.get", derived("run", str(runs - 1))))[0]["state"] != "done":
        folds = await store.refolded(folds)
        await asyncio.sleep(0.1)


def _note_memory(outside: Outside, when: str) -> None:
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    outside.note("memory", when, str(held / 1e6), str(psutil.Process().memory_info().rss / 1e6))


@pytest.mark.parametrize(
    ("new_store", "runs"),
    [
        pytest.param(new_sqlite, 2000, id="sqlite"),
        pytest.param(new_sqlite, 20_000, id="sqlite-20000", marks=pytest.mark.chaos_long),
        pytest.param(new_postgres, 20_000, id="postgres-20000", marks=pytest.mark.chaos_long),
    ],
)
def test_a_long_queue_and_a_stalled_reader_take_no_memory(tmp_path: Path, new_store: NewStore, runs: int) -> None:
    assert exit_code(in_a_process(churn, new_store(tmp_path), tmp_path, runs), 110) == 0
    (_, held, resident), (_, held_then, resident_then) = Outside(tmp_path).lines("memory")
    assert float(held_then) - float(held) < HELD_MB
    assert float(resident_then) - float(resident) < RESIDENT_MB
