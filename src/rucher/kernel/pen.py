"""`Pen`: writes a run's log, one unit after the other, each at the next place and under the fence of this acquisition."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rucher.journal.rows import RunHead, RunWrite
from rucher.kernel.records import Record
from rucher.protocol.errors import BadInput, Exhausted, Fenced
from rucher.protocol.events import Draft
from rucher.protocol.ports import Clock


class RunStore(Protocol):
    """What a run needs of a store."""

    async def write(self, write: RunWrite) -> None:
        """Commit what the owner of a run writes; raises Fenced, Exhausted, BadInput, Retryable."""
        ...

    async def rows(self, statement: str, *parameters: Any) -> list[Mapping[str, Any]]:
        """The rows of one named statement."""
        ...


class Pen:
    """Of one run, as long as this process owns it. `position` is where its next event will stand in its log."""

    def __init__(self, store: RunStore, clock: Clock, head: RunHead, position: int, fence: int) -> None:
        self.position = position
        self._store = store
        self._clock = clock
        self._head = head
        self._fence = fence
        self._writing = asyncio.Lock()
        self._held: list[Record] = []
        self._broken = False

    async def take(self, *records: Record) -> None:
        """Acquire the run: from this commit on, whoever held it before can write nothing. Raises Fenced when beaten to it."""
        self._fence = self.position
        await self.write(*records)

    def hold(self, *records: Record) -> None:
        """Keep these for the next write."""
        self._held += records

    async def write(self, *records: Record, beside: Sequence[Draft | RunWrite] = ()) -> None:
        """Commit what is held and these records, once everything before them is committed.

        After a failure that leaves the outcome open this owner writes no more, or a later unit could land alone. What was
        refused for itself (BadInput, Exhausted) surely is not there: what was held stays held and is written next time.
        """
        async with self._writing:
            if self._broken:
                raise Fenced(f"run {self._head.run_id} had a failed write; it must be opened again")
            held, self._held = self._held, []
            batch = [*held, *records]
            if not batch:
                return
            try:
                await self._store.write(
                    RunWrite(self._head, self.position, self._fence, self._clock.now(), batch, beside)
                )
            except (BadInput, Exhausted):
                self._held = held + self._held
                raise
            except BaseException:
                self._broken = True
                raise
            self.position += len(batch)
