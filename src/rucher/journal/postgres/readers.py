"""A few connections for reading, made when they are needed and made anew when they are gone."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from rucher.journal.postgres.folds import statements
from rucher.journal.postgres.link import ANSWER_S, DRIVER_ERRORS, Address, is_lost

CONNECTIONS = 3


class PostgresReaders:
    """Answers named statements of queries.sql, so many at a time; raises Retryable while the server is away."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[asyncpg.Connection] = []
        self._free = asyncio.Semaphore(CONNECTIONS)

    async def rows(self, statement: str, parameters: Sequence[Any]) -> list[Mapping[str, Any]]:
        """The rows of a named statement."""
        sql, _ = statements("queries.sql")[statement]
        return await self.fetch(sql, *parameters)

    async def fetch(self, sql: str, *parameters: Any) -> list[Mapping[str, Any]]:
        """The rows of any statement that only reads. A connection that broke while it was idle is replaced unseen."""
        async with self._free:
            while self._idle:
                db = self._idle.pop()
                try:
                    return await self._fetch(db, sql, parameters)
                except asyncpg.PostgresError as error:
                    if not is_lost(error, db):
                        raise self._address.named_by_consequence(error) from error
                except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError):
                    db.terminate()
            db = await self._address.read()
            try:
                return await self._fetch(db, sql, parameters)
            except DRIVER_ERRORS as error:
                raise self._address.named_by_consequence(error) from error

    async def _fetch(self, db: asyncpg.Connection, sql: str, parameters: Sequence[Any]) -> list[Mapping[str, Any]]:
        try:
            return list(await db.fetch(sql, *parameters, timeout=ANSWER_S))
        except asyncio.CancelledError:
            db.terminate()
            raise
        finally:
            if not db.is_closed():
                self._idle.append(db)

    async def close(self) -> None:
        """Close all connections."""
        for db in self._idle:
            await db.close(timeout=ANSWER_S)
        self._idle.clear()
