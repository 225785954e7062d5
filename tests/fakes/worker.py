"""A worker at work on runs whose every part a test decides."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from rucher.kernel.fairness import Limits
from rucher.kernel.leases import Identity, Leases
from rucher.kernel.run import Run
from rucher.kernel.runs import Kernel
from rucher.kernel.spec import RunSpec, Versions
from rucher.kernel.steps import RunSteps
from rucher.kernel.worker import Worker, WorkerStore
from rucher.protocol.conversation import Effect
from tests.fakes.clock import until
from tests.fakes.drafts import run_spec
from tests.fakes.kernel import Scene, tool

LIMITS = Limits()
Part = Callable[[Run], Awaitable[None]]


@dataclass
class Script:
    """The Body of a worker: does for each run what the test says, by its name, and notes what is asked of it."""

    parts: Mapping[str, Part] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    most_busy: int = 0
    ending: Part | None = None

    def versions(self, _spec: RunSpec) -> Versions | None:
        return None

    async def prepare(self, _run: Run) -> None:
        pass

    async def work(self, run: Run) -> None:
        name = run.spec.model
        assert name not in self.busy, "two work on one run"
        self.busy.add(name)
        self.most_busy = max(self.most_busy, len(self.busy))
        self.notes.append(f"begin {name}")
        try:
            await self.parts.get(name, quickly)(run)
            await run.finish("done", "")
            self.notes.append(f"done {name}")
        except asyncio.CancelledError:
            self.notes.append(f"interrupted {name}")
            raise
        finally:
            self.busy.discard(name)

    async def stop(self, run: Run, state: str, reason: str) -> None:
        self.notes.append(f"{state} {run.spec.model}")
        if self.ending is not None:
            await self.ending(run)
        await run.finish(state, reason)

    async def troubled(self, spec: RunSpec, error: Exception) -> None:
        self.notes.append(f"trouble {spec.model}: {error}")


async def quickly(run: Run) -> None:
    await tool(RunSteps(run), returning)


async def returning(_key: str) -> Mapping[str, Any]:
    return {}


class Gate:
    """A part of a run that stays in its first step until the test opens it, and then does a second one."""

    def __init__(self) -> None:
        self.inside = 0
        self.open = asyncio.Event()

    async def __call__(self, run: Run) -> None:
        async def act(_key: str) -> Mapping[str, Any]:
            self.inside += 1
            await self.open.wait()
            return {}

        steps = RunSteps(run)
        await tool(steps, act, Effect.IDEMPOTENT_WRITE)
        await tool(steps, returning, Effect.IDEMPOTENT_WRITE)


def called(name: str, **told: Any) -> RunSpec:
    """A run whose name its body knows: in the field `model`, which the kernel only hands on."""
    return run_spec(name, model=name, **told)


@asynccontextmanager
async def working(
    scene: Scene,
    body: Script,
    limits: Limits = LIMITS,
    store: WorkerStore | None = None,
    kernel: Kernel | None = None,
) -> AsyncIterator[tuple[Worker, Leases]]:
    """A worker at work, as long as the context lasts."""
    kernel = kernel or scene.kernel()
    at = store or scene.store
    leases = Leases(at, scene.clock, Identity(kernel.worker, "host", "all"), lambda _row: False)
    worker = Worker(at, kernel, scene.clock, body, leases, limits)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(worker.run())
        try:
            yield worker, leases
        finally:
            running.cancel()


async def make(scene: Scene, *specs: RunSpec) -> None:
    for spec in specs:
        await scene.kernel().create(spec)


async def noted(body: Script, note: str) -> None:
    await until(lambda: note in body.notes, f"{note!r} among {body.notes}")


async def claims(scene: Scene) -> int:
    return sum(row["count"] for row in await scene.store.rows("claims.counts"))


async def unclaimed(scene: Scene) -> None:
    async def none() -> bool:
        return await claims(scene) == 0

    await until(none, "all claims are given back")
