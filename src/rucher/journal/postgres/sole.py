"""The right to be a store's one daemon: a lock that the server keeps as long as one connection lives.

Workers may be many; who routes, delivers and seals is one. The lock says who, so that a second daemon, on whatever machine and
from whatever copy of the instance's folder, is refused with the holder's name.
"""

import os
import socket
from typing import TYPE_CHECKING

from rucher.journal.postgres.link import ANSWER_S, DRIVER_ERRORS, Address
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
    """Of one process; it keeps a connection of its own."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self._address = address
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
        self._db = await self._address.write(name)
        try:
            if await self._db.fetchval(f"SELECT pg_try_advisory_lock({_KEY})", timeout=ANSWER_S):
                return ""
            holder = await self._db.fetchval(_HOLDER, timeout=ANSWER_S)
        except DRIVER_ERRORS as error:
            self.close()
            raise self._address.away(error) from error
        self.close()
        return str(holder or "another process")


_HOLDER = f"""SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid)
WHERE locktype = 'advisory' AND granted AND objsubid = 1
  AND (classid::bigint << 32 | objid::bigint) = {_KEY}"""  # noqa: S608 - constant
