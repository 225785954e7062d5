"""REST `/api/v1`: send a message, wait for its outcome, give the owner's word about an uncertain step, ask for health.

Built by the daemon and served on a loopback port. Every call needs the instance's token: a fresh instance is closed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from rucher import __version__
from rucher.control.bells import Bells
from rucher.control.gate import Gate
from rucher.control.hops import HopOrders, hop_orders
from rucher.control.orders import run_orders
from rucher.control.outcomes import MessageOutcome, outcome, sessions_of
from rucher.control.problems import problem
from rucher.kernel.orders import Orders
from rucher.protocol.errors import BadInput, Denied, Retryable, RucherError
from rucher.protocol.events import DEFAULT_GROUP, Event
from rucher.protocol.ports import Appended, Journal


class MessageIn(BaseModel):
    """A message that the owner sends from the command line."""

    model_config = ConfigDict(extra="forbid")

    text: str
    agent: str | None = None
    group: str = DEFAULT_GROUP
    thread: str = ""
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Services:
    """What the interface calls; wired by the daemon."""

    instance: str
    token: str
    journal: Journal
    bells: Bells
    accept: Callable[[MessageIn], Awaitable[Appended]]
    orders: Orders
    hops: HopOrders
    trouble: Callable[[str], Awaitable[str]]
    """Why the session named cannot work just now; empty when it can."""
    more: Sequence[APIRouter] = ()
    """Further calls, below `/api/v1`."""


LONGEST_WAIT_S = 55.0
LOOK_AGAIN_S = 1.0
"""Seconds after which a waiting command looks whether the session has stopped, though nothing happened in the trace."""
_STATUS = {BadInput: 422, Denied: 403, Retryable: 503}


def build_app(services: Services) -> ASGIApp:
    """The application behind its gate; it holds no state of its own."""
    app = FastAPI(title="Rucher", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(RucherError)
    async def refuse(_request: Request, error: RucherError) -> JSONResponse:
        status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
        return problem(status, type(error).__name__, str(error))

    @app.exception_handler(RequestValidationError)
    async def misread(_request: Request, error: RequestValidationError) -> JSONResponse:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        return problem(422, "BadInput", f"{where}: {fault['msg']}")

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        detail = f"there is no {request.method} {request.url.path} here: {error.detail}; see docs/ARCHITECTURE.md"
        return problem(error.status_code, "BadInput", detail, error.headers)

    @app.post("/api/v1/messages", status_code=202)
    async def send(message: MessageIn) -> dict[str, Any]:
        appended = await services.accept(message)
        event = appended.event
        return {"event_id": event.id, "trace_id": event.trace_id, "seq": event.seq, "first": appended.first}

    @app.get("/api/v1/messages/{event_id}/outcome")
    async def wait(event_id: str, wait_s: Annotated[float, Query(ge=0)] = LONGEST_WAIT_S) -> dict[str, Any]:
        message = await services.journal.event(event_id)
        if message is None:
            raise BadInput(f"there is no event {event_id}; see `rucher events`")
        try:
            async with asyncio.timeout(min(wait_s, LONGEST_WAIT_S)):
                return asdict(await _outcome(services, message))
        except TimeoutError:
            return {"event_id": event_id, "trace_id": message.trace_id, "status": "pending", "answer": ""}

    for calls in (run_orders(services.orders), hop_orders(services.hops), *services.more):
        app.include_router(calls, prefix="/api/v1")

    @app.get("/api/v1/health")
    async def health() -> dict[str, str]:
        return {"instance": services.instance, "version": __version__, "state": "running"}

    return Gate(app, services.token)


async def _outcome(services: Services, message: Event) -> MessageOutcome:
    """How the message ended, once that is known, or that the session it waits in has stopped."""
    with services.bells.watch(message.trace_id) as rung:
        while True:
            trace = await services.journal.trace(message.trace_id)
            if found := outcome(trace, message.id):
                return found
            for session in sessions_of(trace, message):
                if reason := await services.trouble(session):
                    return MessageOutcome(message.id, message.trace_id, "stopped", reason)
            await rung(LOOK_AGAIN_S)
