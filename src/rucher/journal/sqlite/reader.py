"""Read-only connections to the file, one a thread."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from rucher.journal.sqlite.files import named_by_consequence, open_database, schema_of
from rucher.journal.statements import SCHEMA_VERSION, named, schema_fault
from rucher.protocol.errors import BadInput

R = TypeVar("R")
THREADS = 3
_QUERIES = named("queries.sql")


class SqliteReader:
    """One read-only connection; used by one thread."""

    def __init__(self, path: Path) -> None:
        self._version = 0
        self._db = open_database(path, "ro")
        version = schema_of(self._db)
        if version != SCHEMA_VERSION:
            self._db.close()
            raise BadInput(schema_fault(path, version))

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Mapping[str, Any]]:
        """All rows of one named statement of queries.sql."""
        return self._execute(_QUERIES[statement], parameters)

    def _execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[Mapping[str, Any]]:
        try:
            with closing(self._db.execute(sql, parameters)) as cursor:
                return cursor.fetchall()
        except sqlite3.DatabaseError as error:
            raise named_by_consequence(error) from error

    def changed(self) -> bool:
        """Whether anyone committed since this connection was last asked; True the first time."""
        before, self._version = self._version, self._execute("PRAGMA data_version")[0]["data_version"]
        return self._version != before

    def close(self) -> None:
        """Close the connection."""
        self._db.close()


class SqliteReaders:
    """A few readers and their threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._opened: list[SqliteReader] = []
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="journal-read")

    async def rows(self, statement: str, parameters: Sequence[Any]) -> list[Mapping[str, Any]]:
        """The rows of a named statement."""
        return await self._call(lambda reader: reader.rows(statement, parameters))

    async def changed(self) -> bool:
        """Whether anything was committed since this was last asked by the same thread: at worst True too often."""
        return await self._call(SqliteReader.changed)

    async def close(self) -> None:
        """Close all connections and end their threads."""
        await asyncio.to_thread(self._pool.shutdown)
        for reader in self._opened:
            reader.close()

    async def _call(self, work: Callable[[SqliteReader], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._work, work)

    def _work(self, work: Callable[[SqliteReader], R]) -> R:
        reader: SqliteReader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = SqliteReader(self._path)
            self._local.reader = reader
            self._opened.append(reader)
        return work(reader)
