"""Leases: a worker is alive as long as its row's counter goes up. One row a worker covers all of its runs.

Who is alive is told by each observer's own steady clock, from the moment at which it last saw the counter change: so neither a
jump of the wall clock nor two hosts that disagree about the time can end a lease. Taking a dead worker's runs away is one
compare-and-delete; a worker that wakes up too late finds its row gone, and the fence refuses whatever it still writes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rucher.journal.units import Answer
from rucher.protocol.ports import Clock

IsDead = Callable[[Mapping[str, Any]], bool]
Notice = Callable[[str, Mapping[str, object]], None]
"""Told what whoever runs this machine should know, in words and facts; the kernel itself keeps no log."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: how long a lease lasts, how often it is renewed, and how often the others' are looked at."""

    lease_s: float = 90.0
    renew_s: float = 30.0
    watch_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a worker is, for the others."""

    worker: str
    host: str
    role: str


class LeaseStore(Protocol):
    """What leases need of a store."""

    async def rows(self, statement: str, *parameters: Any) -> list[Mapping[str, Any]]:
        """The rows of one named statement."""
        ...

    async def command(self, statement: str, parameters: Mapping[str, Any]) -> Answer:
        """Obey a statement of commands.sql."""
        ...


def _keep_to_oneself(_what: str, _facts: Mapping[str, object]) -> None:
    pass


class Leases:
    """The lease of one worker, and its watch over the others'.

    `is_dead` may know better, about a worker of this machine: True only when it surely runs no more. `notice` hears of lost
    workers, and of what the worker of this lease has to say.
    """

    def __init__(
        self,
        store: LeaseStore,
        clock: Clock,
        me: Identity,
        is_dead: IsDead,
        times: Times = Times(),
        notice: Notice | None = None,
    ) -> None:
        self.worker = me.worker
        self.times = times
        self._store = store
        self._clock = clock
        self._me = me
        self._is_dead = is_dead
        self.notice = notice or _keep_to_oneself
        self._seen: dict[str, tuple[int, float]] = {}

    async def join(self) -> None:
        """Put this worker's row there, and take away the runs of those that surely are dead."""
        row = {"worker": self.worker, "host": self._me.host, "role": self._me.role, "at": self._clock.now()}
        await self._store.command("worker.join", row)
        await self.watch()

    async def renew(self) -> bool:
        """Show that this worker is alive; False when its runs were taken away, so that it must stop working on them."""
        return bool(await self._store.command("worker.beat", {"worker": self.worker}))

    async def watch(self) -> bool:
        """Take the runs of dead workers away, for anybody to claim; returns whether there were any."""
        freed = False
        now = self._clock.monotonic()
        rows = await self._store.rows("workers.all")
        for row in rows:
            if row["worker"] == self.worker:
                continue
            beats, since = self._seen.get(row["worker"], (-1, now))
            if row["beats"] != beats:
                beats, since = row["beats"], now
            self._seen[row["worker"]] = beats, since
            if self._is_dead(row) or now - since > self.times.lease_s:
                freed = await self._bury(row) or freed
        self._seen = {row["worker"]: self._seen[row["worker"]] for row in rows if row["worker"] in self._seen}
        if await self._store.rows("claims.orphaned"):
            await self._store.command("claims.orphaned", {})
        return freed

    async def leave(self) -> None:
        """Give back everything at the end. What this worker said before, and nobody waits for any more, is obeyed first."""
        await self._store.command("worker.end", {"worker": self.worker})
        await self._store.command("claims.orphaned", {})

    async def _bury(self, row: Mapping[str, Any]) -> bool:
        """Take the worker's row away, unless it has beaten again; without a row, none of its claims is worth anything."""
        dead = {"worker": row["worker"], "beats": row["beats"]}
        if not await self._store.command("worker.leave", dead):
            return False
        runs = await self._store.command("claims.orphaned", {})
        self.notice("a worker is gone", {"worker": row["worker"], "host": row["host"], "runs": len(runs)})
        return True
