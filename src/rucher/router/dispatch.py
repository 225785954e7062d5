"""Hands each hop to its destination and records how that ended; a slow or failing destination holds up nobody else.

Started by `rucher.daemon` beside the router. It decides nothing: which hop goes where was decided by the rules.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from rucher.protocol.backoff import surely, waits
from rucher.protocol.errors import Retryable
from rucher.protocol.events import CONTROL_PLANE, Draft, Event, control_event
from rucher.protocol.ports import Clock, Journal
from rucher.protocol.replies import awaiting
from rucher.protocol.rooms import crossing
from rucher.router.reasons import append_surely, reason

BATCH = 500
LANE_BOUND = 1000
"""Hops that wait in memory for one lane; what is beyond waits in the store."""

_REOPENING = frozenset({"hop.retried", "delivery.resolved"})
"""The owner's words after which a hop that had ended is handed out again."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One event on its way to one destination; `seq` is the place of its `hop.made` in the journal. `Route` tells the rest."""

    id: str
    seq: int
    event_id: str
    rule_id: str
    to: str
    state: str = "made"
    mode: str = "wake"
    session: str = "per-thread"
    retries: int = 0
    """How often the owner had it tried again after it had ended; its state is then `again`."""

    @property
    def kind(self) -> str:
        """The kind of the destination: agent, surface."""
        return self.to.partition(":")[0]


class HopStore(Protocol):
    """The journal's view of the hops."""

    async def open_hops(self, after_seq: int) -> Sequence[Hop]:
        """All hops that have not ended and whose `seq` is above `after_seq`, in order."""
        ...


class Destination(Protocol):
    """Everything that hops of one kind can go to."""

    async def accept(self, hop: Hop, event: Event) -> Mapping[str, Any] | None:
        """Take the hop over for good, durably; called again with the same hop until it returns.

        What it returns joins the body of `hop.acknowledged`. A surface records its own ends and returns None.
        Raises Retryable to be asked again later; any other error ends the hop as failed.
        """
        ...


@dataclass(slots=True)
class _Lane:
    """Hops that go one after the other: to one session of an agent, or to one destination about one group."""

    waiting: deque[Hop] = field(default_factory=deque)
    last_seq: int = 0
    behind: bool = False
    """Whether the store holds hops of this lane beyond `last_seq` that are not in `waiting`."""
    refilling: bool = False
    """Whether the store is being read: a hop made meanwhile may or may not be in what it answers."""


class Dispatcher:
    """Works off the open hops, one task a lane: one session of an agent, or one group of another destination."""

    def __init__(
        self, journal: Journal, clock: Clock, hops: HopStore, destinations: Mapping[str, Destination], cursor: int
    ) -> None:
        """`destinations` by kind. `cursor`: a `seq` the journal has reached; `hops` holds all hops up to it."""
        self._journal = journal
        self._clock = clock
        self._hops = hops
        self._destinations = destinations
        self._cursor = cursor
        self._lanes: dict[str, _Lane] = {}

    async def run(self) -> None:
        """Dispatch until cancelled."""
        async with asyncio.TaskGroup() as group:
            await self._resume(group)
            while True:
                await self._journal.grown(self._cursor)
                events = await surely(self._clock, lambda: self._journal.read(self._cursor, BATCH))
                for event in events:
                    if event.source == CONTROL_PLANE and event.type == "hop.made":
                        await self._place(_hop_of(event), group)
                    elif event.source == CONTROL_PLANE and event.type in _REOPENING:
                        await self._reopen(event, group)
                if events:
                    self._cursor = events[-1].seq

    async def _resume(self, group: asyncio.TaskGroup) -> None:
        for hop in await surely(self._clock, lambda: self._hops.open_hops(0)):
            if hop.state != "acknowledged":
                await self._place(hop, group)
            self._cursor = max(self._cursor, hop.seq)

    async def _reopen(self, word: Event, group: asyncio.TaskGroup) -> None:
        made = await self._event(word.body["hop"])
        if made is not None:
            again = replace(_hop_of(made), state="again", retries=word.body.get("number", 1))
            await self._place(again, group)

    async def _place(self, hop: Hop, group: asyncio.TaskGroup) -> None:
        name = await self._lane_of(hop)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane()
            group.create_task(self._work(name, lane), name=f"lane {name}")
        if hop.seq > lane.last_seq and (lane.behind or lane.refilling or len(lane.waiting) >= LANE_BOUND):
            lane.behind = True
        else:
            lane.waiting.append(hop)
            lane.last_seq = max(lane.last_seq, hop.seq)

    async def _lane_of(self, hop: Hop) -> str:
        event = await self._event(hop.event_id)
        if event is None:
            return hop.to
        if hop.kind == "agent":
            return " ".join((hop.to, *crossing(hop.session, event)))
        group = event.addressed_to if (event.addressed_to or "").startswith("group:") else event.body.get("group", "")
        return f"{hop.to} {group}"

    async def _work(self, name: str, lane: _Lane) -> None:
        while lane.waiting or lane.behind:
            if not lane.waiting:
                await self._refill(name, lane)
            while lane.waiting:
                await self._advance(lane.waiting.popleft())
        del self._lanes[name]

    async def _refill(self, name: str, lane: _Lane) -> None:
        lane.behind, lane.refilling = False, True
        to = name.partition(" ")[0]
        for hop in await surely(self._clock, lambda: self._hops.open_hops(lane.last_seq)):
            if hop.to != to or hop.state == "acknowledged" or await self._lane_of(hop) != name:
                continue
            if len(lane.waiting) >= LANE_BOUND:
                lane.behind = True
                break
            lane.waiting.append(hop)
            lane.last_seq = hop.seq
        lane.refilling = False

    async def _advance(self, hop: Hop) -> None:
        destination = self._destinations.get(hop.kind)
        event = await self._event(hop.event_id)
        if destination is None or event is None:
            missing = (
                f"nothing here delivers to {hop.kind}" if destination is None else "its event is not in the journal"
            )
            await self._record("hop.failed", hop, event, {"reason": missing})
            return
        for attempt, wait in enumerate(waits()):
            try:
                said = await destination.accept(hop, event)
            except Retryable as error:
                if attempt == 0:
                    await self._record("hop.retrying", hop, event, {"reason": str(error)})
                await self._clock.sleep(wait if error.retry_after is None else error.retry_after)
            except Exception as error:  # noqa: BLE001 - one failing destination must not stop the others; it is recorded
                await self._record("hop.failed", hop, event, {"reason": reason(error)})
                return
            else:
                if said is not None:
                    await self._record("hop.acknowledged", hop, event, {"detail": "", **said})
                return

    async def _event(self, event_id: str) -> Event | None:
        return await surely(self._clock, lambda: self._journal.event(event_id))

    async def _record(self, kind: str, hop: Hop, event: Event | None, body: Mapping[str, Any]) -> None:
        made = event or await self._event(hop.id)
        if made is None:
            return
        if kind == "hop.failed" and event is not None and hop.to == event.addressed_to:
            body = {**body, **awaiting(event)}
        await append_surely(self._journal, self._clock, ended(kind, hop, made, self._clock.now(), body))


def ended(kind: str, hop: Hop, event: Event, now: int, body: Mapping[str, Any]) -> Draft:
    """The record of how a hop of this event goes on. A destination may commit it with its own work: said twice, it is one."""
    return control_event(
        tenant=event.tenant,
        part="router",
        kind=kind,
        key=f"{hop.id}:{hop.retries}" if hop.retries else hop.id,
        trace_id=event.trace_id,
        parent_id=hop.id,
        occurred_at=now,
        body={"hop": hop.id, **body},
    )


def _hop_of(made: Event) -> Hop:
    body = made.body
    return Hop(
        id=made.id, seq=made.seq, event_id=body["event"], rule_id=body["rule"], to=body["to"],
        mode=body.get("mode", "wake"), session=body.get("session", "per-thread"),
    )  # fmt: skip
