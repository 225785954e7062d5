"""Our kernel, in the project's own environment: each run opened, its steps performed and recorded, and ended.

A step is kept as the peers keep theirs: its result is committed before the run goes on, and it is done again if it was
interrupted (our effect `read`). `ours_intended` commits each step's intention as well, before it is acted on, as we do for
whatever writes. Runs that were killed are found, claimed and worked on by a `Worker`, as in a daemon.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

import uvloop

from benchmarks.peers.work import RESULT, Acts, Recovered, Stopwatch, Work, report
from rucher.daemon.garbage import look_for_little
from rucher.daemon.marks import Marks
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
from rucher.protocol.conversation import Effect
from rucher.protocol.ids import derived
from rucher.protocol.ports import StepKind

RECORDED = "SELECT count(*) FROM events WHERE type = 'step.recorded'"


class Body:
    """What the runs of a recovery do."""

    def __init__(self, work: Work, acts: Acts) -> None:
        self._work = work
        self._acts = acts
        self._together = asyncio.Event()
        self._ended = 0
        self._more = asyncio.Event()

    def versions(self, spec: RunSpec) -> Versions | None:
        """Those that it was begun with."""
        return spec.versions

    async def prepare(self, run: Run) -> None:
        """Nothing to say."""

    async def work(self, run: Run) -> None:
        """All steps; an act is a line in a file."""
        steps, name = RunSteps(run), run.spec.hop
        for step in range(1, self._work.steps + 1):

            async def act(_key: str, step: int = step) -> Mapping[str, Any]:
                if self._acts.stops(step):
                    if self._acts.met():
                        self._together.set()
                    await self._together.wait()
                self._acts.write(name, step)
                return RESULT

            await steps.perform(StepKind.TOOL_CALL, Effect.IDEMPOTENT_WRITE, {"step": step}, act)
        await run.finish("done", "")
        self._ended += 1
        self._more.set()

    async def stop(self, run: Run, state: str, reason: str) -> None:
        """End it."""
        await run.finish(state, reason)

    async def troubled(self, spec: RunSpec, error: Exception) -> None:
        """Nothing may go wrong here."""
        raise SystemExit(f"run {spec.run_id} is in trouble: {error}") from error

    async def ended(self, count: int) -> None:
        """Return when the store has the ends of so many runs."""
        while self._ended < count:
            self._more.clear()
            await self._more.wait()


async def main(work: Work, effect: Effect = Effect.READ) -> dict[str, Any]:
    """Measure steps of this effect, or hold, or resume."""
    async with _kernel(work) as (store, kernel):
        if work.phase == "steady":
            return await _steady(work, kernel, effect)
        acts = Acts(work)
        body, marks = Body(work, acts), Marks(work.folder / "workers")
        with marks.hold(kernel.worker):
            leases = Leases(store, SystemClock(), Identity(kernel.worker, "here", "daemon"), marks.is_dead)
            worker = Worker(store, kernel, SystemClock(), body, leases, Limits(work.runs))
            ready_at = time.monotonic()
            async with asyncio.TaskGroup() as tasks:
                working = tasks.create_task(worker.run())
                if work.phase == "hold":
                    await _create(work, kernel, "r")
                await body.ended(work.runs)
                done_at = time.monotonic()
                acts.stop_again()
                await _create(work, kernel, "new")
                await body.ended(2 * work.runs)
                ended_at = time.monotonic()
                working.cancel()
        return asdict(Recovered(ready_at, acts.first_at, done_at, ended_at - acts.met_at))


@asynccontextmanager
async def _kernel(work: Work) -> AsyncIterator[tuple[JournalStore, Kernel]]:
    clock = SystemClock()
    async with open_store(work.file if work.store == "sqlite" else work.url, clock) as store:
        yield store, Kernel(store, clock, SystemEntropy(), Artifacts(work.folder / "artifacts"))


async def _recorded(work: Work) -> int:
    """The steps that are in the journal, counted by a connection of its own."""
    if work.store == "sqlite":
        from benchmarks.peers import on_sqlite  # noqa: PLC0415 - a recovery needs neither this nor the driver below

        return on_sqlite.value(work.file, RECORDED)
    import asyncpg  # noqa: PLC0415 - see above

    connection = await asyncpg.connect(work.url)
    try:
        return int(await connection.fetchval(RECORDED))
    finally:
        await connection.close()


def _spec(name: str) -> RunSpec:
    """A run in a session of its own: those of one session go one after the other."""
    run_id, trace_id = derived("run", name), derived("trace", name)
    return RunSpec(run_id=run_id, tenant="local", agent="a", model="m", trace_id=trace_id, session=run_id, hop=name)


async def _create(work: Work, kernel: Kernel, prefix: str) -> None:
    await at_once(work.runs, (kernel.create(_spec(f"{prefix}{number}")) for number in range(work.runs)))


async def _steady(work: Work, kernel: Kernel, effect: Effect) -> dict[str, Any]:
    async def do(name: str) -> None:
        spec = _spec(name)
        await kernel.create(spec)
        run = await kernel.begin(spec)
        steps = RunSteps(run)
        for step in range(1, work.steps + 1):
            await steps.perform(StepKind.TOOL_CALL, effect, {"step": step}, _nothing)
        await run.finish("done", "")

    warm = work.concurrency
    await at_once(warm, (do(str(number)) for number in range(warm)))
    before = await _recorded(work)
    watch = Stopwatch.start()
    await at_once(work.concurrency, (do(str(number)) for number in range(warm, warm + work.runs)))
    return watch.figures(work.runs * work.steps) | {"committed": await _recorded(work) - before}


async def _nothing(_key: str) -> Mapping[str, Any]:
    return RESULT


async def at_once(count: int, things: Iterable[Awaitable[object]]) -> None:
    """Do the things, so many at once."""
    rest = iter(things)

    async def busy() -> None:
        for thing in rest:
            await thing

    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(busy())


if __name__ == "__main__":
    look_for_little()
    report(uvloop.run(main(Work.read("sqlite", "postgres"))))
