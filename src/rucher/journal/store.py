"""`JournalStore`: the Journal port and the views on top of it, over one SQLite file.

Opened by the daemon to write (`open_store`) and by the command line to read a store that nobody may be running
(`read_store`). All blocking work is done in the committer's thread or in a small pool of readers.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import override

from rucher.journal.committer import Committer
from rucher.journal.sqlite import Outcome, Seal, SqliteReader, SqliteWriter, Unit
from rucher.journal.tail import Tail
from rucher.protocol.errors import BadInput
from rucher.protocol.events import Draft, Event
from rucher.protocol.ports import Appended, Clock
from rucher.protocol.subjects import matches

R = TypeVar("R")
READERS = 3
_SCAN = 1000


class StoreReader:
    """Reads events and views; each of its threads has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._opened: list[SqliteReader] = []
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="journal-read")

    async def call(self, work: Callable[[SqliteReader], R]) -> R:
        """Do `work` with a reader, in one of this store's threads."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._call, work)

    def _call(self, work: Callable[[SqliteReader], R]) -> R:
        reader: SqliteReader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = SqliteReader(self._path)
            self._local.reader = reader
            self._opened.append(reader)
        return work(reader)

    async def rows(self, statement: str, *parameters: Any) -> list[Mapping[str, Any]]:
        """The rows of one named statement."""
        return await self.call(lambda reader: reader.rows(statement, parameters))

    async def events(self, statement: str, *parameters: Any) -> list[Event]:
        """The events of one named statement over `events`."""
        return await self.call(lambda reader: reader.events(statement, parameters))

    async def read(self, after: int, limit: int, subject: str = "ev.>") -> Sequence[Event]:
        """Up to `limit` events with a `seq` above `after` whose subject matches the pattern, in order."""
        found: list[Event] = []
        scan = limit if subject == "ev.>" else _SCAN
        while len(found) < limit:
            batch = await self.events("event.after", after, scan)
            found += [event for event in batch if matches(subject, event.subject)]
            if len(batch) < scan:
                break
            after = batch[-1].seq
        return found[:limit]

    async def newest(self, limit: int, subject: str = "ev.>", up_to: int | None = None) -> Sequence[Event]:
        """The newest `limit` events whose subject matches the pattern, in order; none with a `seq` above `up_to`."""
        found: list[Event] = []
        before = (await self.head_seq() if up_to is None else up_to) + 1
        while len(found) < limit and (batch := await self.events("event.before", before, _SCAN)):
            found += [event for event in batch if matches(subject, event.subject)]
            before = batch[-1].seq
        return found[:limit][::-1]

    async def head_seq(self) -> int:
        """The highest committed seq."""
        return int((await self.rows("event.head"))[0]["seq"])

    async def changed(self) -> bool:
        """Whether anything may have been committed since this was last asked: cheap, and never wrongly False."""
        return await self.call(SqliteReader.changed)

    async def trace(self, trace_id: str) -> Sequence[Event]:
        """All events of a trace, in order."""
        return await self.events("event.of_trace", trace_id)

    async def traces_starting(self, prefix: str) -> Sequence[str]:
        """Up to three trace ids that start with `prefix`."""
        return [row["trace_id"] for row in await self.rows("event.ids_starting", prefix, prefix + "~")]

    async def event(self, event_id: str) -> Event | None:
        """The event with this id; a run's own events are found in its log, not here."""
        return next(iter(await self.events("event.by_id", event_id)), None)

    async def event_anywhere(self, event_id: str) -> Event | None:
        """The event with this id, also one of a run, for which the whole journal may be read through."""
        return await self.event(event_id) or next(iter(await self.events("event.anywhere", event_id)), None)

    async def run_log(self, run_id: str) -> Sequence[Event]:
        """The events of one run, in the run's own order."""
        return await self.events("event.of_run", run_id)

    async def cursor(self, name: str) -> int:
        """How far the named consumer got; 0 before its first event."""
        rows = await self.rows("cursor.get", name)
        return int(rows[0]["seq"]) if rows else 0

    async def close(self) -> None:
        """Close all readers."""
        await asyncio.to_thread(self._pool.shutdown)
        for reader in self._opened:
            reader.close()


class JournalStore(StoreReader):
    """A store that also writes."""

    def __init__(self, path: Path, writer: SqliteWriter) -> None:
        super().__init__(path)
        self._writer = writer
        self._committer: Committer[Unit, Outcome] = Committer(writer.apply, self._committed, "journal-write")
        self._grown = asyncio.Event()
        self._tail = Tail(writer.head)

    @property
    def head(self) -> int:
        """The highest committed seq."""
        return self._tail.head

    async def append(self, *drafts: Draft) -> tuple[Appended, ...]:
        """Commit all drafts in one transaction; see the Journal port."""
        return await self._committer.submit(drafts)

    def _committed(self, outcomes: Sequence[Outcome | Exception]) -> None:
        for outcome in outcomes:
            if not isinstance(outcome, Exception):
                self._tail.extend(each.event for each in outcome if each.first)
        self._grown.set()
        self._grown = asyncio.Event()

    @override
    async def read(self, after: int, limit: int, subject: str = "ev.>") -> Sequence[Event]:
        """Up to `limit` events with a `seq` above `after` whose subject matches the pattern, in order."""
        if subject == "ev.>" and (kept := self._tail.after(after, limit)) is not None:
            return kept
        return await super().read(after, limit, subject)

    @override
    async def event(self, event_id: str) -> Event | None:
        """The event with this id."""
        return self._tail.event(event_id) or await super().event(event_id)

    async def add_seal(self, seal: Seal) -> None:
        """Commit a seal."""
        await self._committer.submit(seal)

    async def grown(self, after: int) -> None:
        """Return once the journal holds an event with a `seq` above `after`."""
        while self.head <= after:
            await self._grown.wait()

    @override
    async def close(self) -> None:
        """Commit what was handed in, then close everything."""
        await self._committer.close()
        await super().close()
        await asyncio.to_thread(self._writer.close)


@asynccontextmanager
async def open_store(path: Path, clock: Clock) -> AsyncIterator[JournalStore]:
    """The store at `path`, made or migrated if need be; raises BadInput or Corrupt when it cannot be used."""
    store = JournalStore(path, await asyncio.to_thread(SqliteWriter, path, clock))
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def read_store(path: Path) -> AsyncIterator[StoreReader]:
    """The store at `path`, for reading only; raises BadInput when there is none."""
    if not await asyncio.to_thread(path.is_file):
        raise BadInput(f"there is no journal at {path} yet; start the daemon with `rucher up`")
    store = StoreReader(path)
    try:
        yield store
    finally:
        await store.close()
