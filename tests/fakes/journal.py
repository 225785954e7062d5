"""A journal in memory, for tests of what reads and appends to one."""

import asyncio
import json
from collections.abc import Sequence

from rucher.protocol.errors import Retryable
from rucher.protocol.events import Draft, Event, committed
from rucher.protocol.ports import Appended
from rucher.protocol.subjects import matches


class MemoryJournal:
    """Implements the port Journal. `full` makes appends raise Retryable, as a full disk does."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.full = False
        self._by_id: dict[str, Event] = {}
        self._waiting: list[asyncio.Future[None]] = []

    async def append(self, *drafts: Draft) -> tuple[Appended, ...]:
        await asyncio.sleep(0)
        if self.full:
            raise Retryable("the disk is full")
        for draft in drafts:
            json.dumps(draft.body, allow_nan=False).encode()
        return tuple(self.take(draft) for draft in drafts)

    async def read(self, after: int, limit: int, subject: str = "ev.>") -> Sequence[Event]:
        await asyncio.sleep(0)
        return [event for event in self.events[after:] if matches(subject, event.subject)][:limit]

    async def trace(self, trace_id: str) -> Sequence[Event]:
        await asyncio.sleep(0)
        return [event for event in self.events if event.trace_id == trace_id]

    async def event(self, event_id: str) -> Event | None:
        await asyncio.sleep(0)
        return self._by_id.get(event_id)

    async def grown(self, after: int) -> None:
        while len(self.events) <= after:
            growth: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(growth)
            await growth

    def of_type(self, kind: str) -> list[Event]:
        """All events of this type, in order."""
        return [event for event in self.events if event.type == kind]

    def take(self, draft: Draft) -> Appended:
        """Append one draft at once, even while full: what another writer got in before."""
        if draft.id in self._by_id:
            return Appended(self._by_id[draft.id], first=False)
        event = committed(draft, len(self.events) + 1, draft.occurred_at)
        self.events.append(event)
        self._by_id[event.id] = event
        for growth in self._waiting:
            if not growth.done():
                growth.set_result(None)
        self._waiting.clear()
        return Appended(event, first=True)
