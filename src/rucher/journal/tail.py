"""The newest events kept in memory, so that whoever follows the journal's end does not read back what was just written.

Filled by the store in commit order, on the event loop. It only ever holds an unbroken stretch that ends at the head.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice

from rucher.journal.rows import ID, RUN_ID, SEQ, Row, event_of
from rucher.protocol.events import Event

KEPT = 512
"""Events kept; with bodies of at most 1 MiB each this bounds the memory, which in practice is well under a megabyte."""


class Tail:
    """The last events up to `head`, made from their rows when somebody asks."""

    def __init__(self, head: int) -> None:
        self.head = head
        self._kept: deque[Row | Event] = deque()
        self._by_id: dict[str, Row] = {}

    def extend(self, rows: Sequence[Row]) -> None:
        """Take newly committed rows, in order; after a gap, only what comes behind it is kept.

        Those up to the head are passed over: somebody else's number behind them was heard of before the answer to their commit.
        """
        for row in rows:
            if row[SEQ] <= self.head:
                continue
            if row[SEQ] > self.head + 1:
                self._kept.clear()
                self._by_id.clear()
            self.head = row[SEQ]
            self._kept.append(row)
            if row[RUN_ID] is None:
                self._by_id[row[ID]] = row
            if len(self._kept) > KEPT:
                gone = self._kept.popleft()
                self._by_id.pop(gone.id if isinstance(gone, Event) else gone[ID], None)

    def skip_to(self, head: int) -> None:
        """Somebody else wrote up to `head`: what is kept no longer reaches the end."""
        if head > self.head:
            self._kept.clear()
            self._by_id.clear()
            self.head = head

    def after(self, seq: int, limit: int) -> Sequence[Event] | None:
        """Up to `limit` events above `seq`, or None when some of them are kept no more."""
        missing = self.head - seq
        if missing <= 0:
            return ()
        if missing > len(self._kept):
            return None
        start = len(self._kept) - missing
        found = []
        for at, kept in enumerate(islice(self._kept, start, start + limit), start):
            event = kept if isinstance(kept, Event) else event_of(kept)
            if event is not kept:
                self._kept[at] = event
            found.append(event)
        return found

    def event(self, event_id: str) -> Event | None:
        """The event with this id, if it is kept and belongs to no run."""
        row = self._by_id.get(event_id)
        return event_of(row) if row else None
