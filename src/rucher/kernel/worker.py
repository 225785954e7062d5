"""`Worker`: claims runs that may go on, works on so many at once, and lets go of what it cannot finish.

Started by the daemon, in one process or in several. What a run does is the `Body`'s business; what may be done to it, and when
it is somebody else's, is decided here. Everything is found in the store's views, so a worker that was killed leaves nothing
behind but claims, which whoever buries it sets free.
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rucher.kernel.fairness import Limits, choose
from rucher.kernel.leases import Leases, LeaseStore
from rucher.kernel.run import Run
from rucher.kernel.runs import Kernel
from rucher.kernel.spec import RunSpec, Versions, run_of_row
from rucher.protocol.backoff import surely, waits
from rucher.protocol.errors import Fenced, Retryable, RucherError, Suspended
from rucher.protocol.events import Event
from rucher.protocol.ports import Clock

MOST_EACH_QUEUE = 256
"""Candidates that are looked at of each tenant and agent: as many as there is room for, or so many where a mission that has
its fill may stand before others."""
MOST_ENDINGS = 64
"""Cancelled runs that are ended at once; they need no slot."""
MOST_HELD = 1000
"""Runs that one worker holds, most of them resting after trouble."""
_CANCELLED = "its owner cancelled it"
_CHILD_CANCELLED = "it was cancelled, or the run that it worked for has ended"


class WorkerStore(LeaseStore, Protocol):
    """What a worker needs of a store."""

    async def refolded(self, after: int) -> int:
        """Return once views, workers or claims may have changed since this returned `after`."""
        ...


class Body(Protocol):
    """What runs do."""

    def versions(self, spec: RunSpec) -> Versions | None:
        """What this process would begin the run with; None when it does not know, and anything may go on."""
        ...

    async def prepare(self, run: Run) -> None:
        """See to it that the run can say what it must, before anything else is done with it."""
        ...

    async def work(self, run: Run) -> None:
        """Bring the run to its end, or until it raises Suspended. Any other error makes it be tried again later."""
        ...

    async def stop(self, run: Run, state: str, reason: str) -> None:
        """End the run in this state, before it has done all that it would."""
        ...

    async def troubled(self, spec: RunSpec, error: Exception) -> None:
        """The run could not go on just now; it is tried again. Must not raise but Retryable."""
        ...


@dataclass(slots=True)
class _Job:
    spec: RunSpec
    task: "asyncio.Task[None] | None" = None
    run: Run | None = None
    wish: str = ""
    fresh: bool = False
    """Whether nobody has ever taken it, as far as the view knows."""
    events: Sequence[Event] | None = None
    """Its log, where it was read with those of others."""


class Worker:
    """Works as long as `run` runs."""

    def __init__(
        self, store: WorkerStore, kernel: Kernel, clock: Clock, body: Body, leases: Leases, limits: Limits
    ) -> None:
        self._store = store
        self._kernel = kernel
        self._clock = clock
        self._body = body
        self._leases = leases
        self._limits = limits
        self._notice = leases.notice
        self._jobs: dict[str, _Job] = {}
        self._slots = asyncio.Semaphore(limits.worker)
        self._resting = 0
        self._look = asyncio.Event()
        self._over: set[str] = set()
        self._more_over = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled; then let go of everything."""
        await surely(self._clock, self._leases.join)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_lease())
                tasks.create_task(self._watch())
                tasks.create_task(self._release())
                tasks.create_task(self._listen())
                await self._take(tasks)
        finally:
            with contextlib.suppress(RucherError):
                await self._leases.leave()

    async def _listen(self) -> None:
        seen = 0
        while True:
            seen = await self._store.refolded(seen)
            self._look.set()

    async def _take(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            try:
                await self._hear_wishes()
                await self._claim(tasks)
            except Retryable as error:
                self._notice("no runs can be claimed just now", {"reason": str(error)})
                await self._clock.sleep(1.0)
                self._look.set()

    async def _claim(self, tasks: asyncio.TaskGroup) -> None:
        ending = await self._store.rows("runs.to_end", MOST_ENDINGS)
        free = min(self._limits.worker - (len(self._jobs) - self._resting), MOST_HELD - len(self._jobs))
        each = min(free, MOST_EACH_QUEUE) if self._limits.mission is None else MOST_EACH_QUEUE
        waiting = await self._store.rows("runs.claimable", each) if free > 0 else []
        chosen = [row["run_id"] for row in ending]
        if waiting:
            chosen += choose(waiting, await self._store.rows("claims.counts"), self._limits, free)
        if not chosen:
            return
        claim = {"runs": json.dumps(chosen), "worker": self._leases.worker, "at": self._clock.now()}
        taken = await self._store.command("claim.take", claim)
        mine = {row["run_id"] for row in taken}
        rows = [row for row in (*ending, *waiting) if row["run_id"] in mine and row["run_id"] not in self._jobs]
        logs = await self._logs([row["run_id"] for row in rows if row["worker"]])
        for row in rows:
            job = self._jobs[row["run_id"]] = _Job(run_of_row(row), wish=row["wish"], fresh=not row["worker"])
            job.events = logs.get(row["run_id"])
            job.task = tasks.create_task(self._work(job), name=f"run {row['run_id']}")

    async def _logs(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        """The logs of these runs; of none when one cannot be read: each run then meets its own trouble."""
        try:
            return await self._kernel.logs(run_ids) if run_ids else {}
        except RucherError:
            return {}

    async def _hear_wishes(self) -> None:
        """Tell the runs in hand what their owner wants: to pause at the next step, or to stop now."""
        if not self._jobs:
            return
        wishes = {row["run_id"]: row["wish"] for row in await self._store.rows("claims.wished", self._leases.worker)}
        for run_id, job in self._jobs.items():
            wish = wishes.get(run_id, "")
            if job.wish == wish:
                continue
            job.wish = wish
            if job.run is not None:
                job.run.wish = job.wish
            if job.wish == "cancel" and job.task is not None:
                job.task.cancel("cancelled")

    async def _work(self, job: _Job) -> None:
        """Work on one run until it has ended, is parked, or is another's; ever more slowly while it cannot go on.

        One that its owner cancels meanwhile is let go of, and taken again to be ended once its children have.
        """
        pauses = waits()
        try:
            while True:
                try:
                    async with contextlib.nullcontext() if job.wish == "cancel" else self._slots:
                        await self._once(job)
                except (Suspended, Fenced):
                    return
                except Exception as error:  # noqa: BLE001 - one run's trouble, whatever it is, must not stop the others
                    await surely(self._clock, lambda error=error: self._body.troubled(job.spec, error))  # type: ignore[misc]
                    await self._rest(next(pauses))
                else:
                    return
        finally:
            self._jobs.pop(job.spec.run_id, None)
            self._over.add(job.spec.run_id)
            self._more_over.set()

    async def _once(self, job: _Job) -> None:
        job.run = None
        ending = job.wish == "cancel"
        versions = self._body.versions(job.spec)
        if job.fresh and not ending:
            run = await self._kernel.begin(job.spec, versions)
        else:
            events, job.events = job.events, None
            run = await self._kernel.open(job.spec, versions, to_end=ending, events=events)
        job.fresh = False
        if run.finished or (run.parked and not ending):
            return
        run.wish = job.wish if job.wish == "pause" else ""
        job.run = run
        await self._body.prepare(run)
        if ending:
            await self._body.stop(run, "cancelled", _CHILD_CANCELLED if job.spec.parent else _CANCELLED)
        else:
            await run.demand_fit()
            await self._body.work(run)

    async def _rest(self, seconds: float) -> None:
        """Wait before the next try; the slot is free for other runs meanwhile."""
        self._resting += 1
        self._look.set()
        try:
            await self._clock.sleep(seconds)
        finally:
            self._resting -= 1

    async def _release(self) -> None:
        """Let others have the runs that are over here; those that come to this during a commit go with the next."""
        while True:
            await self._more_over.wait()
            self._more_over.clear()
            await surely(self._clock, self._release_all)

    async def _release_all(self) -> None:
        over = tuple(self._over)
        await self._store.command("claim.release", {"runs": json.dumps(over), "worker": self._leases.worker})
        self._over.difference_update(over)

    async def _keep_lease(self) -> None:
        while True:
            await self._clock.sleep(self._leases.times.renew_s)
            if not await surely(self._clock, self._leases.renew):
                self._notice(
                    "this worker was taken for dead; its runs are others' now", {"worker": self._leases.worker}
                )
                await self._lose_all()
                await surely(self._clock, self._leases.join)

    async def _lose_all(self) -> None:
        jobs = [job.task for job in self._jobs.values() if job.task is not None]
        for task in jobs:
            task.cancel("its lease was lost")
        if jobs:
            await asyncio.wait(jobs)
        self._jobs.clear()
        self._over.clear()

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(self._leases.times.watch_s)
            await surely(self._clock, self._leases.watch)
