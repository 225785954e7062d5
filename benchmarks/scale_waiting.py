"""One process that works while very many runs wait: what they cost in memory, how late timers are, how long a claim takes.

Started by `benchmarks.scale`; prints one line of JSON, and how far it is on the standard error.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.peers.ours import at_once
from benchmarks.progress import Progress
from rucher.journal.artifacts import Artifacts
from rucher.journal.rows import RunWrite
from rucher.journal.store import JournalStore, open_store
from rucher.kernel.fairness import Limits, choose
from rucher.kernel.leases import Identity, Leases
from rucher.kernel.records import record
from rucher.kernel.run import Run
from rucher.kernel.runs import Kernel
from rucher.kernel.spec import RunSpec, Versions
from rucher.kernel.steps import RunSteps
from rucher.kernel.timers import Timers
from rucher.kernel.waits import Item, approval, timer
from rucher.kernel.worker import MOST_EACH_QUEUE, MOST_ENDINGS, Worker
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.ids import derived
from rucher.protocol.ports import StepKind

WRITERS = 400
TENANTS = 4
AGENTS = 20
READY = 100
CLAIMS = 100
DUE_SHARE = 100
"""One waiting run in so many has a timer that falls due while it is measured."""
DUE_WITHIN_S = 20.0
LEAD_S = 2.0
"""From the writing of the due timers to the first of them."""
DAY_US = 86_400_000_000
LIMITS = Limits()


@dataclass(slots=True)
class Sleeper:
    """The Body: a run that waited is at its end once its timer has fired, one that is new at once."""

    worked_at: dict[str, int] = field(default_factory=dict)

    def versions(self, spec: RunSpec) -> Versions | None:
        """Those that it was begun with."""
        return spec.versions

    async def prepare(self, run: Run) -> None:
        """Nothing to say."""

    async def work(self, run: Run) -> None:
        """Go on after the timer, if there was one."""
        self.worked_at[run.spec.run_id] = run.shared.clock.now()
        if run.log.waiting_as:
            await RunSteps(run).sleep(1.0)
        await run.finish("done", "")

    async def stop(self, run: Run, state: str, reason: str) -> None:
        """End it."""
        await run.finish(state, reason)

    async def troubled(self, spec: RunSpec, error: Exception) -> None:
        """Nothing may go wrong here."""
        raise SystemExit(f"run {spec.run_id} is in trouble: {error}") from error


class Crowd:
    """All runs of one measure, in one store."""

    def __init__(self, store: JournalStore, folder: Path) -> None:
        self._store = store
        self._clock = SystemClock()
        self._kernel = Kernel(store, self._clock, SystemEntropy(), Artifacts(folder / "artifacts"))
        self._body = Sleeper()
        self._made = 0

    async def measure(self, runs: int) -> dict[str, Any]:
        """Let so many wait, and measure."""
        due = max(1, runs // DUE_SHARE)
        async with self._at_work():
            await self._wait_far_ahead(WRITERS, "warming up")
            await self._fire(20, 1.0)
            before = _memory_mb()
            tenths = [
                await self._wait_far_ahead((runs - due) // 10, f"tenth {part} of the runs") for part in range(1, 11)
            ]
        await at_once(WRITERS, (self._kernel.create(self._spec()) for _ in range(READY)))
        claims = await self._claims()
        async with self._at_work():
            late = await self._fire(due, DUE_WITHIN_S)
            after = _memory_mb()
        return {
            "runs": runs, "ready_runs": READY, "timers": due, "memory_before_mb": before, "memory_by_tenths_mb": tenths,
            "memory_after_mb": after, "memory_grown_mb": max(*tenths, after) - before, **late, **claims,
        }  # fmt: skip

    @asynccontextmanager
    async def _at_work(self) -> AsyncIterator[None]:
        """A worker and the timers, as in a daemon."""
        worker = Worker(self._store, self._kernel, self._clock, self._body, self._leases(), LIMITS)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(worker.run()), group.create_task(Timers(self._store, self._clock).run())]
            yield
            for task in tasks:
                task.cancel()

    def _leases(self) -> Leases:
        return Leases(
            self._store, self._clock, Identity(self._kernel.worker, "here", "daemon"), is_dead=lambda _row: False
        )

    async def _wait_far_ahead(self, runs: int, what: str) -> float:
        """Half of them for a person, half for tomorrow; returns the memory that this process then has."""
        progress = Progress(what, runs)
        tomorrow = self._clock.now() + DAY_US
        items = (approval(f"ask:{number}") if number % 2 else timer(tomorrow + number) for number in range(runs))
        await at_once(WRITERS, progress.over(self._wait(self._spec(), item) for item in items))
        return _memory_mb()

    async def _wait(self, spec: RunSpec, item: Item) -> None:
        """A run that was made, taken, and parked in its first step: all that, in one write."""
        kind, mode = (StepKind.TIMER, "all") if item.kind == "timer" else (StepKind.WAIT_HUMAN, "any")
        waiting = {
            "run": spec.run_id, "step": "1", "reason": "it waits", "as": kind.value, "mode": mode, "items": [item.told()],
        }  # fmt: skip
        records = [
            record("run.created", spec.created()),
            record("run.acquired", {"run": spec.run_id, "worker": self._kernel.worker}),
            record("run.waiting", waiting),
        ]
        await self._store.write(RunWrite(spec.head, 0, 0, self._clock.now(), records))

    async def _fire(self, count: int, within_s: float) -> dict[str, float]:
        """How late timers spread over so many seconds are met, and their runs gone on with."""
        first = self._clock.now() + round(LEAD_S * 1e6)
        apart = within_s * 1e6 / count
        runs = [(self._spec(), first + round(number * apart)) for number in range(count)]
        head = self._store.head
        await at_once(WRITERS, (self._wait(spec, timer(at)) for spec, at in runs))
        due = {spec.run_id: at for spec, at in runs}
        met = await self._met(due, head)
        late = sorted((at - due[run_id]) / 1000 for run_id, at in met.items())
        on = [(self._body.worked_at[run_id] - at) / 1000 for run_id, at in due.items()]
        return {
            "timer_late_ms": statistics.median(late), "timer_late_p95_ms": late[int(len(late) * 0.95)],
            "timer_late_most_ms": late[-1], "timer_to_work_ms": statistics.median(on),
        }  # fmt: skip

    async def _met(self, due: dict[str, int], after: int) -> dict[str, int]:
        """When each timer's event was seen in the journal, once all of their runs have ended."""
        progress, met, ended = Progress("timers", len(due)), dict[str, int](), 0
        while ended < len(due):
            await self._store.grown(after)
            for event in await self._store.read(after, 1000):
                after = event.seq
                run_id = event.body.get("run", "")
                if run_id not in due:
                    continue
                if event.type == "timer.fired":
                    met[run_id] = self._clock.now()
                    progress.one()
                ended += event.type == "run.finished"
        return met

    async def _claims(self) -> dict[str, float]:
        """Medians of claims as a worker makes them: all that it may hold, and, to compare, a single run."""
        leases = self._leases()
        await leases.join()
        many = [await self._claim(leases.worker, LIMITS.worker) for _ in range(CLAIMS)]
        one = [await self._claim(leases.worker, 1) for _ in range(CLAIMS)]
        await leases.leave()
        whole = [found + taken for found, taken in many]
        return {
            "claim_ms": statistics.median(whole), "claim_most_ms": max(whole),
            "claim_finding_ms": statistics.median(found for found, _ in many),
            "claim_taking_ms": statistics.median(taken for _, taken in many),
            "claim_of_one_ms": statistics.median(found + taken for found, taken in one),
        }  # fmt: skip

    async def _claim(self, worker: str, free: int) -> tuple[float, float]:
        """Milliseconds to find runs and to take them; they are given back, so that as many are ready the next time."""
        started = time.perf_counter()
        await self._store.rows("claims.wished", worker)
        await self._store.rows("runs.to_end", MOST_ENDINGS)
        candidates = await self._store.rows("runs.claimable", MOST_EACH_QUEUE)
        held = await self._store.rows("claims.counts")
        chosen = choose(candidates, held, LIMITS, free)
        found = time.perf_counter()
        claim = {"runs": json.dumps(chosen), "worker": worker, "at": self._clock.now()}
        taken = await self._store.command("claim.take", claim)
        ended = time.perf_counter()
        if (len(candidates), len(taken)) != (READY, free):
            raise SystemExit(f"of {len(candidates)} ready runs {len(taken)} could be claimed")
        await self._store.command("claim.release", claim)
        return (found - started) * 1000, (ended - found) * 1000

    def _spec(self) -> RunSpec:
        self._made += 1
        run_id = derived("run", str(self._made))
        return RunSpec(
            run_id=run_id, tenant=f"t{self._made % TENANTS}", agent=f"a{self._made % AGENTS}", model="m", session=run_id,
            trace_id=derived("trace", run_id),
        )  # fmt: skip


def _memory_mb() -> float:
    return float(psutil.Process().memory_info().rss) / 1e6


async def main(place: Path | str, folder: Path, runs: int) -> dict[str, Any]:
    """The figures of one store."""
    async with open_store(place, SystemClock()) as store:
        return await Crowd(store, folder).measure(runs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="One measured program; prints one line of JSON.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--url", default="", help="an empty PostgreSQL database; without it, a file in the folder")
    parser.add_argument("--runs", type=int, required=True)
    asked = parser.parse_args()
    print(json.dumps(asyncio.run(main(asked.url or asked.folder / "rucher.db", asked.folder, asked.runs))))
