"""The whole history of an instance: what was archived, read from its segments, and then what the store holds.

Called by commands that show or export what happened. It reads only, and does not check seals.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rucher.journal.rows import ID, SEQ, TRACE, Row, event_of
from rucher.journal.segments import read_segment
from rucher.journal.store import StoreReader
from rucher.journal.units import Archive
from rucher.protocol.events import Event

BATCH = 1000
Fetch = Callable[[int], Awaitable[list[Row]]]
"""The store's next rows above a `seq`, in order."""


async def archives(store: StoreReader) -> list[Archive]:
    """What was archived, oldest first."""
    return [Archive(**dict(row)) for row in await store.rows("archives.all")]


async def all_events(
    store: StoreReader, folder: Path, after: int = 0, fetch: Fetch | None = None
) -> AsyncIterator[Sequence[Event]]:
    """Every event with a `seq` above `after`, in order and in batches, also when the store lets go of some meanwhile.

    `folder` is that of the segments; raises Corrupt when one is missing or damaged. `fetch` may leave events of the store out.
    """
    while True:
        rows = await (store.stored("event.after", after, BATCH) if fetch is None else fetch(after))
        if not rows or rows[0][SEQ] > after + 1:
            segment = next(
                (each for each in await archives(store) if each.first_seq <= after + 1 <= each.last_seq), None
            )
            if segment is not None:
                async for batch in events_of(folder / segment.file, _behind(after)):
                    yield batch
                after = segment.last_seq
                continue
        if not rows:
            return
        yield [event_of(row) for row in rows]
        after = rows[-1][SEQ]


async def trace_starting(store: StoreReader, folder: Path, text: str) -> Sequence[str]:
    """Traces whose id begins so, or that of the event with this id; also of archived events, which may all be read through."""
    told = await store.rows("trace.starting_anywhere", text, text + "~", text, text + "~")
    if told:
        return [str(row["trace_id"]) for row in told]
    if event := await _archived_event(store, folder, text):
        return [event.trace_id]
    found: set[str] = set()
    for segment in await archives(store):
        async for batch in events_of(folder / segment.file, lambda row: bool(row[TRACE].startswith(text))):
            found.update(event.trace_id for event in batch)
    return sorted(found)


async def whole_trace(store: StoreReader, folder: Path, trace_id: str) -> Sequence[Event]:
    """All events of a trace, in order; of what was archived, the segments from its first event on are read through."""
    found: list[Event] = []
    begin = (await store.rows("trace.begin", trace_id, trace_id, trace_id))[0]["seq"]
    for segment in await archives(store):
        if begin is None or segment.last_seq >= begin:
            async for batch in events_of(folder / segment.file, lambda row: bool(row[TRACE] == trace_id)):
                found += batch
    return found + [event for event in await store.trace(trace_id) if not found or event.seq > found[-1].seq]


def _behind(after: int) -> Callable[[Sequence[Any]], bool]:
    return lambda row: bool(row[SEQ] > after)


async def _archived_event(store: StoreReader, folder: Path, event_id: str) -> Event | None:
    for row in await store.rows("archived.seq", event_id):
        for segment in await archives(store):
            if segment.first_seq <= row["seq"] <= segment.last_seq:
                async for batch in events_of(folder / segment.file, lambda row: bool(row[ID] == event_id)):
                    return batch[0]
    return None


async def events_of(path: Path, wanted: Callable[[Sequence[Any]], bool]) -> AsyncIterator[Sequence[Event]]:
    """The events of one segment whose rows are wanted, in order and in batches. Raises Corrupt."""
    rows = (await asyncio.to_thread(read_segment, path)).rows
    events = (event_of(row) for row in rows if wanted(row))
    while batch := await asyncio.to_thread(_next, events):
        yield batch


def _next(events: Iterator[Event]) -> list[Event]:
    return list(islice(events, BATCH))
