"""One process that works on runs as a daemon does, and that can end or stop itself at any edge of what it does.

Started by `crew.py`, killed by tests. An edge is a moment just before or just after something that lasts: a commit, or an
effect outside. Its name says what is committed, so that the same edge is met again in the next process.
"""

import asyncio
import json
import os
import sqlite3
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import structlog
from typing_extensions import override

from rucher.daemon.marks import Marks
from rucher.journal.artifacts import Artifacts
from rucher.journal.postgres.adapter import open_postgres
from rucher.journal.rows import RunWrite
from rucher.journal.sqlite import files
from rucher.journal.sqlite.adapter import open_sqlite
from rucher.journal.store import JournalStore
from rucher.journal.units import Adapter, Answer
from rucher.kernel.fairness import Limits
from rucher.kernel.leases import Identity, Leases, Times
from rucher.kernel.orders import Orders
from rucher.kernel.run import Run
from rucher.kernel.runs import Kernel
from rucher.kernel.spec import TERMINAL, RunSpec, Versions
from rucher.kernel.timers import Timers
from rucher.kernel.worker import Worker
from rucher.protocol.backoff import surely
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.errors import BadInput, Fenced, Retryable
from rucher.protocol.events import Draft
from rucher.protocol.ids import derived
from rucher.protocol.ports import Appended, Clock
from tests.chaos.outside import Outside, once
from tests.chaos.scripts import SCRIPTS, Hands

LOOK_S = 0.02
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """What one process does.

    `store` is a path or a URL. `runs` are made first, by name and script; the process ends when those in `until` have ended.
    `signals` are sent to itself at the first passing of an edge; at an edge in `gates` it waits until `open` is open.
    """

    store: str
    folder: Path
    name: str = "a"
    runs: tuple[tuple[str, str], ...] = ()
    until: tuple[str, ...] = ()
    works: bool = True
    owner: bool = True
    approves: bool = True
    signals: Mapping[str, int] = field(default_factory=dict)
    gates: tuple[str, ...] = ()
    at_once: int = 16
    times: Times = field(default_factory=Times)
    busy_s: float = 10.0
    small_log: bool = False
    """Whether SQLite's log is short, so that a small disk is soon full."""


def run_called(name: str) -> str:
    """The id of the run that a test knows by this name."""
    return derived("run", name)


class WrongClock(SystemClock):
    """A wall clock that tests put forward and back; its steady half is right."""

    def __init__(self, outside: Outside, name: str) -> None:
        self._outside = outside
        self._name = name

    @override
    def now(self) -> int:
        return super().now() + round(self._outside.clock_of(self._name) * 1e6)


class Edges:
    """The edges that were passed, and what happens at them."""

    def __init__(self, post: Post, outside: Outside) -> None:
        self._post = post
        self._outside = outside
        self._passed: set[str] = set()

    def passed(self, edge: str) -> bool:
        """Whether this edge was passed."""
        return edge in self._passed

    async def reach(self, edge: str) -> None:
        """Pass this edge; only the first passing of it counts."""
        if edge in self._passed:
            return
        self._passed.add(edge)
        self._outside.note(f"edges-{self._post.name}", edge)
        if edge in self._post.gates:
            await once(lambda: self._outside.is_open("open"))
        if number := self._post.signals.get(edge):
            os.kill(os.getpid(), number)


class EdgedStore(JournalStore):
    """A store each of whose commits has two edges."""

    def __init__(self, adapter: Adapter, edges: Edges, outside: Outside, roots: frozenset[str]) -> None:
        super().__init__(adapter)
        self._edges = edges
        self._outside = outside
        self._roots = roots
        self.held: set[str] = set()
        """Runs that this process has claimed and not given back."""

    @override
    async def write(self, write: RunWrite) -> None:
        kinds = "+".join(kind for kind, _ in write.records)
        step = json.loads(write.records[-1][1]).get("step", "")
        edge = f"{kinds} {step} of {'root' if write.head.run_id in self._roots else 'child'}"
        try:
            await self._between(edge, super().write(write))
        except Fenced:
            self._outside.note("fenced", write.head.run_id, kinds)
            raise

    @override
    async def append(self, *drafts: Draft) -> tuple[Appended, ...]:
        return await self._between("+".join(draft.type for draft in drafts), super().append(*drafts))

    @override
    async def command(self, statement: str, parameters: Mapping[str, Any]) -> Answer:
        answer = await self._between(statement, super().command(statement, parameters))
        match statement:
            case "claim.take":
                self.held |= {row["run_id"] for row in answer}
            case "claim.release":
                self.held -= set(json.loads(parameters["runs"]))
            case "worker.join":
                self.held.clear()
            case _:
                pass
        return answer

    @override
    async def rows(self, statement: str, *parameters: Any) -> list[Mapping[str, Any]]:
        found = await super().rows(statement, *parameters)
        if statement == "claims.wished":
            for row in found:
                self._outside.note("heard", row["run_id"], row["wish"])
        if statement == "claims.orphaned":
            await self._edges.reach("looked for orphans")
        return found

    async def _between(self, edge: str, commit: Awaitable[T]) -> T:
        await self._edges.reach(f"before {edge}")
        result = await commit
        await self._edges.reach(f"after {edge}")
        return result


class Scripted:
    """The Body: each run does what the script that its agent is named after says."""

    def __init__(self, outside: Outside, edges: Edges, clock: Clock) -> None:
        self._outside = outside
        self._edges = edges
        self._clock = clock

    def versions(self, spec: RunSpec) -> Versions | None:
        return spec.versions

    async def prepare(self, run: Run) -> None:
        pass

    async def work(self, run: Run) -> None:
        said = await SCRIPTS[run.spec.agent].play(Hands(self._outside, self._edges.reach, self._clock, run))
        await run.finish("done", "", result={"said": said})

    async def stop(self, run: Run, state: str, reason: str) -> None:
        await run.finish(state, reason)

    async def troubled(self, spec: RunSpec, error: Exception) -> None:
        self._outside.note("trouble", spec.run_id, type(error).__name__, str(error))


class Owner:
    """Answers whatever runs wait for: by the truth where a step is uncertain."""

    def __init__(self, store: JournalStore, outside: Outside, post: Post) -> None:
        self._store = store
        self._outside = outside
        self._post = post
        self._orders = Orders(store, SystemClock(), f"owner:{post.name}")
        self._heard = 0

    async def run(self) -> None:
        while True:
            with suppress(Retryable):
                await self._obey()
                for row in await self._store.rows("runs.waiting", 100):
                    await self._decide(row["run_id"])
            await asyncio.sleep(LOOK_S)

    async def _obey(self) -> None:
        """Pass on the orders that a test wrote down."""
        for order, name in self._outside.lines("orders")[self._heard :]:
            give = {"cancel": self._orders.cancel, "pause": self._orders.pause, "resume": self._orders.resume}[order]
            await give(run_called(name), f"{order}-{self._heard}")
            self._heard += 1

    async def _decide(self, run_id: str) -> None:
        for wait in await self._store.rows("run.waits", run_id):
            if wait["state"] != "open" or wait["kind"] not in ("question", "approval"):
                continue
            try:
                if wait["topic"].startswith("step:"):
                    await self._orders.resolve(run_id, wait["step"], await self._truth(run_id, wait["step"]))
                else:
                    await self._orders.answer(run_id, wait["step"], {"approved": self._post.approves})
                    self._outside.note("answered", run_id, self._post.name)
            except BadInput as error:
                self._outside.note("refused", run_id, self._post.name, str(error))

    async def _truth(self, run_id: str, step: str) -> str:
        log = await self._store.run_log(run_id)
        (label,) = {
            event.body["request"]["label"]
            for event in log
            if event.type == "step.intended" and event.body["step"] == step
        }
        return "ran" if self._outside.counts()[run_id, label] else "not-run"


def main(post: Post) -> None:
    """Do all that; what goes wrong is noted in the book `crashes`."""
    outside = Outside(post.folder / "outside")
    log = (post.folder / f"log-{post.name}").open("a", encoding="utf-8")
    structlog.configure(logger_factory=structlog.WriteLoggerFactory(log), cache_logger_on_first_use=False)
    try:
        asyncio.run(_live(post, outside))
    except BaseException:
        outside.note("crashes", post.name, traceback.format_exc().replace("\n", "|"))
        raise


async def _live(post: Post, outside: Outside) -> None:
    clock = WrongClock(outside, post.name)
    edges = Edges(post, outside)
    adapter = await surely(clock, lambda: _opened(post, clock))
    store = EdgedStore(adapter, edges, outside, frozenset(run_called(name) for name, _ in post.runs))
    marks = Marks(post.folder / "workers")
    kernel = Kernel(store, clock, SystemEntropy(), Artifacts(post.folder / "artifacts"))
    try:
        with marks.hold(kernel.worker):
            works: list[Awaitable[None]] = []
            if post.works:
                shared = post.store.startswith("postgresql:")
                is_dead: Callable[[Mapping[str, Any]], bool] = marks.is_dead if shared else lambda _row: True
                leases = Leases(store, clock, Identity(kernel.worker, "here", post.name), is_dead, post.times)
                body = Scripted(outside, edges, clock)
                worker = Worker(store, kernel, clock, body, leases, Limits(post.at_once))
                works += [worker.run(), Timers(store, clock).run()]
            if post.owner:
                works.append(Owner(store, outside, post).run())
            await _until_ended(post, edges, store, kernel, works)
    finally:
        await store.close()


async def _opened(post: Post, clock: Clock) -> Adapter:
    if post.store.startswith("postgresql:"):
        return await open_postgres(post.store, clock, write=True)

    def connecting(path: Path, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False,
            timeout=post.busy_s, cached_statements=256,
        )  # fmt: skip

    if post.small_log:
        files.WAL_BYTES, files.CHECKPOINT_PAGES = 1 << 20, 100
    return await open_sqlite(Path(post.store), clock, write=True, connecting=connecting)


async def _until_ended(
    post: Post, edges: Edges, store: EdgedStore, kernel: Kernel, works: list[Awaitable[None]]
) -> None:
    outside = Outside(post.folder / "outside")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_awaited(work)) for work in works]
        for name, agent in post.runs:
            await surely(SystemClock(), lambda name=name, agent=agent: kernel.create(_spec(name, agent)))  # type: ignore[misc]
            outside.note("accepted", name)
        await once(lambda: not post.works or edges.passed("looked for orphans"))
        outside.note("up", post.name)
        while True:
            if await surely(SystemClock(), lambda: _ended(store, post.until)):
                break
            await asyncio.sleep(LOOK_S)
        await once(lambda: not store.held)
        for task in tasks:
            task.cancel()


async def _awaited(work: Awaitable[None]) -> None:
    await work


async def _ended(store: JournalStore, names: tuple[str, ...]) -> bool:
    for name in names:
        rows = await store.rows("run.get", run_called(name))
        if not rows or rows[0]["state"] not in TERMINAL:
            return False
    return bool(names)


def _spec(name: str, agent: str) -> RunSpec:
    run_id = run_called(name)
    return RunSpec(
        run_id=run_id, tenant="local", agent=agent, model="none", trace_id=derived("trace", name), session=run_id,
        accounts=(run_id,), ceilings={run_id: {"tokens": 1_000_000, "turns": 1000}},
    )  # fmt: skip
