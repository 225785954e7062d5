"""`PostgresAdapter`: the Adapter port over a PostgreSQL database that any number of processes write."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from typing_extensions import override

from rucher.journal.postgres import schema
from rucher.journal.postgres.batch import Outcome
from rucher.journal.postgres.bell import Bell
from rucher.journal.postgres.link import ANSWER_S, DRIVER_ERRORS, Address
from rucher.journal.postgres.loading import load
from rucher.journal.postgres.queue import Queue
from rucher.journal.postgres.readers import PostgresReaders
from rucher.journal.postgres.sole import Sole
from rucher.journal.postgres.writer import PostgresWriter
from rucher.journal.units import Archive, Listener, Unit, news
from rucher.protocol.errors import BadInput, RucherError
from rucher.protocol.ports import Clock


class PostgresAdapter:
    """One database, for reading only."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._readers = PostgresReaders(address)
        self._listener: Listener | None = None
        self._revision = -1
        self.head = 0

    def listen(self, listener: Listener) -> None:
        """Tell `listener` of every commit from now on."""
        self._listener = listener

    async def commit(self, unit: Unit) -> Any:  # noqa: ARG002 - the port's
        """Refuse; see `PostgresWriting`."""
        raise BadInput("this store was opened for reading only")

    async def rows(self, statement: str, parameters: Sequence[Any]) -> list[Mapping[str, Any]]:
        """The rows of a named statement."""
        return await self._readers.rows(statement, parameters)

    async def changed(self) -> bool:
        """Whether anything was committed since this was last asked; True the first time."""
        before = self._revision
        (row,) = await self._readers.fetch("SELECT revision FROM journal_head")
        self._revision = row["revision"]
        return self._revision != before

    async def rebuild(self) -> int:
        """Refuse; see `PostgresWriting`."""
        raise BadInput("this store was opened for reading only")

    async def load(self, table: str, rows: Sequence[Sequence[Any]]) -> None:  # noqa: ARG002 - the port's
        """Refuse; see `PostgresWriting`."""
        raise BadInput("this store was opened for reading only")

    async def be_sole(self) -> None:
        """Refuse; see `PostgresWriting`."""
        raise BadInput("this store was opened for reading only")

    async def stay_sole(self) -> None:
        """Nothing is held."""

    async def close(self) -> None:
        """Close all connections."""
        await self._readers.close()


class PostgresWriting(PostgresAdapter):
    """One database, for writing too."""

    def __init__(self, address: Address, clock: Clock, archive: Path | None) -> None:
        super().__init__(address)
        self._archive = archive
        self._queue = Queue(self._committed)
        self._writer = PostgresWriter(address, clock, self._queue.refuse_waiting)
        self._clock = clock
        self._sole = Sole(address, clock, lambda: self._writer.writer)
        self._tasks = asyncio.TaskGroup()

    @override
    async def be_sole(self) -> None:
        """Be the one daemon of this store; see the Adapter port."""
        await self._sole.take()

    @override
    async def stay_sole(self) -> None:
        """Hold on to it; see the Adapter port."""
        await self._sole.stay()

    async def open(self) -> None:
        """Make or migrate what is missing, and begin; raises BadInput, Corrupt or Retryable."""
        db = await self._address.write()
        try:
            await schema.migrate(db, self._address)
            await schema.make_views(db, self._archive)
            await self._writer.open(db)
        except BaseException as error:
            db.terminate()
            if isinstance(error, Exception):
                raise self._address.named_by_consequence(error) from error
            raise
        self.head = self._writer.head
        self._bell = Bell(self._address, self._clock, self._writer.writer, lambda: self._writer.revision, self._heard)
        await self._tasks.__aenter__()
        self._committing = self._tasks.create_task(self._queue.run(self._writer.apply))
        self._ringing = [
            self._tasks.create_task(self._bell.run_looking()),
            self._tasks.create_task(self._bell.run_ringing()),
        ]

    @override
    async def commit(self, unit: Unit) -> Any:
        """Commit the unit; see the Adapter port. A month whose last events were archived by it leaves the database."""
        outcome = await self._queue.submit(unit)
        if isinstance(unit, Archive):
            await self._tidy()
        return outcome

    async def _tidy(self) -> None:
        """Drop what is empty now. What hinders it is no fault of the archive, which is committed: the next one tries again."""
        with suppress(RucherError, *DRIVER_ERRORS):
            async with asyncio.timeout(ANSWER_S):
                db = await self._address.write()
                try:
                    await schema.drop_empty_partitions(db, self._clock.now())
                finally:
                    db.terminate()

    @override
    async def rebuild(self) -> int:
        """Empty every view and fold it again; commits of all processes wait meanwhile."""
        db = await self._address.write()
        try:
            return await schema.rebuild(db, self._archive)
        except Exception as error:
            raise self._address.named_by_consequence(error) from error
        finally:
            db.terminate()

    @override
    async def load(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows of another store; see the Adapter port."""
        db = await self._address.write()
        try:
            await load(db, table, rows)
        except Exception as error:
            raise self._address.named_by_consequence(error) from error
        finally:
            db.terminate()

    @override
    async def close(self) -> None:
        """Commit what was handed in, then close all connections."""
        await self._queue.close()
        for task in (*self._ringing, self._committing):
            task.cancel()
        await self._tasks.__aexit__(None, None, None)
        self._bell.close()
        self._sole.close()
        await self._writer.close()
        await super().close()

    def _heard(self) -> None:
        if self._listener is not None:
            self._listener.rung()

    def _committed(self, units: Sequence[Unit], outcomes: Sequence[Outcome | Exception]) -> None:
        rows, folded = news(units, outcomes)
        if not all(isinstance(outcome, Exception) for outcome in outcomes):
            self._bell.ring()
        if self._listener is not None and (rows or folded):
            self._listener.committed(rows, folded=folded)
        if self._writer.others:
            self._writer.others = False
            self._heard()


async def open_postgres(url: str, clock: Clock, *, write: bool, archive: Path | None = None) -> PostgresAdapter:
    """The database at `url`, made ready when it is to be written; `archive` is the folder of its segments.

    Raises BadInput when the URL, the user or what is in the database cannot be used, Retryable when no server answers. Must be
    closed by the task that opened it.
    """
    address = Address(url)
    if write:
        adapter = PostgresWriting(address, clock, archive)
        await adapter.open()
        return adapter
    db = await address.read()
    try:
        await schema.demand_schema(db, address)
    finally:
        db.terminate()
    return PostgresAdapter(address)
