"""REST for what an owner orders about a run: cancel, pause, resume, steer, answer, resolve, migrate, fork.

Part of the interface that `api.py` builds; each call is one order of `rucher.kernel.orders`, and decides nothing itself.
"""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from rucher.kernel.orders import Orders

Key = Annotated[str, Field(min_length=1, max_length=200)]


class _Order(BaseModel):
    """An order; given twice with the same key it is one order."""

    model_config = ConfigDict(extra="forbid")

    key: Key


class Cancel(_Order):
    """End the run and its children."""

    reason: str = ""


class Steer(_Order):
    """Tell the run something."""

    text: Annotated[str, Field(min_length=1)]


class Fork(_Order):
    """Begin a new run like this one up to before a step; `confirmed` once the owner has seen what it would repeat."""

    step: str
    text: str = ""
    confirmed: bool = False


class Answer(BaseModel):
    """The answer to a question, or with `approved` the decision about an approval."""

    model_config = ConfigDict(extra="forbid")

    step: str
    text: str = ""
    approved: bool | None = None


class Verdict(BaseModel):
    """The owner's word about a step that may or may not have happened."""

    model_config = ConfigDict(extra="forbid")

    step: str
    verdict: Annotated[str, Field(pattern="^(ran|not-run|failed)$")]


def run_orders(orders: Orders) -> APIRouter:
    """The calls about one run, under `/runs/{run_id}`."""
    router = APIRouter(prefix="/runs/{run_id}")

    @router.post("/cancel", status_code=204)
    async def cancel(run_id: str, order: Cancel) -> None:
        await orders.cancel(run_id, order.key, order.reason)

    @router.post("/pause", status_code=204)
    async def pause(run_id: str, order: _Order) -> None:
        await orders.pause(run_id, order.key)

    @router.post("/resume", status_code=204)
    async def resume(run_id: str, order: _Order) -> None:
        await orders.resume(run_id, order.key)

    @router.post("/steer", status_code=204)
    async def steer(run_id: str, order: Steer) -> None:
        await orders.steer(run_id, order.key, order.text)

    @router.post("/resolve", status_code=204)
    async def resolve(run_id: str, verdict: Verdict) -> None:
        await orders.resolve(run_id, verdict.step, verdict.verdict)

    @router.post("/answer", status_code=204)
    async def answer(run_id: str, given: Answer) -> None:
        outcome = {"text": given.text} if given.approved is None else {"approved": given.approved, "reason": given.text}
        await orders.answer(run_id, given.step, outcome)

    @router.post("/migrate", status_code=204)
    async def migrate(run_id: str) -> None:
        await orders.migrate(run_id)

    @router.post("/fork")
    async def fork(run_id: str, order: Fork) -> dict[str, Any]:
        preview = await orders.fork_preview(run_id, order.step)
        if preview.repeats and not order.confirmed:
            return asdict(preview) | {"run_id": "", "forked": False}
        return asdict(await orders.fork(run_id, order.step, order.key, order.text)) | {"forked": True}

    return router
