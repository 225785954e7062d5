"""The right to be a store's one daemon: a lock that the server keeps as long as one connection lives.

Workers may be many; who routes, delivers and seals is one. The lock says who, so that a second daemon, on whatever machine and
from whatever copy of the instance's folder, is refused with the holder's name. Whoever takes it over from a daemon that was cut
off or stood still deposes that one: its row in `journal_writers` is marked, and from that commit on it can write nothing.
"""

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from rucher.journal.postgres.batch import DEPOSED
from rucher.journal.postgres.link import ANSWER_S, DRIVER_ERRORS, Address
from rucher.journal.units import DAEMON
from rucher.protocol.backoff import waits
from rucher.protocol.errors import BadInput, Corrupt, Retryable
from rucher.protocol.ports import Clock

if TYPE_CHECKING:
    import asyncpg

LOOK_S = 5.0
PATIENCE_S = 3.0
"""How long a killed daemon's connection may take to be noticed by the server."""
_KEY = "hashtextextended(current_schema() || ' rucher daemon', 0)"
_NAME_CHARS = 63


class Sole:
    """Of one process; it keeps a connection of its own. `writer` tells under which number the process writes."""

    def __init__(self, address: Address, clock: Clock, writer: Callable[[], int]) -> None:
        self._address = address
        self._writer = writer
        self._clock = clock
        self._db: asyncpg.Connection | None = None

    async def take(self) -> None:
        """Become the store's daemon; raises BadInput naming who is it already, or Retryable."""
        until = self._clock.monotonic() + PATIENCE_S
        for wait in waits(longest=0.5):
            holder = await self._try()
            if not holder:
                return
            if self._clock.monotonic() >= until:
                raise BadInput(f"a daemon works on {self._address} already: {holder}; stop that one first")
            await self._clock.sleep(wait)

    async def stay(self) -> None:
        """Hold on to it until cancelled; raises Corrupt once another daemon has it."""
        while True:
            await self._clock.sleep(LOOK_S)
            try:
                if self._db is None or self._db.is_closed():
                    if holder := await self._try():
                        raise Corrupt(
                            f"another daemon took {self._address} over while it was away: {holder}; this one stops"
                        )
                else:
                    await self._db.execute("SELECT 1", timeout=ANSWER_S)
            except (*DRIVER_ERRORS, Retryable):
                self.close()

    def close(self) -> None:
        """Let go of it."""
        if self._db is not None:
            self._db.terminate()
            self._db = None

    async def _try(self) -> str:
        """Who has the lock, if it is somebody else."""
        name = f"rucher daemon, pid {os.getpid()} on {socket.gethostname()}"[:_NAME_CHARS]
        db = self._db = await self._address.write(name)
        try:
            if await db.fetchval(f"SELECT pg_try_advisory_lock({_KEY})", timeout=ANSWER_S):
                await self._depose_former(db)
                return ""
            holder = await db.fetchval(_HOLDER, timeout=ANSWER_S)
        except DRIVER_ERRORS as error:
            self.close()
            raise self._address.away(error) from error
        self.close()
        return str(holder or "another process")

    async def _depose_former(self, db: "asyncpg.Connection") -> None:
        """The lock is ours: nobody who had it may write any more. A transaction of his that is open is waited for."""
        await db.execute(_DEPOSE, self._writer(), timeout=ANSWER_S)
        await db.execute(_SUCCEED, str(self._writer()), timeout=ANSWER_S)


_DEPOSE = f"""UPDATE journal_writers SET epoch = {DEPOSED}
WHERE writer = (SELECT value::BIGINT FROM meta WHERE key = '{DAEMON}') AND writer <> $1"""  # noqa: S608 - constants
_SUCCEED = f"""INSERT INTO meta (key, value) VALUES ('{DAEMON}', $1)
ON CONFLICT (key) DO UPDATE SET value = excluded.value"""  # noqa: S608 - as above
_HOLDER = f"""SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid)
WHERE locktype = 'advisory' AND granted AND objsubid = 1
  AND (classid::bigint << 32 | objid::bigint) = {_KEY}"""  # noqa: S608 - constant
