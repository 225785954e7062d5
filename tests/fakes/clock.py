"""Time that passes only when a test says so, and the polling that waits for real work to settle."""

import asyncio
import heapq
import itertools
import time
from collections.abc import Awaitable, Callable

_DEADLINE_S = 10.0


class ManualClock:
    """Implements the port Clock; sleepers wake when `advance` reaches them."""

    def __init__(self, now_us: int = 1_800_000_000_000_000) -> None:
        self._start_us = now_us
        self._elapsed_us = 0
        self._order = itertools.count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self.asked: list[float] = []
        """Every duration that was slept for, in seconds."""

    def now(self) -> int:
        return self._start_us + self._elapsed_us

    def monotonic(self) -> float:
        return self._elapsed_us / 1e6

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed_us + round(seconds * 1e6), next(self._order), woken))
        await woken

    @property
    def sleeping(self) -> int:
        """How many sleep now."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    def jump(self, seconds: float) -> None:
        """Set the wall clock, forth or back; no time passes."""
        self._start_us += round(seconds * 1e6)

    def advance(self, seconds: float) -> None:
        """Let time pass, and wake everyone whose time has come."""
        self._elapsed_us += round(seconds * 1e6)
        while self._sleepers and self._sleepers[0][0] <= self._elapsed_us:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)


async def until(holds: Callable[[], bool | Awaitable[bool]], what: str = "the condition") -> None:
    """Return once `holds()`; fail the test when it does not within some seconds."""
    deadline = time.monotonic() + _DEADLINE_S
    while not (await held if isinstance(held := holds(), Awaitable) else held):
        assert time.monotonic() < deadline, f"{what} did not come true"
        await asyncio.sleep(0.001)


async def settled(turns: int = 50) -> None:
    """Let every task that can go on go on, for so many turns of the loop."""
    for _ in range(turns):
        await asyncio.sleep(0)
