"""Runs over a real store, for tests: a kernel, its owner's orders, time in the test's hand, and acts that are counted."""

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from rucher.journal.artifacts import Artifacts
from rucher.journal.rows import RunWrite
from rucher.journal.store import JournalStore, Place, open_store
from rucher.journal.views import VIEWS
from rucher.kernel.orders import Orders
from rucher.kernel.run import Run
from rucher.kernel.runs import Kernel
from rucher.kernel.spec import RunSpec, Versions, run_of_row
from rucher.kernel.steps import RunSteps
from rucher.kernel.timers import Timers
from rucher.protocol.clock import SystemEntropy
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import Suspended
from rucher.protocol.events import control_event
from rucher.protocol.ports import Entropy, Proof, StepKind
from tests.fakes.clock import ManualClock
from tests.fakes.drafts import NOW, TRACE

OWNER = "owner:ana"
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - only ever the parent of a temporary folder
"""Where folders are that lie in memory, if the system has such a place."""
Act = Callable[[str], Awaitable[Mapping[str, Any]]]


class Killed(Exception):
    """Stands for a kill: whatever raises it did nothing after this point."""


@dataclass
class Counter:
    """An effect outside of the system: notes the key of each time that it was acted, and answers how often that was."""

    keys: list[str] = field(default_factory=list)
    usage: Mapping[str, int] | None = None

    async def act(self, key: str) -> Mapping[str, Any]:
        self.keys.append(key)
        return {"count": len(self.keys)} | ({"usage": self.usage} if self.usage else {})

    async def killed_after(self, key: str) -> Mapping[str, Any]:
        """Act, and be killed before the result is known."""
        await self.act(key)
        raise Killed


def proving(proof: Proof) -> Callable[[str], Awaitable[Proof]]:
    """A probe that says this."""

    async def probe(_key: str) -> Proof:
        return proof

    return probe


async def tool(steps: RunSteps, act: Act, effect: Effect = Effect.NON_IDEMPOTENT, name: str = "x") -> Mapping[str, Any]:
    """The next step, a tool call."""
    return await steps.perform(StepKind.TOOL_CALL, effect, {"tool": name}, act)


class Through:
    """A store that a test can get in the way of: `before` and `after` each write; the rest goes to the real one."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self.writes: list[list[str]] = []
        """The types of the events of each write that was committed."""
        self.before: Callable[[RunWrite], Awaitable[None]] = _nothing
        self.after: Callable[[RunWrite], Awaitable[None]] = _nothing

    async def write(self, write: RunWrite) -> None:
        await self.before(write)
        await self._store.write(write)
        self.writes.append([kind for kind, _ in write.records])
        await self.after(write)

    async def rows(self, statement: str, *parameters: Any) -> list[Mapping[str, Any]]:
        return await self._store.rows(statement, *parameters)

    async def run_log(self, run_id: str) -> Sequence[Any]:
        return await self._store.run_log(run_id)

    async def run_logs(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Any]]:
        return await self._store.run_logs(run_ids)


async def _nothing(_write: RunWrite) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Scene:
    """One store and what a test does with it."""

    store: JournalStore
    clock: ManualClock
    artifacts: Artifacts
    entropy: Entropy = field(default_factory=SystemEntropy)

    def kernel(self, store: Through | None = None) -> Kernel:
        """A process that works on runs."""
        return Kernel(store or self.store, self.clock, self.entropy, self.artifacts)

    @property
    def orders(self) -> Orders:
        return Orders(self.store, self.clock, OWNER)

    @property
    def timers(self) -> Timers:
        return Timers(self.store, self.clock)

    async def open(
        self, spec: RunSpec, versions: Versions | None = None, *, to_end: bool = False, store: Through | None = None
    ) -> Run:
        """The run, made if it is new, and taken over by a process of its own."""
        kernel = self.kernel(store)
        await kernel.create(spec)
        return await kernel.open(await self.spec(spec.run_id), versions, to_end=to_end)

    async def steps(self, spec: RunSpec, store: Through | None = None) -> RunSteps:
        """The steps of the run, from its first: taken over anew, as after a kill."""
        return RunSteps(await self.open(spec, store=store))

    async def spec(self, run_id: str) -> RunSpec:
        return run_of_row(await self.row(run_id))

    async def row(self, run_id: str) -> Mapping[str, Any]:
        (row,) = await self.store.rows("run.get", run_id)
        return row

    async def state(self, *specs: RunSpec) -> list[str]:
        """The states of the runs; `paused` and `cancelling` where their owner wants that."""
        rows = [await self.row(spec.run_id) for spec in specs]
        return [f"{row['state']}{':' if row['wish'] else ''}{row['wish']}" for row in rows]

    async def types(self, spec: RunSpec) -> list[str]:
        """The types of the run's events."""
        return [event.type for event in await self.store.run_log(spec.run_id)]

    async def budget(self, account: str) -> dict[str, tuple[int, int]]:
        """By measure what was spent and what is reserved, where that is anything."""
        rows = await self.store.rows("run.budget", account)
        return {row["measure"]: (row["spent"], row["reserved"]) for row in rows if row["spent"] or row["reserved"]}

    async def claimable(self) -> list[str]:
        rows = [*await self.store.rows("runs.to_end", 99), *await self.store.rows("runs.claimable", 99)]
        return [row["run_id"] for row in rows]

    async def signal(self, topic: str, outcome: Mapping[str, Any]) -> None:
        """Somebody signals this."""
        await self.record("signal.sent", {"topic": topic, "outcome": dict(outcome)}, topic)

    async def record(self, kind: str, body: Mapping[str, Any], key: str = "") -> None:
        """The control plane records this."""
        await self.store.append(
            control_event(
                tenant="local", part="test", kind=kind, key=key or str(body), trace_id=TRACE, occurred_at=NOW, body=body
            )
        )


Story = Callable[[Scene], Awaitable[None]]


def tell(folder: Path, story: Story, place: Place | None = None) -> None:
    """Let the story happen in a store of its own, or in the one at `place`."""

    async def run() -> None:
        clock = ManualClock()
        async with open_store(place or folder / "rucher.db", clock) as store:
            await story(Scene(store, clock, Artifacts(folder / "artifacts")))

    asyncio.run(run())


async def parks(waiting: Awaitable[Any]) -> Suspended:
    """The Suspended that this must raise."""
    try:
        await waiting
    except Suspended as parked:
        return parked
    raise AssertionError("the run went on")


def views_of(place: Place) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all views of a store that is not being written, in one order."""
    if isinstance(place, str):
        return asyncio.run(_views_in_postgres(place))
    database = sqlite3.connect(place)
    try:
        return {view: _ordered(database.execute(f"SELECT * FROM {view}").fetchall()) for view in VIEWS}  # noqa: S608 - the package's own names
    finally:
        database.close()


async def _views_in_postgres(url: str) -> dict[str, list[tuple[Any, ...]]]:
    database = await asyncpg.connect(url)
    try:
        return {view: _ordered(await database.fetch(f"SELECT * FROM {view}")) for view in VIEWS}  # noqa: S608 - the package's own names
    finally:
        await database.close()


def _ordered(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in rows), key=repr)
