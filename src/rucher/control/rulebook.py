"""REST for proposals to change the rules: note one, apply one, refuse one.

Part of the interface that `api.py` builds; each call is one of `rucher.router.proposals`, and decides nothing itself.
"""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from rucher.router.proposals import Proposals


class Proposed(BaseModel):
    """A text of the rules that is proposed; given twice with the same key it is one proposal."""

    model_config = ConfigDict(extra="forbid")

    key: Annotated[str, Field(min_length=1, max_length=200)]
    text: str
    why: Annotated[str, Field(max_length=2000)] = ""


class Refusal(BaseModel):
    """Why a proposal is not wanted."""

    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, Field(max_length=2000)] = ""


def rule_proposals(proposals: Proposals, owner: str) -> APIRouter:
    """The calls about proposals, under `/rules/proposals`; who has the instance's token is its `owner` (a principal)."""
    router = APIRouter(prefix="/rules/proposals")

    @router.post("", status_code=201)
    async def propose(given: Proposed) -> dict[str, Any]:
        event = await proposals.propose(given.text, owner, given.why, given.key)
        return {"proposal": event.id, "base": event.body["base"], "diff": event.body["diff"]}

    @router.post("/{proposal_id}/apply", status_code=204)
    async def apply(proposal_id: str) -> None:
        await proposals.apply(proposal_id, owner)

    @router.post("/{proposal_id}/refuse", status_code=204)
    async def refuse(proposal_id: str, given: Refusal) -> None:
        await proposals.refuse(proposal_id, owner, given.reason)

    return router
