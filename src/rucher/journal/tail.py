"""The newest events kept in memory, so that whoever follows the journal's end does not read back what was just written.

Filled by the store in commit order, on the event loop. It only ever holds an unbroken stretch that ends at the head.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

from rucher.protocol.events import Event

KEPT = 512
"""Events kept; with bodies of at most 1 MiB each this bounds the memory, which in practice is well under a megabyte."""


class Tail:
    """The last events up to `head`."""

    def __init__(self, head: int) -> None:
        self.head = head
        self._events: deque[Event] = deque()
        self._by_id: dict[str, Event] = {}

    def extend(self, events: Iterable[Event]) -> None:
        """Take newly committed events, in order."""
        for event in events:
            self.head = event.seq
            self._events.append(event)
            self._by_id[event.id] = event
            if len(self._events) > KEPT:
                del self._by_id[self._events.popleft().id]

    def after(self, seq: int, limit: int) -> Sequence[Event] | None:
        """Up to `limit` events above `seq`, or None when some of them are kept no more."""
        missing = self.head - seq
        if missing <= 0:
            return ()
        if missing > len(self._events):
            return None
        start = len(self._events) - missing
        return tuple(islice(self._events, start, start + limit))

    def event(self, event_id: str) -> Event | None:
        """The event with this id, if it is kept."""
        return self._by_id.get(event_id)
