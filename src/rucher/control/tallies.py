"""How often deliveries were accepted, known already, or refused and why: counted by source, in memory, since the daemon began.

Counted by `doors.py`, shown by `rucher sources list` and as metrics. A refusal is a number here and no event: nobody outside
can make the journal grow.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from enum import StrEnum

UNKNOWN = "unknown"
"""What stands for all names that are no source, so that a stranger cannot make this grow either."""


class Reason(StrEnum):
    """Why a delivery was refused."""

    NO_SOURCE = "no_source"
    METHOD = "method"
    TOO_LARGE = "too_large"
    CONTENT_TYPE = "content_type"
    SIGNATURE = "signature"
    NO_SECRET = "no_secret"  # noqa: S105 - a reason, not a secret
    MALFORMED = "malformed"
    UNUSABLE = "unusable"
    TOO_SLOW = "too_slow"
    GONE = "gone"
    TOO_FAST = "too_fast"
    BUSY = "busy"
    STORE = "store"


class Tallies:
    """Counts by source."""

    def __init__(self) -> None:
        self._taken: Counter[tuple[str, bool]] = Counter()
        self._refused: defaultdict[str, Counter[Reason]] = defaultdict(Counter)

    def took(self, source: str, *, first: bool) -> None:
        """Count a delivery that is in the journal: now, or since before."""
        self._taken[source, first] += 1

    def refused(self, source: str, reason: Reason) -> None:
        """Count a refusal."""
        self._refused[source][reason] += 1

    def of(self, source: str) -> dict[str, object]:
        """The counts of one source."""
        return {
            "accepted": self._taken[source, True],
            "duplicate": self._taken[source, False],
            "refused": {reason.value: count for reason, count in sorted(self._refused[source].items())},
        }

    def metrics(self, sources: Collection[str]) -> str:
        """All counts as OpenMetrics text (https://prometheus.io/docs/specs/om/open_metrics_spec/)."""
        return "\n".join((*self._lines(sorted({*sources, UNKNOWN})), "# EOF", ""))

    def _lines(self, sources: Collection[str]) -> Iterator[str]:
        name = "rucher_ingress_deliveries"
        yield f"# TYPE {name} counter"
        yield f"# HELP {name} Deliveries at /ingress since the daemon began, by source and outcome."
        for source in sources:
            for outcome, first in (("accepted", True), ("duplicate", False)):
                yield f'{name}_total{{source="{source}",outcome="{outcome}",reason=""}} {self._taken[source, first]}'
            for reason, count in sorted(self._refused[source].items()):
                yield f'{name}_total{{source="{source}",outcome="refused",reason="{reason.value}"}} {count}'
