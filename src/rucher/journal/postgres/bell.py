"""The doorbell between processes: NOTIFY after commits, LISTEN for those of others, and a look at the head every second.

A ring says only that something was committed, and may be lost: the look at the head finds what no ring announced. Nothing
here is ever waited for by a commit.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rucher.journal.postgres.link import ANSWER_S, DRIVER_ERRORS, Address
from rucher.protocol.backoff import waits
from rucher.protocol.errors import BadInput, Retryable
from rucher.protocol.ports import Clock

if TYPE_CHECKING:
    import asyncpg

POLL_S = 1.0
APART_S = 0.01
"""Seconds between two rings at least: commits that come closer together are announced as one."""


class Bell:
    """One connection, and the tasks that ring, listen and look; `heard` is called when another process may have committed."""

    def __init__(
        self, address: Address, clock: Clock, writer: int, revision: Callable[[], int], heard: Callable[[], None]
    ) -> None:
        """`revision` tells the newest revision of the journal that this process made itself."""
        self._address = address
        self._clock = clock
        self._name = str(writer)
        self._own_revision = revision
        self._heard = heard
        self._seen = revision()
        self._rung = asyncio.Event()
        self._db: asyncpg.Connection | None = None
        self._channel = ""
        self._alone = False
        """Whether nobody else listened a moment ago; whoever begins to listen rings once, so that it is heard of."""
        self._using = asyncio.Lock()

    def ring(self) -> None:
        """Tell the other processes, soon, that this one committed something."""
        self._rung.set()

    async def run_ringing(self) -> None:
        """Pass on rings until cancelled."""
        while True:
            await self._rung.wait()
            self._rung.clear()
            if self._alone:
                continue
            await self._ask(_RING, self._channel, self._name)
            await self._clock.sleep(APART_S)

    async def run_looking(self) -> None:
        """Listen and look, on a connection that is made anew when it is gone, until cancelled."""
        pauses = waits(POLL_S)
        while True:
            if self._db is None or self._db.is_closed():
                try:
                    await self._connect()
                    pauses = waits(POLL_S)
                except (Retryable, BadInput):  # the writer and the readers tell whoever asks something of the database
                    await self._clock.sleep(next(pauses))
                    continue
            found = await self._ask(_LOOK)
            if found is not None:
                self._alone = not found["listening"]
                self._look(found["revision"])
            await self._clock.sleep(POLL_S)

    def _look(self, revision: int) -> None:
        self._seen = max(self._seen, self._own_revision())
        if revision > self._seen:
            self._seen = revision
            self._heard()

    async def _connect(self) -> None:
        async with self._using:
            self._db = await self._address.listen()
            try:
                self._channel = "rucher_" + await self._db.fetchval("SELECT current_schema()", timeout=ANSWER_S)
                await self._db.add_listener(self._channel, self._on_ring)
                await self._db.fetchrow(_RING, self._channel, self._name, timeout=ANSWER_S)
            except DRIVER_ERRORS as error:
                self._db.terminate()
                raise self._address.away(error) from error
        self._heard()

    async def _ask(self, sql: str, *parameters: str) -> Any:
        async with self._using:
            if self._db is None or self._db.is_closed():
                return None
            try:
                return await self._db.fetchrow(sql, *parameters, timeout=ANSWER_S)
            except DRIVER_ERRORS:
                self._db.terminate()
                return None

    def _on_ring(self, _db: object, _pid: int, _channel: str, payload: object) -> None:
        if payload != self._name:
            self._alone = False
            self._heard()

    def close(self) -> None:
        """Let go of the connection; the tasks must have ended."""
        if self._db is not None:
            self._db.terminate()


_RING = "SELECT pg_notify($1, $2)"
_LOOK = """SELECT revision, EXISTS (
    SELECT 1 FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'rucher bell' AND pid <> pg_backend_pid()
) AS listening FROM journal_head"""
