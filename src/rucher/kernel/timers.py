"""Timers: brings each wait whose time has come to its run, as an event. One small loop; the waits themselves are rows.

A timer is due by the wall clock, which may jump: so nothing sleeps longer than a few seconds without looking at it again.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rucher.kernel.waits import at_due
from rucher.protocol.backoff import surely
from rucher.protocol.events import Draft, control_event
from rucher.protocol.ports import Appended, Clock

BATCH = 200
LONGEST_SLEEP_S = 5.0


class TimerStore(Protocol):
    """What timers need of a store."""

    async def rows(self, statement: str, *parameters: Any) -> list[Mapping[str, Any]]:
        """The rows of one named statement."""
        ...

    async def append(self, *drafts: Draft) -> tuple[Appended, ...]:
        """Commit all drafts in one transaction."""
        ...

    async def refolded(self, after: int) -> int:
        """Return once views may have changed since this returned `after`."""
        ...


class Timers:
    """Fires what is due. Several workers may: a timer's event has one id, whoever brings it."""

    def __init__(self, store: TimerStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        """Fire until cancelled."""
        seen = 0
        while True:
            seconds = await surely(self._clock, self._look)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    seen = await self._store.refolded(seen)

    async def fire_due(self) -> int:
        """Fire everything that is due now; returns how much that was."""
        count = 0
        while due := await self._store.rows("timers.due", self._clock.now(), BATCH):
            await self._fire(due)
            count += len(due)
        return count

    async def _look(self) -> float:
        await self.fire_due()
        rows = await self._store.rows("timers.next")
        if not rows or rows[0]["due_at"] is None:
            return LONGEST_SLEEP_S
        left: int = rows[0]["due_at"] - self._clock.now()
        return min(LONGEST_SLEEP_S, max(0.0, left / 1e6))

    async def _fire(self, due: Sequence[Mapping[str, Any]]) -> None:
        now = self._clock.now()
        await self._store.append(
            *(
                control_event(
                    tenant=row["tenant"],
                    part="timers",
                    kind="timer.fired",
                    key=f"{row['run_id']}:{row['step']}:{row['item']}:{row['seq']}",
                    trace_id=row["trace_id"],
                    parent_id=row["hop_id"] or None,
                    occurred_at=now,
                    body={
                        "run": row["run_id"],
                        "step": row["step"],
                        "item": row["item"],
                        "outcome": dict(at_due(row["kind"])),
                    },
                )
                for row in due
            )
        )
