"""Says on the standard error every few seconds how far a long measure is."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
EVERY_S = 5.0


class Progress:
    """Of `total` things, all alike."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._started = self._told = time.monotonic()

    def one(self) -> None:
        """One more is done, or begun."""
        self._done += 1
        now = time.monotonic()
        if now - self._told >= EVERY_S:
            self._told = now
            print(
                f"  {self._what}: {self._done:,} of {self._total:,} after {now - self._started:.0f} s", file=sys.stderr
            )

    def over(self, things: Iterable[T]) -> Iterator[T]:
        """The things, counted as they are taken."""
        for thing in things:
            self.one()
            yield thing
