"""Worker processes of a test: started in a moment, killed and stopped by it, and what must hold when all is done."""

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from rucher.journal.store import StoreReader, read_store
from rucher.kernel.leases import Times
from rucher.protocol.clock import SystemClock
from rucher.protocol.events import Event
from rucher.protocol.ports import StepKind
from tests.chaos.outside import Outside
from tests.chaos.scripts import SCRIPTS, Script, Way
from tests.chaos.worker_program import Post, main, run_called
from tests.fakes.hive import until
from tests.fakes.postgres import shared

PATIENCE_S = 60.0
KILLED = -signal.SIGKILL
SHORT = Times(lease_s=0.8, renew_s=0.1, watch_s=0.1)
"""A lease that runs out while a test waits."""

_asking = threading.Lock()
"""`multiprocessing` may not be asked about one process by two threads at once, which starting another one does too."""
_starting = multiprocessing.get_context("forkserver")
_starting.set_forkserver_preload(["tests.chaos.worker_program"])


class Crew:
    """Processes over one store, in one folder. `runs` are the names of its runs and of their scripts."""

    def __init__(self, folder: Path, store: str, runs: Mapping[str, str]) -> None:
        self.outside = Outside(folder / "outside")
        self.deaths = 0
        self._folder = folder
        self._store = store
        self._runs = runs
        self._processes: list[BaseProcess] = []

    def start(self, name: str = "a", *, store: str = "", ends: bool = True, **told: Any) -> BaseProcess:
        """A started process, which ends by itself when all runs have ended."""
        post = Post(
            store=store or self._store, folder=self._folder, name=name, runs=tuple(self._runs.items()),
            until=tuple(self._runs) if ends else (), **told,
        )  # fmt: skip
        process = in_a_process(main, post)
        self._processes.append(process)
        return process

    def up(self, name: str = "a") -> None:
        """Return when the process with this name works."""
        until(lambda: [name] in self.outside.lines("up"), f"{name} did not come up", PATIENCE_S)

    def at(self, edge: str, name: str = "a") -> None:
        """Return when the process with this name has come to this edge."""
        until(lambda: edge.split(" ") in self.outside.lines(f"edges-{name}"), f"{name} is not {edge}", PATIENCE_S)

    def kill(self, process: BaseProcess) -> None:
        """End a process as a power cut would."""
        process.kill()
        self.deaths += exit_code(process) == KILLED

    def finish(self, *processes: BaseProcess) -> None:
        """Return when these have ended by themselves, as they should."""
        for process in processes:
            code, crashes = exit_code(process), self.outside.lines("crashes")
            assert code == 0, (code, crashes, self.outside.lines("trouble")[-3:], self.states())

    def died(self, process: BaseProcess) -> None:
        """Return when this process has killed itself, as it was told to."""
        code = exit_code(process)
        assert code == KILLED, (code, self.outside.lines("crashes"), self.states())
        self.deaths += 1

    def close(self) -> None:
        """Kill what still runs."""
        for process in self._processes:
            process.kill()
            exit_code(process)

    def stop_in_its_tracks(self, process: BaseProcess) -> None:
        """SIGSTOP."""
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)

    def stopped(self, process: BaseProcess) -> None:
        """Return when this process has stopped itself."""
        seen = psutil.Process(process.pid)
        until(lambda: seen.status() == psutil.STATUS_STOPPED, "it did not stop itself", PATIENCE_S)

    def go_on(self, process: BaseProcess) -> None:
        """SIGCONT."""
        assert process.pid is not None
        os.kill(process.pid, signal.SIGCONT)

    def order(self, what: str, name: str) -> None:
        """Have a process that has an owner order this about a run; returns when its worker has heard of it."""
        self.outside.note("orders", what, name)
        until(lambda: [run_called(name), what] in self.outside.lines("heard"), f"{what} was not heard", PATIENCE_S)

    def state(self, name: str) -> str:
        """The state of the run with this name."""
        return str(self.rows("run.get", run_called(name))[0]["state"])

    def rows(self, statement: str, *parameters: Any) -> list[Mapping[str, Any]]:
        """What the store says."""
        return asyncio.run(self._rows(statement, *parameters))

    def log(self, name: str) -> list[Event]:
        """The log of the run with this name."""
        return asyncio.run(self._log(run_called(name)))

    def acquired(self, name: str) -> int:
        """How often the run was taken over."""
        return sum(event.type == "run.acquired" for event in self.log(name))

    def states(self) -> Counter[str]:
        """How many runs are in each state."""
        return Counter(row["state"] for row in asyncio.run(self._all_runs()))

    async def _all_runs(self) -> list[Mapping[str, Any]]:
        async with read_store(place_of(self._store), SystemClock()) as store:
            return await _with_children(store, [run_called(name) for name in self._runs])

    async def _rows(self, statement: str, *parameters: Any) -> list[Mapping[str, Any]]:
        async with read_store(place_of(self._store), SystemClock()) as store:
            return await store.rows(statement, *parameters)

    async def _log(self, run_id: str) -> list[Event]:
        async with read_store(place_of(self._store), SystemClock()) as store:
            return list(await store.run_log(run_id))

    def demand_whole(self, repeats: int | None = None) -> None:
        """Nothing is lost and nothing doubled: not outside, not in the journal, not in the views.

        `repeats` is how often a read or a model call may have been repeated, by default once for each death.
        """
        asyncio.run(self._demand_whole(self.deaths if repeats is None else repeats))

    async def _demand_whole(self, repeats: int) -> None:
        counts = self.outside.counts()
        expected: set[tuple[str, str]] = set()
        async with read_store(place_of(self._store), SystemClock()) as store:
            runs = {
                row["run_id"]: row for row in await _with_children(store, [run_called(name) for name in self._runs])
            }
            for name in self._runs:
                assert run_called(name) in runs, f"{name} is lost"
            for run_id, row in runs.items():
                script = SCRIPTS[row["agent"]]
                _demand_effects(run_id, script, counts, repeats)
                expected |= {(run_id, label) for label in script.effects}
                _demand_log(
                    script, await store.run_log(run_id), {name: counts[run_id, name] for name in script.effects}
                )
                assert row["state"] == "done", dict(row)
                assert all(budget["reserved"] == 0 for budget in await store.rows("run.budget", run_id))
            assert await store.rows("workers.all") == []
            assert await store.rows("claims.counts") == []
            assert [dict(row) for row in await store.rows("timers.due", 1 << 62, 10)] == []
        assert set(counts) == expected
        assert not [words for words in self.outside.lines("trouble") if words[1] not in ("Retryable", "Fenced")]


def in_a_process(act: Callable[..., None], *arguments: object) -> BaseProcess:
    """A started process that does this and ends; it ends with the test's own process at the latest."""
    process = _starting.Process(target=act, args=arguments, daemon=True)
    with _asking:
        process.start()
    return process


def exit_code(process: BaseProcess, patience_s: float = PATIENCE_S) -> int | None:
    """How the process ended, once it has; None when it does not in time."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        with _asking:
            code = process.exitcode
        if code is not None:
            return code
        time.sleep(0.01)
    return None


async def _with_children(store: StoreReader, run_ids: Sequence[str]) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    for run_id in run_ids:
        rows += await store.rows("run.get", run_id)
        children = await store.rows("run.children", run_id)
        rows += await _with_children(store, [row["run_id"] for row in children])
    return rows


def _demand_effects(run_id: str, script: Script, counts: Mapping[tuple[str, str], int], repeats: int) -> None:
    for label, way in script.effects.items():
        times = counts.get((run_id, label), 0)
        most = 1 + repeats if way.may_repeat else 1
        assert 1 <= times <= most, f"{way} {label} of {run_id} happened {times} times"


def _demand_log(script: Script, log: Sequence[Event], counts: Mapping[str, int]) -> None:
    intentions = Counter(_label(event) for event in log if event.type == "step.intended")
    asked = sum(counts[label] for label, way in script.effects.items() if way is Way.MODEL)
    assert asked <= intentions["model_call"], "a model was asked unseen, or again for a recorded answer"
    for label, way in script.effects.items():
        assert way.may_repeat or counts[label] <= intentions[label], f"{label} happened unseen"
    steps = Counter(event.body["step"] for event in log if event.type == "step.recorded")
    assert set(steps.values()) <= {1}, f"recorded twice: {steps}"
    ends = [event.body for event in log if event.type == "run.finished"]
    assert [end["state"] for end in ends] == ["done"]
    assert tuple(ends[0]["result"]["said"]) == script.said
    fired = Counter(event.id for event in log if event.type == "timer.fired")
    assert set(fired.values()) <= {1}


def _label(intention: Event) -> str:
    request = intention.body["request"]
    if intention.body["kind"] == StepKind.MODEL_CALL:
        return StepKind.MODEL_CALL
    return str(request.get("label") or request["arguments"]["label"])


def place_of(store: str) -> Path | str:
    """The place that the text of a post names."""
    return store if store.startswith("postgresql:") else Path(store)


@contextmanager
def crew(folder: Path, store: str, runs: Mapping[str, str]) -> Iterator[Crew]:
    """A crew of which nothing is left when the test leaves it."""
    folder.mkdir(exist_ok=True)
    made = Crew(folder, store, runs)
    try:
        yield made
    finally:
        made.close()


NewStore = Callable[[Path], str]
"""A store of its own, for a crew in this folder."""


def new_sqlite(folder: Path) -> str:
    """A file."""
    return str(folder / "rucher.db")


def new_postgres(_folder: Path) -> str:
    """A database of the shared server."""
    return shared().new_database()
