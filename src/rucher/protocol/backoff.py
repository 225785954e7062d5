"""Trying again what may work later, ever more slowly. Used by everything that must outlive a store that is away."""

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from rucher.protocol.errors import Retryable
from rucher.protocol.ports import Clock

T = TypeVar("T")
FIRST_S = 0.1
LONGEST_S = 30.0


def waits(first: float = FIRST_S, longest: float = LONGEST_S) -> Iterator[float]:
    """Seconds to wait before each further attempt: doubling from `first`, never more than `longest`."""
    wait = first
    while True:
        yield wait
        wait = min(wait * 2, longest)


async def surely(clock: Clock, act: Callable[[], Awaitable[T]]) -> T:
    """What `act` returns, waiting as long as it takes while it raises Retryable; every other error is raised."""
    for wait in waits():
        try:
            return await act()
        except Retryable as error:
            await clock.sleep(wait if error.retry_after is None else error.retry_after)
    raise AssertionError("waits never ends")
