"""The journal's view of hops, in the shapes that the dispatcher and the notices ask for."""

from collections.abc import Sequence

from rucher.journal.store import StoreReader
from rucher.router.dispatch import Hop
from rucher.surfaces.notices import Untold


class StoredHops:
    """The dispatcher's HopStore and the notices' BadEnds over a journal store."""

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
                "again" if row["state"] == "made" and row["retries"] else row["state"],
                row["mode"],
                row["session_mode"],
                row["retries"],
            )
            for row in rows
        ]

    async def untold(self, limit: int) -> Sequence[Untold]:
        """Up to so many hops that ended badly and of which nobody was told, in order."""
        rows = await self._store.rows("hops.untold", limit)
        return [Untold(row["hop_id"], row["event_id"], row["dest"], row["state"], row["detail"]) for row in rows]
