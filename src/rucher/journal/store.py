"""`JournalStore`: the Journal port and the views on top of it, over SQLite or PostgreSQL.

Opened by the daemon to write (`open_store`) and by the command line to read a store that nobody may be running
(`read_store`). Which database it is, is decided by the place alone: a path is a SQLite file, a URL a PostgreSQL database.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from typing_extensions import override

from rucher.journal.rows import RUN_ID, Row, RunWrite, event_of, row_of, rows_of
from rucher.journal.tail import Tail
from rucher.journal.units import Adapter, Answer, Archive, Command, Earlier, Rows, Seal
from rucher.journal.views import folds
from rucher.protocol.errors import BadInput
from rucher.protocol.events import Draft, Event
from rucher.protocol.ports import Appended, Clock
from rucher.protocol.subjects import matches

Place = Path | str
"""A SQLite file, or the URL of a PostgreSQL database."""
_SCAN = 1000
UNFINISHED = "copying"
"""The key in `meta` under which a store that is being copied into says whose it will be."""


class StoreReader:
    """Reads events and views."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter

    async def rows(self, statement: str, *parameters: Any) -> list[Mapping[str, Any]]:
        """The rows of one named statement."""
        return await self._adapter.rows(statement, parameters)

    async def events(self, statement: str, *parameters: Any) -> list[Event]:
        """The events of one named statement over `events`."""
        return [event_of(row) for row in await self.stored(statement, *parameters)]

    async def stored(self, statement: str, *parameters: Any) -> list[Row]:
        """The rows of one named statement over `events`, as they are stored and sealed."""
        return [list(row) for row in await self.rows(statement, *parameters)]

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

    async def head_seq(self) -> int:
        """The highest committed seq."""
        return int((await self.rows("event.head"))[0]["seq"])

    async def changed(self) -> bool:
        """Whether anything may have been committed since this was last asked: cheap, and never wrongly False."""
        return await self._adapter.changed()

    async def trace(self, trace_id: str) -> Sequence[Event]:
        """All events of a trace, in order."""
        return await self.events("event.of_trace", trace_id, trace_id)

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
        return (await self.run_logs([run_id]))[run_id]

    async def run_logs(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        """The logs of many runs, by run; of an unknown one it is empty."""
        logs: dict[str, list[Event]] = {run_id: [] for run_id in run_ids}
        for row in await self.stored("event.of_runs", json.dumps(run_ids)):
            logs[row[RUN_ID]].append(event_of(row))
        return logs

    async def cursor(self, name: str) -> int:
        """How far the named consumer got; 0 before its first event."""
        rows = await self.rows("cursor.get", name)
        return int(rows[0]["seq"]) if rows else 0

    async def meta(self, key: str) -> str:
        """What the store says about itself under this key; empty when it says nothing."""
        rows = await self.rows("meta.get", key)
        return str(rows[0]["value"]) if rows else ""

    async def close(self) -> None:
        """Let go of the database."""
        await self._adapter.close()


class JournalStore(StoreReader):
    """A store that also writes."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter)
        self._tail = Tail(adapter.head)
        self._grown = asyncio.Event()
        self._behind = False
        self._folds = 0
        self._folded = asyncio.Event()
        adapter.listen(self)

    @property
    def head(self) -> int:
        """The highest committed seq that is known here."""
        return self._tail.head

    async def append(self, *drafts: Draft) -> tuple[Appended, ...]:
        """Commit all drafts in one transaction; see the Journal port."""
        rows = [row_of(draft) for draft in drafts]
        earlier: Earlier = await self._adapter.commit(Rows(rows, folds(rows)))
        return tuple(
            Appended(event_of(earlier.get(number, row)), first=number not in earlier) for number, row in enumerate(rows)
        )

    async def write(self, write: RunWrite) -> None:
        """Commit what the owner of a run writes, whole or not at all.

        Raises Fenced when its place is taken or the run another's, Exhausted when a budget does not cover it, and else as
        `append` does.
        """
        rows = rows_of(write)
        await self._adapter.commit(Rows(rows, folds(rows)))

    async def command(self, statement: str, parameters: Mapping[str, Any]) -> Answer:
        """Obey a statement of commands.sql; returns its rows."""
        answer: Answer = await self._adapter.commit(Command(statement, parameters))
        return answer

    async def add_seal(self, seal: Seal) -> None:
        """Commit a seal."""
        await self._adapter.commit(seal)

    async def let_go(self, archive: Archive) -> None:
        """Delete the events of a segment, and keep their ids; see `Archive`."""
        await self._adapter.commit(archive)

    def committed(self, rows: Sequence[Row], *, folded: bool) -> None:
        """Called by the database after each commit, before any writer is answered."""
        self._tail.extend(rows)
        self._ring(folded=folded)

    def rung(self) -> None:
        """Called by the database when another process committed something."""
        self._behind = True
        self._ring(folded=True)

    def _ring(self, *, folded: bool) -> None:
        self._grown.set()
        self._grown = asyncio.Event()
        if folded:
            self._folds += 1
            self._folded.set()
            self._folded = asyncio.Event()

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

    async def grown(self, after: int) -> None:
        """Return once the journal holds an event with a `seq` above `after`."""
        while self.head <= after:
            bell = self._grown
            if self._behind:
                self._tail.skip_to(await self._announced())
            else:
                await bell.wait()

    async def _announced(self) -> int:
        """How far the journal is, as another process announced; when it cannot be asked, the announcement stands."""
        self._behind = False
        try:
            return await self.head_seq()
        except BaseException:
            self._behind = True
            raise

    async def refolded(self, after: int) -> int:
        """Return once views, workers or claims may have changed since this returned `after`; 0 is before everything."""
        while self._folds == after:
            await self._folded.wait()
        return self._folds

    async def rebuild(self) -> int:
        """Empty every view and fold it again from the events; returns how many events were folded."""
        return await self._adapter.rebuild()

    async def load(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows as they stand in another store; see the Adapter port. For a copy only."""
        await self._adapter.load(table, rows)

    async def be_sole(self) -> None:
        """Become the one daemon of this store; see the Adapter port."""
        await self._adapter.be_sole()

    async def stay_sole(self) -> None:
        """Hold on to that; see the Adapter port."""
        await self._adapter.stay_sole()

    async def belong_to(self, instance: str) -> None:
        """Make sure that this store is that instance's, or nobody's yet; raises BadInput when it is another's, or not whole."""
        if await self.meta(UNFINISHED):
            raise BadInput("this store holds an unfinished copy; finish it with the same `rucher store copy`")
        await self.command("meta.put", {"key": "instance", "value": instance})
        if (owner := await self.meta("instance")) != instance:
            raise BadInput(
                f"this store belongs to another instance (its node key begins with {owner[:12]}, this one's with "
                f"{instance[:12]}); give each instance a store of its own, or restore the node key that belongs to it"
            )


@asynccontextmanager
async def open_store(place: Place, clock: Clock, archive: Path | None = None) -> AsyncIterator[JournalStore]:
    """The store at `place`, made or migrated if need be; raises BadInput, Corrupt or Retryable when it cannot be used.

    `archive` is the folder of its segments, which views are folded from too; that of a file lies beside it.
    """
    store = JournalStore(await _adapter(place, clock, write=True, archive=archive))
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def read_store(place: Place, clock: Clock) -> AsyncIterator[StoreReader]:
    """The store at `place`, for reading only; raises BadInput when there is none."""
    store = StoreReader(await _adapter(place, clock, write=False))
    try:
        yield store
    finally:
        await store.close()


async def _adapter(place: Place, clock: Clock, *, write: bool, archive: Path | None = None) -> Adapter:
    if isinstance(place, Path):
        from rucher.journal.sqlite.adapter import open_sqlite  # noqa: PLC0415 - a store needs one driver, never the other

        return await open_sqlite(place, clock, write=write, archive=archive)
    from rucher.journal.postgres.adapter import open_postgres  # noqa: PLC0415 - see above

    return await open_postgres(place, clock, write=write, archive=archive)
