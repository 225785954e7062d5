"""Reads an instance's journal for a command, whether its daemon runs or not, and finds what an id begins."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from rucher.cli.ownership import demand_own
from rucher.daemon.settings import find_instance, load_settings, store_place
from rucher.journal.history import trace_starting
from rucher.journal.store import StoreReader, read_store
from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import BadInput

R = TypeVar("R")
MOST_ROWS = 1_000_000
"""The most that one list shows."""
LAST_SEQ = 2**63 - 1
"""The greatest number that the journal can hold."""
_ID_CHARS = 26
_CONFUSED = str.maketrans("OIL", "011")


def read(given: Path | None, work: Callable[[StoreReader], Awaitable[R]]) -> R:
    """Do `work` with the journal of the instance that is meant; raises BadInput when there is none."""
    instance = find_instance(given)

    async def reading() -> R:
        async with read_store(store_place(instance, load_settings(instance)), SystemClock()) as store:
            await demand_own(instance, store)
            return await work(store)

    return asyncio.run(reading())


def spelled(given: str) -> str:
    """An id, or its beginning, as a person may type it, in its own letters; raises BadInput for no id at all."""
    text = given.strip().upper().translate(_CONFUSED)
    if not text.isalnum() or not text.isascii():
        raise BadInput(
            f"{given[:60]!r} is no id; ids are {_ID_CHARS} letters and digits, or as many of them as make it unique"
        )
    if len(text) > _ID_CHARS:
        raise BadInput(f"{given[:60]!r} ... is longer than an id; ids are {_ID_CHARS} letters and digits")
    return text


async def find_trace(store: StoreReader, given: str) -> str:
    """The id of the trace that begins so, or of the trace that the event with this id is in; raises BadInput."""
    text = spelled(given)
    traces = await store.traces_starting(text)
    if len(traces) == 1:
        return traces[0]
    if traces:
        raise BadInput(f"several traces begin with {text}; give more of the id")
    event = await store.event_anywhere(text)
    if event is None:
        raise BadInput(f"there is no trace and no event {text} in this journal; see `rucher events`")
    return event.trace_id


async def trace_of(store: StoreReader, archive: Path, given: str) -> str:
    """As `find_trace`, also among what was archived; `archive` is the folder of its segments."""
    try:
        return await find_trace(store, given)
    except BadInput:
        archived = await trace_starting(store, archive, spelled(given))
        if len(archived) != 1:
            raise
        return archived[0]


async def find_run(store: StoreReader, given: str) -> dict[str, Any]:
    """The row of the run whose id begins so; raises BadInput."""
    return await _starting(store, "run", given, "rucher runs")


async def find_hop(store: StoreReader, given: str) -> dict[str, Any]:
    """The row of the hop whose id begins so; raises BadInput."""
    return await _starting(store, "hop", given, "rucher hops list")


async def _starting(store: StoreReader, what: str, given: str, see: str) -> dict[str, Any]:
    text = spelled(given)
    rows = await store.rows(f"{what}.starting", text, text + "~")
    if len(rows) == 1:
        return dict(rows[0])
    if rows:
        raise BadInput(f"several {what}s begin with {text}; give more of the id")
    raise BadInput(f"there is no {what} {text} in this journal; see `{see}`")
