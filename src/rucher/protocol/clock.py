"""The real clock and the real randomness: the only place that asks the machine for either."""

import asyncio
import os
import time


class SystemClock:
    """The machine's time."""

    def now(self) -> int:
        """Microseconds since the epoch, UTC."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed."""
        await asyncio.sleep(seconds)


class SystemEntropy:
    """The machine's randomness."""

    def bytes(self, count: int) -> bytes:
        """`count` random bytes."""
        return os.urandom(count)
