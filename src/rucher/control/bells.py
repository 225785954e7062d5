"""Wakes whoever waits for something to happen in a trace. One reader of the journal's end serves all who wait."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rucher.protocol.backoff import surely
from rucher.protocol.ports import Clock, Journal

BATCH = 1000


class Bells:
    """Rings for every trace that grows, as long as `run` runs."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def watch(self, trace_id: str) -> Iterator[Callable[[], Awaitable[None]]]:
        """A function that returns once the trace has grown since it was last called, or since now."""
        bell = asyncio.Event()
        self._waiting[trace_id].add(bell)

        async def rung() -> None:
            await bell.wait()
            bell.clear()

        try:
            yield rung
        finally:
            self._waiting[trace_id].discard(bell)
            if not self._waiting[trace_id]:
                del self._waiting[trace_id]

    async def run(self, after: int) -> None:
        """Read the journal from `after` on and ring, until cancelled."""
        while True:
            await self._journal.grown(after)
            events = await surely(self._clock, partial(self._journal.read, after, BATCH))
            for event in events:
                after = event.seq
                for bell in self._waiting.get(event.trace_id, ()):
                    bell.set()
