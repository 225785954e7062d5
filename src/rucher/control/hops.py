"""The owner's word about hops that ended badly: try again, drop, or say what became of an uncertain part.

Each call is one event in the hop's own trace; the dispatcher reads it and acts. Nothing is sent from here.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from rucher.journal.store import JournalStore
from rucher.protocol.errors import BadInput
from rucher.protocol.events import control_event
from rucher.protocol.ports import Clock

OPEN = frozenset({"made", "acknowledged", "sending"})
"""The states of a hop that has not ended."""
DELIVERED, NOT_DELIVERED = "delivered", "not-delivered"
VERDICTS = (DELIVERED, NOT_DELIVERED)
"""What an owner may say of an uncertain part; the second has it sent again."""

Row = Mapping[str, Any]


class HopOrders:
    """Takes the word of `principal`, and records it; raises BadInput, with nothing changed, when it does not apply."""

    def __init__(self, store: JournalStore, clock: Clock, principal: str) -> None:
        self._store = store
        self._clock = clock
        self._principal = principal

    async def retry(self, hop_id: str) -> None:
        """Make a hop that failed, or was dropped, open again; what was delivered of it stays so."""
        row = await self._ended(hop_id)
        if row["state"] == "uncertain":
            raise BadInput(
                f"hop {hop_id} may or may not have been delivered; say what is true first: "
                f"rucher deliveries resolve {hop_id} delivered | not-delivered"
            )
        await self._say("hop.retried", row, row["retries"] + 1, {"number": row["retries"] + 1})

    async def drop(self, hop_id: str, reason: str) -> None:
        """Have done with a hop that ended badly: it stays in the journal, and is no longer shown as a dead letter."""
        row = await self._ended(hop_id)
        if row["state"] == "dropped":
            return
        await self._say("hop.dropped", row, row["retries"], {"reason": reason})

    async def resolve(self, hop_id: str, part: int | None, verdict: str) -> int:
        """Say what became of an uncertain part, which may be left out when there is one; returns its number."""
        row = await self._hop(hop_id)
        parts = await self._store.rows("deliveries.of_hop", hop_id)
        asked = [each for each in parts if each["state"] == "uncertain" and part in (None, each["part"])]
        if not asked:
            which = f"part {part} of hop {hop_id}" if part is not None else f"hop {hop_id}"
            raise BadInput(f"{which} is not uncertain; see `rucher deliveries list --uncertain`")
        found = asked[0]
        body = {"part": found["part"], "parts": found["parts"], "verdict": verdict, "number": row["retries"] + 1}
        await self._say("delivery.resolved", row, f"{found['part']}:{row['retries'] + 1}", body)
        return int(found["part"])

    async def _ended(self, hop_id: str) -> Row:
        row = await self._hop(hop_id)
        if row["state"] in OPEN:
            raise BadInput(
                f"hop {hop_id} has not ended ({row['state']}), and goes on by itself; see `rucher hops show {hop_id}`"
            )
        if row["state"] in ("done", "delivered"):
            raise BadInput(f"hop {hop_id} ended well ({row['state']}); there is nothing to do")
        return row

    async def _hop(self, hop_id: str) -> Row:
        rows = await self._store.rows("hop.get", hop_id)
        if not rows:
            raise BadInput(f"there is no hop {hop_id}; see `rucher hops list`")
        return rows[0]

    async def _say(self, kind: str, row: Row, key: object, body: Mapping[str, Any]) -> None:
        made = await self._store.event(row["hop_id"])
        if made is None:
            raise BadInput(f"hop {row['hop_id']} lies in the archive; its message can only be sent anew")
        draft = control_event(
            tenant=made.tenant, part="owner", kind=kind, key=f"{row['hop_id']}:{key}", trace_id=row["trace_id"],
            parent_id=row["hop_id"], occurred_at=self._clock.now(),
            body={"hop": row["hop_id"], "by": self._principal, **body},
        )  # fmt: skip
        await self._store.append(draft)


class Drop(BaseModel):
    """Why a dead letter is dropped."""

    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, Field(max_length=500)] = ""


class Verdict(BaseModel):
    """The owner's word about a part that may or may not have been delivered; no part: the one that is uncertain."""

    model_config = ConfigDict(extra="forbid")

    part: Annotated[int, Field(ge=1)] | None = None
    verdict: Annotated[str, Field(pattern="^(delivered|not-delivered)$")]


def hop_orders(orders: HopOrders) -> APIRouter:
    """The calls about one hop, under `/hops/{hop_id}`."""
    router = APIRouter(prefix="/hops/{hop_id}")

    @router.post("/retry", status_code=204)
    async def retry(hop_id: str) -> None:
        await orders.retry(hop_id)

    @router.post("/drop", status_code=204)
    async def drop(hop_id: str, order: Drop) -> None:
        await orders.drop(hop_id, order.reason)

    @router.post("/resolve")
    async def resolve(hop_id: str, given: Verdict) -> dict[str, int]:
        return {"part": await orders.resolve(hop_id, given.part, given.verdict)}

    return router
