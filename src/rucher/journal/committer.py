"""Group commit: many writers hand in small units, one thread commits all that wait in one transaction.

Called by the stores only. A unit that arrives while the thread is idle is committed at once; what arrives during a
commit forms the next batch. Each writer gets its own result or its own error, and never a success for something not committed.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rucher.protocol.errors import Retryable

U = TypeVar("U")
R = TypeVar("R")

MAX_WAITING = 10_000
"""Units that may wait at once; a writer beyond that is held back until the store has caught up."""
MAX_BATCH = 500


@dataclass(slots=True)
class _Ticket(Generic[U, R]):
    unit: U
    future: "asyncio.Future[R]"


class Committer(Generic[U, R]):
    """The one writer thread of a store.

    `apply` commits a batch in that thread and returns a result or an error for each unit; `committed` is then told them
    on the event loop, batch after batch in commit order, before any writer is.
    """

    def __init__(
        self,
        apply: Callable[[Sequence[U]], Sequence[R | Exception]],
        committed: Callable[[Sequence[R | Exception]], None],
        name: str,
    ) -> None:
        self._apply = apply
        self._committed = committed
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(MAX_WAITING)
        self._arriving: list[_Ticket[U, R]] = []
        self._waiting: list[_Ticket[U, R]] = []
        self._signal = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def submit(self, unit: U) -> R:
        """Return the unit's result once it is committed; raise its own error, with nothing of it kept."""
        async with self._room:
            if self._closing:
                raise Retryable("the store is closing; nothing was written")
            ticket = _Ticket[U, R](unit, self._loop.create_future())
            if not self._arriving:
                self._loop.call_soon(self._hand_over)
            self._arriving.append(ticket)
            return await ticket.future

    def _hand_over(self) -> None:
        with self._signal:
            self._waiting += self._arriving
            self._arriving.clear()
            self._signal.notify()

    async def close(self) -> None:
        """Commit what was handed in, then end the thread."""
        self._hand_over()
        with self._signal:
            self._closing = True
            self._signal.notify()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while batch := self._next_batch():
            try:
                outcomes: Sequence[R | Exception] = self._apply([ticket.unit for ticket in batch])
            except Exception as error:  # noqa: BLE001 - the thread must outlive any batch; each writer learns the error
                outcomes = [error] * len(batch)
            self._loop.call_soon_threadsafe(self._settle, batch, outcomes)

    def _next_batch(self) -> list[_Ticket[U, R]]:
        with self._signal:
            while not self._waiting and not self._closing:
                self._signal.wait()
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            return batch

    def _settle(self, batch: Sequence[_Ticket[U, R]], outcomes: Sequence[R | Exception]) -> None:
        self._committed(outcomes)
        for ticket, outcome in zip(batch, outcomes, strict=True):
            if ticket.future.cancelled():
                continue
            if isinstance(outcome, Exception):
                ticket.future.set_exception(outcome)
            else:
                ticket.future.set_result(outcome)
