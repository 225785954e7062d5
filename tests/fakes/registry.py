"""A RegistryStore over a journal alone: every question reads it through, so that it cannot be wrong in the way of a view."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from rucher.protocol.events import CONTROL_PLANE, Event
from rucher.router.registry import Registry

ROUTED = frozenset({"hop.made", "route.dropped"})
"""What is recorded of an event once it has been decided; an event that was held waits no longer then."""
_BATCH = 1000


class Past(Protocol):
    """A journal that can be read from its beginning."""

    async def read(self, after: int, limit: int, subject: str = "ev.>") -> Sequence[Event]:
        """Up to `limit` events with a `seq` above `after` whose subject matches the pattern, in order."""
        ...


class FoldedRegistry:
    """A RegistryStore over a journal alone; every question reads it through."""

    def __init__(self, journal: Past, default_policy: str = "public") -> None:
        self._journal = journal
        self._default_policy = default_policy

    async def load(self) -> Registry:
        """A registry of the caller's own."""
        registry = Registry(default_policy=self._default_policy)
        for event in await self._own():
            registry.apply(event)
        return registry

    async def held(self, principal: str) -> Sequence[str]:
        """The ids of the events of this principal that are held, in order."""
        waiting: dict[str, str] = {}
        for event in await self._own():
            fold_held(waiting, event)
        return [event_id for event_id, sender in waiting.items() if sender == principal]

    async def _own(self) -> Sequence[Event]:
        found: list[Event] = []
        after = 0
        while batch := await self._journal.read(after, _BATCH):
            found += [event for event in batch if event.source == CONTROL_PLANE and event.type in _TOLD]
            after = batch[-1].seq
        return found


def fold_held(waiting: dict[str, str], event: Event) -> None:
    """What a control-plane event changes about which events wait, and for a word about whom."""
    body: Mapping[str, str] = event.body
    if event.type == "route.held":
        waiting[body["event"]] = body["principal"]
    elif event.type in ROUTED:
        waiting.pop(body["event"], None)


_TOLD = ROUTED | {
    "role.granted", "role.revoked", "user.blocked", "user.unblocked", "group.policy", "session.reset", "route.held",
}  # fmt: skip
