"""Group commit on the event loop: many writers hand in small units, one task commits all that wait together.

Used by the adapter. A unit that arrives while nothing is being committed is committed at once; what arrives during a commit
forms the next batch, but for many writers, who go in two halves: while the server is busy with the one, the other half has its
answers and says what comes next. Each writer gets its own result or its own error.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from rucher.journal.postgres.batch import Outcome
from rucher.journal.rows import BODY
from rucher.journal.units import Rows, Unit
from rucher.protocol.errors import Retryable, Uncertain

MAX_WAITING = 10_000
"""Units that may wait at once; a writer beyond that is held back until the store has caught up."""
MAX_BATCH = 500
UNDIVIDED = 8
"""So many units go together, as a commit costs more than they do."""
MAX_BATCH_CHARS = 4 << 20
"""Once the bodies of a batch are longer than this, no further unit joins it."""
_CLOSING_S = 15.0


class Queue:
    """Units that wait to be committed, and the futures of those who wait for them."""

    def __init__(self, committed: Callable[[Sequence[Unit], Sequence[Outcome | Exception]], None]) -> None:
        """`committed` is told what became of each batch before any of its writers is."""
        self._committed = committed
        self._waiting: deque[tuple[Unit, asyncio.Future[Outcome]]] = deque()
        self._sent: Sequence[tuple[Unit, asyncio.Future[Outcome]]] = ()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = asyncio.Event()
        self._closing = False
        self._answered = 0
        """How many were in the batch before: its writers are about to come back."""

    async def submit(self, unit: Unit) -> Outcome:
        """Return the unit's result once it is committed; raise its own error, with nothing of it kept."""
        while len(self._waiting) >= MAX_WAITING:
            self._room.clear()
            await self._room.wait()
        if self._closing:
            raise Retryable("the store is closing; nothing was written")
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((unit, future))
        self._arrived.set()
        return await future

    async def run(self, apply: Callable[[Sequence[Unit]], Awaitable[Sequence[Outcome | Exception]]]) -> None:
        """Commit what arrives, a batch at a time, by `apply`, until the queue is closed and empty."""
        while self._waiting or not self._closing:
            if not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            self._sent = self._next_batch()
            self._room.set()
            units = [unit for unit, _ in self._sent]
            outcomes = await apply(units)
            self._committed(units, outcomes)
            _settle(self._sent, outcomes)
            self._answered, self._sent = len(self._sent), ()
        self._ended.set()

    def _next_batch(self) -> Sequence[tuple[Unit, "asyncio.Future[Outcome]"]]:
        batch: list[tuple[Unit, asyncio.Future[Outcome]]] = []
        length = 0
        half = -(-(len(self._waiting) + self._answered) // 2)
        most = min(max(half, UNDIVIDED), MAX_BATCH)
        while self._waiting and len(batch) < most and length < MAX_BATCH_CHARS:
            unit, future = self._waiting.popleft()
            batch.append((unit, future))
            if isinstance(unit, Rows):
                length += sum(len(row[BODY]) for row in unit.rows)
        return batch

    def refuse_waiting(self, error: Exception) -> None:
        """Fail every unit that was not sent yet."""
        refused = list(self._waiting)
        self._waiting.clear()
        self._room.set()
        _settle(refused, [error] * len(refused))

    async def close(self) -> None:
        """Commit what was handed in; what the database does not confirm in time is left uncertain."""
        self._closing = True
        self._arrived.set()
        try:
            async with asyncio.timeout(_CLOSING_S):
                await self._ended.wait()
        except TimeoutError:
            self.refuse_waiting(Retryable("the store is closing and PostgreSQL is away; nothing was written"))
            unknown = Uncertain(
                "PostgreSQL went away while this was being written, and Rucher was stopped before it was back"
            )
            _settle(self._sent, [unknown] * len(self._sent))


def _settle(waiters: Sequence[tuple[Unit, "asyncio.Future[Outcome]"]], outcomes: Sequence[Outcome | Exception]) -> None:
    for (_, future), outcome in zip(waiters, outcomes, strict=True):
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
