"""How fast a source may hand events in: a bucket of tokens that fills with time. Pure but for what it remembers.

Called by `rucher.control.doors` for what was verified only: what a stranger sends must not use up a sender's own share.
"""

from rucher.surfaces.sources import Rate


class Bucket:
    """Full at first; each event takes one token, and the rate fills it again."""

    def __init__(self, rate: Rate, now: float) -> None:
        """`now` and all later moments are seconds of one monotonic clock."""
        self.rate = rate
        self._tokens = float(rate.count)
        self._at = now

    def take(self, now: float) -> float:
        """Take a token; returns 0, or the seconds after which there will be one, and then nothing was taken."""
        speed = self.rate.count / self.rate.period_s
        self._tokens = min(float(self.rate.count), self._tokens + (now - self._at) * speed)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / speed
