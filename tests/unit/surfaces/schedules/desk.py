"""Schedules that really run, on a real store, by a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rucher.journal.store import JournalStore, open_store
from rucher.protocol.errors import RucherError
from rucher.protocol.events import Draft, Event
from rucher.protocol.ports import Appended
from rucher.surfaces.schedules.file import SchedulesFile
from rucher.surfaces.schedules.plan import Schedule
from rucher.surfaces.schedules.proposals import Proposals
from rucher.surfaces.schedules.runner import Schedules, Verdict
from tests.fakes.clock import ManualClock, settled, until

KNOWN = frozenset({"agent:scribe", "surface:cli"})
LAST = 2**62
HOUR = 3600.0
BEGIN = 1_800_000_000_000_000
"""2027-01-15T08:00:00Z, a Friday: where the test's clock begins."""
DAILY = '[[schedule]]\nid = "daily"\ncron = "0 9 * * *"\ntext = "Good morning"\n'


@dataclass
class Answers:
    """A gate that says what it was told to, and counts how often it was asked."""

    verdict: Verdict | RucherError | Callable[[], Verdict] = field(default_factory=lambda: Verdict(opens=True, said=""))
    asked: list[tuple[str, int]] = field(default_factory=list)
    at_work: int = 0
    most_at_work: int = 0
    held: asyncio.Event | None = None

    async def ask(self, schedule: Schedule, planned_at: int) -> Verdict:
        self.asked.append((schedule.id, planned_at))
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            if self.held is not None:
                await self.held.wait()
        finally:
            self.at_work -= 1
        if isinstance(self.verdict, RucherError):
            raise self.verdict
        return self.verdict if isinstance(self.verdict, Verdict) else self.verdict()


class Cut(BaseException):
    """The process ends here, as by kill -9."""


@dataclass
class CutStore:
    """A store whose process ends at its append number `at`, just before it commits or just after."""

    store: JournalStore
    at: int
    committed: bool
    appends: int = 0

    async def rows(self, statement: str, *parameters: Any) -> Sequence[Mapping[str, Any]]:
        return await self.store.rows(statement, *parameters)

    async def append(self, *drafts: Draft) -> tuple[Appended, ...]:
        self.appends += 1
        if self.appends != self.at:
            return await self.store.append(*drafts)
        if self.committed:
            await self.store.append(*drafts)
        raise Cut


@dataclass
class Desk:
    """What a test of running schedules holds."""

    store: JournalStore
    clock: ManualClock
    path: Path
    schedules: Schedules
    proposals: Proposals
    gate: Answers
    running: asyncio.Future[None]

    async def idle(self) -> None:
        """Return once the schedules sleep, and no fire is under way."""
        await settled()
        await until(
            lambda: self.running.done() or (self.clock.sleeping > 0 and not _under_way()),
            "the schedules did not come to rest",
        )
        await settled()

    async def passes(self, seconds: float) -> None:
        """Let time pass, and what is due be done."""
        self.clock.advance(seconds)
        await self.idle()

    async def ledger(self) -> list[tuple[str, str, float]]:
        """Schedule, state and planned time (hours after the beginning) of every entry, oldest first."""
        rows = await self.store.rows("fires.before", LAST, 1000)
        return [(row["schedule"], row["state"], (row["planned_at"] - BEGIN) / 3.6e9) for row in reversed(rows)]

    async def row(self, schedule: str) -> Mapping[str, Any]:
        """The newest entry of a schedule."""
        return (await self.store.rows("fires.of_schedule_before", schedule, LAST, 1))[0]

    async def fired(self) -> list[Event]:
        """Every event that a schedule said."""
        return list(await self.store.read(0, 10_000, "ev.*.schedule.fire"))

    async def noted(self, kind: str) -> list[Event]:
        """Every record of this kind."""
        return list(await self.store.read(0, 10_000, f"ev.*.rucher.{kind}"))


def _under_way() -> bool:
    return any(task.get_name().startswith("schedule ") for task in asyncio.all_tasks() if not task.done())


@asynccontextmanager
async def desk(
    folder: Path,
    text: str | None = None,
    clock: ManualClock | None = None,
    gate: Answers | None = None,
    cut: tuple[int, bool] | None = None,
) -> AsyncIterator[Desk]:
    """Schedules of this text (none: as the file stands) that run until the test leaves; again over the same folder goes on.

    `cut` ends them at that append, before or after it was committed.
    """
    path, clock, gate = folder / "schedules.toml", clock or ManualClock(), gate or Answers()
    if text is not None:
        path.write_text(text)
    async with open_store(folder / "rucher.db", clock) as store:
        file = SchedulesFile(path, folder, lambda: KNOWN, "UTC")
        schedules = Schedules(CutStore(store, *cut) if cut else store, clock, file, gate, "local")
        running = asyncio.ensure_future(schedules.run())
        made = Desk(store, clock, path, schedules, Proposals(store, clock, file, "local"), gate, running)
        try:
            await made.idle()
            yield made
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
