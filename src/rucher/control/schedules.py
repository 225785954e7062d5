"""REST for schedules: pause, resume, fire now, propose, and the owner's word about proposals.

Part of the interface that `api.py` builds; each call is one order of `rucher.surfaces.schedules`, and decides nothing itself.
What they say and did is read from the file and the journal, by commands too while no daemon runs.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from rucher.surfaces.schedules.proposals import Proposals
from rucher.surfaces.schedules.runner import Schedules

Key = Annotated[str, Field(min_length=1, max_length=200)]


class Order(BaseModel):
    """An order; given twice with the same key it is one order."""

    model_config = ConfigDict(extra="forbid")

    key: Key


class Proposal(Order):
    """One `[[schedule]]` table as TOML, and why."""

    text: Annotated[str, Field(min_length=1)]
    why: str = ""


def schedule_orders(schedules: Schedules, proposals: Proposals, by: str) -> APIRouter:
    """The calls under `/schedules`; `by` is whoever holds the instance's token."""
    router = APIRouter(prefix="/schedules")

    @router.post("/proposals")
    async def propose(proposal: Proposal) -> Mapping[str, Any]:
        appended = await proposals.propose(proposal.text, proposal.why, by, proposal.key)
        return {"proposal": appended.event.seq, "first": appended.first}

    @router.post("/proposals/{number}/apply", status_code=204)
    async def apply(number: int) -> None:
        await proposals.apply(number, by)

    @router.post("/proposals/{number}/refuse", status_code=204)
    async def refuse(number: int) -> None:
        await proposals.refuse(number, by)

    @router.post("/{name}/pause", status_code=204)
    async def pause(name: str, order: Order) -> None:
        await schedules.pause(name, order.key, by)

    @router.post("/{name}/resume", status_code=204)
    async def resume(name: str, order: Order) -> None:
        await schedules.resume(name, order.key, by)

    @router.post("/{name}/run")
    async def fire_now(name: str, order: Order) -> Mapping[str, Any]:
        appended = await schedules.fire_now(name, order.key, by)
        return {"event_id": appended.event.id, "trace_id": appended.event.trace_id, "first": appended.first}

    return router
