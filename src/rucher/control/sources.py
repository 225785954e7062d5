"""REST for what comes in at the door: each source with its counts, and all counts as metrics. Part of what `api.py` builds."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from rucher.control.tallies import UNKNOWN, Tallies
from rucher.surfaces.watching import SourceBook

OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def source_calls(book: SourceBook, tallies: Tallies, secrets: Callable[[str], str]) -> APIRouter:
    """`secrets` says in a word how it is with a source's secrets."""
    router = APIRouter()

    @router.get("/sources")
    async def sources() -> dict[str, Any]:
        rows = [
            {"name": source.name, "secret": secrets(source.name), **tallies.of(source.name)}
            for source in book.sources.by_name.values()
        ]
        return {"version": book.sources.version, "sources": rows, UNKNOWN: tallies.of(UNKNOWN)}

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(tallies.metrics(book.sources.by_name), media_type=OPEN_METRICS)

    return router
