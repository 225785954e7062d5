"""The journal's view of open hops, in the shape that the dispatcher asks for."""

from collections.abc import Sequence

from rucher.journal.store import StoreReader
from rucher.router.dispatch import Hop


class StoredHops:
    """The dispatcher's HopStore over a journal store."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store

    async def open_hops(self, after_seq: int) -> Sequence[Hop]:
        """All hops that have not ended and whose `seq` is above `after_seq`, in order."""
        rows = await self._store.rows("hops.open", after_seq)
        return [
            Hop(
                row["hop_id"],
                row["seq"],
                row["event_id"],
                row["rule_id"],
                row["dest"],
                row["state"],
                row["mode"],
                row["session_mode"],
            )
            for row in rows
        ]
