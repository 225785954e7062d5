"""When a runner counts as stuck, dead too often or idle: times of the pool of hands, and the decisions made from them.

Pure: called with what was seen, by the pool.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds, but for `deaths`."""

    stuck_s: float = 10.0
    """Without a beat for so long, counted from the runner's own start, it is stuck."""
    unclaimed_s: float = 30.0
    """The oldest call not begun for so long means that the runner is stuck, however it beats."""
    margin_s: float = 5.0
    """What a call may take beyond its own limit, which the runner enforces, before the host ends the sandbox."""
    cancel_s: float = 3.0
    """What a runner may take to end a call that was cancelled, before the host ends the sandbox."""
    idle_s: float = 60.0
    """A runner without calls for so long is stopped."""
    quick_s: float = 10.0
    """A runner that dies younger than this died quickly."""
    recovery_s: float = 5.0
    """For so long somebody who needs outbound.db waits until a new runner has undone what a dead one left."""
    deaths: int = 3
    """So many quick deaths in a row open the breaker."""
    rest_s: float = 30.0
    """For so long an open breaker starts nothing."""


class Pulse:
    """Watches a heartbeat by changes of its mtime, so that no two clocks are compared and an old file says nothing."""

    def __init__(self, path: Path, now: float) -> None:
        self._path = path
        self._seen = self._mtime()
        self._changed_at = now
        self.beaten = False
        """Whether a beat was seen since the start."""

    def silent_s(self, now: float) -> float:
        """Seconds since the last beat that was seen, or since the start."""
        current = self._mtime()
        if current != self._seen:
            self._seen, self._changed_at, self.beaten = current, now, True
        return now - self._changed_at

    def _mtime(self) -> int:
        try:
            return self._path.lstat().st_mtime_ns
        except FileNotFoundError:
            return 0


class Breaker:
    """Counts deaths in a row and says when starting again is pointless for a while."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._deaths = 0
        self._rests_until = 0.0

    def died(self, lived_s: float, now: float) -> None:
        """A runner died that nobody asked to."""
        self._deaths = self._deaths + 1 if lived_s < self._patience.quick_s else 1
        if self._deaths >= self._patience.deaths:
            self._rests_until = now + self._patience.rest_s
            self._deaths = self._patience.deaths - 1

    def worked(self) -> None:
        """A runner ended a call."""
        self._deaths = 0

    def rests_s(self, now: float) -> float:
        """Seconds for which nothing is to be started."""
        return max(self._rests_until - now, 0.0)
