"""`SqliteStore`: the Adapter port over one SQLite file."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rucher.journal.committer import Committer
from rucher.journal.sqlite.files import Connect, connect
from rucher.journal.sqlite.reader import SqliteReaders
from rucher.journal.sqlite.writer import Outcome, SqliteWriter
from rucher.journal.units import Listener, Unit, news
from rucher.protocol.errors import BadInput
from rucher.protocol.ports import Clock


class SqliteStore:
    """One file; `writer` is None in a store that only reads."""

    def __init__(self, path: Path, writer: SqliteWriter | None) -> None:
        self._readers = SqliteReaders(path)
        self._writer = writer
        self._listener: Listener | None = None
        self.head = writer.head if writer else 0
        self._committer: Committer[Unit, Outcome] | None = (
            Committer(writer.apply, self._committed, "journal-write") if writer else None
        )

    def listen(self, listener: Listener) -> None:
        """Tell `listener` of every commit from now on."""
        self._listener = listener

    async def commit(self, unit: Unit) -> Any:
        """Commit the unit; see the Adapter port."""
        if self._committer is None:
            raise BadInput("this store was opened for reading only")
        return await self._committer.submit(unit)

    async def rows(self, statement: str, parameters: Sequence[Any]) -> list[Mapping[str, Any]]:
        """The rows of a named statement."""
        return await self._readers.rows(statement, parameters)

    async def changed(self) -> bool:
        """Whether anything may have been committed since this was last asked."""
        return await self._readers.changed()

    async def rebuild(self) -> int:
        """Empty every view and fold it again; nothing else may be written meanwhile."""
        if self._writer is None:
            raise BadInput("this store was opened for reading only")
        return await asyncio.to_thread(self._writer.rebuild)

    async def load(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows of another store; see the Adapter port."""
        if self._writer is None:
            raise BadInput("this store was opened for reading only")
        await asyncio.to_thread(self._writer.load, table, rows)

    async def be_sole(self) -> None:
        """A file is on one machine, where the instance's lock says who is the daemon."""

    async def stay_sole(self) -> None:
        """Nothing is held."""

    async def close(self) -> None:
        """Commit what was handed in, then close everything."""
        if self._committer is not None:
            await self._committer.close()
        await self._readers.close()
        if self._writer is not None:
            await asyncio.to_thread(self._writer.close)

    def _committed(self, units: Sequence[Unit], outcomes: Sequence[Outcome | Exception]) -> None:
        if self._listener is None:
            return
        rows, folded = news(units, outcomes)
        self._listener.committed(rows, folded=folded)


async def open_sqlite(
    path: Path, clock: Clock, *, write: bool, connecting: Connect = connect, archive: Path | None = None
) -> SqliteStore:
    """The store at `path`, made or migrated when it is to be written; raises BadInput, Corrupt or Retryable."""
    if write:
        return SqliteStore(path, await asyncio.to_thread(SqliteWriter, path, clock, connecting, archive))
    if not await asyncio.to_thread(path.is_file):
        raise BadInput(f"there is no journal at {path} yet; start the daemon with `rucher up`")
    return SqliteStore(path, None)
