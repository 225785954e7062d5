"""Group commit: many writers hand in small units, one thread commits all that wait in one transaction.

Called by the SQLite adapter only. A unit that arrives while the thread is idle is committed at once; what arrives during a
commit forms the next batch. Each writer gets its own result or its own error, and never a success for something not committed.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, TypeVar

from rucher.protocol.errors import Retryable

U = TypeVar("U")
R = TypeVar("R")

MAX_WAITING = 10_000
"""Units that may wait at once; a writer beyond that is held back until the store has caught up."""
MAX_BATCH = 500


class Committer(Generic[U, R]):
    """The one writer thread of a store.

    `apply` commits a batch in that thread and returns a result or an error for each unit; `committed` is then told them
    on the event loop, batch after batch in commit order, before any writer is.
    """

    def __init__(
        self,
        apply: Callable[[Sequence[U]], Sequence[R | Exception]],
        committed: Callable[[Sequence[U], Sequence[R | Exception]], None],
        name: str,
    ) -> None:
        self._apply = apply
        self._committed = committed
        self._loop = asyncio.get_running_loop()
        self._held = 0
        self._room = asyncio.Event()
        self._arriving: list[tuple[U, asyncio.Future[R]]] = []
        self._handed: SimpleQueue[list[tuple[U, asyncio.Future[R]]]] = SimpleQueue()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def submit(self, unit: U) -> R:
        """Return the unit's result once it is committed; raise its own error, with nothing of it kept."""
        while self._held >= MAX_WAITING:
            self._room.clear()
            await self._room.wait()
        if self._closing:
            raise Retryable("the store is closing; nothing was written")
        self._held += 1
        future: asyncio.Future[R] = self._loop.create_future()
        if not self._arriving:
            self._loop.call_soon(self._hand_over)
        self._arriving.append((unit, future))
        return await future

    def _hand_over(self) -> None:
        """Hand over what arrived in this turn of the event loop; nothing when that was done already."""
        if self._arriving:
            self._handed.put(self._arriving)
            self._arriving = []

    async def close(self) -> None:
        """Commit what was handed in, then end the thread."""
        self._closing = True
        self._hand_over()
        self._handed.put([])
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        ending = False
        while not ending:
            waiting = self._handed.get()
            ending = not waiting
            while not self._handed.empty():
                more = self._handed.get()
                ending = ending or not more
                waiting += more
            for at in range(0, len(waiting), MAX_BATCH):
                self._commit(waiting[at : at + MAX_BATCH])

    def _commit(self, batch: Sequence[tuple[U, "asyncio.Future[R]"]]) -> None:
        try:
            outcomes: Sequence[R | Exception] = self._apply([unit for unit, _ in batch])
        except Exception as error:  # noqa: BLE001 - the thread must outlive any batch; each writer learns the error
            outcomes = [error] * len(batch)
        self._loop.call_soon_threadsafe(self._settle, batch, outcomes)

    def _settle(self, batch: Sequence[tuple[U, "asyncio.Future[R]"]], outcomes: Sequence[R | Exception]) -> None:
        self._held -= len(batch)
        self._room.set()
        self._committed([unit for unit, _ in batch], outcomes)
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if future.cancelled():
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
