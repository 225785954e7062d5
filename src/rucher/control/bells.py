"""Wakes whoever waits for something to happen in a trace. One reader of the journal's end serves all who wait."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from rucher.protocol.backoff import surely
from rucher.protocol.errors import Retryable
from rucher.protocol.ports import Clock, Journal

BATCH = 1000


class Bells:
    """Rings for every trace that grows, as long as `run` runs."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._closed = False
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)

    @contextlib.contextmanager
    def watch(self, trace_id: str) -> Iterator[Callable[[float], Awaitable[None]]]:
        """A function that returns once the trace has grown since it was last called, or after so many seconds.

        It raises Retryable once the daemon stops.
        """
        bell = asyncio.Event()
        self._waiting[trace_id].add(bell)

        async def rung(seconds: float) -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(bell.wait(), seconds)
            bell.clear()
            if self._closed:
                raise Retryable("the daemon is stopping; what it accepted is kept and goes on at its next start")

        try:
            yield rung
        finally:
            self._waiting[trace_id].discard(bell)
            if not self._waiting[trace_id]:
                del self._waiting[trace_id]

    def close(self) -> None:
        """Send everybody who waits away."""
        self._closed = True
        for bells in self._waiting.values():
            for bell in bells:
                bell.set()

    async def run(self, after: int) -> None:
        """Read the journal from `after` on and ring, until cancelled."""
        while True:
            await self._journal.grown(after)
            events = await surely(self._clock, partial(self._journal.read, after, BATCH))
            for event in events:
                after = event.seq
                for bell in self._waiting.get(event.trace_id, ()):
                    bell.set()
