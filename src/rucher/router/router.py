"""Follows the journal, decides each event by the rules in force, and records the decisions as hops.

Started by `rucher.daemon`. It decides and records and never delivers: `rucher.router.dispatch` acts on the hops.
"""

import asyncio
from collections.abc import Sequence

from rucher.protocol.backoff import surely
from rucher.protocol.events import CONTROL_PLANE, Draft, Event
from rucher.protocol.livefile import Refused, Reloaded
from rucher.protocol.ports import Clock, Journal
from rucher.router.decide import Decision, Dropped, decide
from rucher.router.proposals import versions
from rucher.router.reasons import append_surely, reason
from rucher.router.records import applied, decision_records, refused, rules_trace
from rucher.router.registry import Registry
from rucher.router.registrystore import RegistryStore
from rucher.router.reload import RulesFile
from rucher.router.rules import Rules

BATCH = 500
"""The most events that are decided and recorded together."""

CHECK_EVERY_S = 1.0
"""How often the rules file is looked at while nothing arrives."""

RELEASING = frozenset({"role.granted", "user.blocked"})
"""What is said of a sender whose events may be held: they are decided anew then."""


class Router:
    """Gives every event its hops exactly once: their ids derive from event, rule and destination."""

    def __init__(
        self, journal: Journal, clock: Clock, rules: RulesFile, people: RegistryStore, tenant: str, cursor: int
    ) -> None:
        """`cursor` is the `seq` of the last event whose hops are in the journal."""
        self._journal = journal
        self._clock = clock
        self._rules = rules
        self._people = people
        self._tenant = tenant
        self._cursor = cursor
        self._registry = Registry()

    async def run(self) -> None:
        """Route until cancelled."""
        self._registry = await surely(self._clock, self._people.load)
        await self._begin_with(self._rules.current)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(), name="router")
            group.create_task(self._watch(), name="rules file")

    async def _begin_with(self, rules: Rules) -> None:
        """Record what is in force at start, unless it was when the router last ran."""
        history = await surely(self._clock, lambda: self._journal.trace(rules_trace(self._tenant)))
        if rules.version != next((one.version for one in reversed(list(versions(history)))), None):
            now = self._clock.now()
            await self._append([applied(self._tenant, rules, str(now), now)])

    async def _follow(self) -> None:
        while True:
            await self._journal.grown(self._cursor)
            await self._look_at_rules()
            await self._route(await surely(self._clock, lambda: self._journal.read(self._cursor, BATCH)))

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(CHECK_EVERY_S)
            await self._look_at_rules()

    async def _route(self, events: Sequence[Event]) -> None:
        drafts: list[Draft] = []
        for event in events:
            if event.source != CONTROL_PLANE:
                drafts += self._recorded(event)
                continue
            self._registry.apply(event)
            if event.type in RELEASING:
                # What was held a moment ago must be in the store before it is asked for.
                await self._append(drafts)
                drafts = []
                await self._release(event.body["principal"])
        await self._append(drafts)
        if events:
            self._cursor = events[-1].seq

    async def _release(self, principal: str) -> None:
        """Decide anew, in their order, the events of a sender that were held."""
        waiting = await surely(self._clock, lambda: self._people.held(principal))
        for start in range(0, len(waiting), BATCH):
            found = [await self._event(event_id) for event_id in waiting[start : start + BATCH]]
            await self._append([draft for held in found if held for draft in self._recorded(held)])

    async def _event(self, event_id: str) -> Event | None:
        return await surely(self._clock, lambda: self._journal.event(event_id))

    def _recorded(self, event: Event) -> list[Draft]:
        rules = self._rules.current
        decision = self._decided(event)
        for route in decision.routes:
            if route.engaged is not None:
                # The next event of this batch is decided before this hop comes back through the journal.
                self._registry.engaged.add(route.engaged)
        return list(decision_records(event, decision, rules, self._clock.now()))

    def _decided(self, event: Event) -> Decision:
        try:
            return decide(event, self._rules.current, self._registry)
        except Exception as error:  # noqa: BLE001 - one poisoned event must not stop the others; it is recorded
            return Decision(end=Dropped(f"deciding failed: {reason(error)}"))

    async def _look_at_rules(self) -> None:
        now = self._clock.now()
        match self._rules.check():
            case Reloaded(rules):
                await self._append([applied(self._tenant, rules, str(now), now)])
            case Refused(said):
                await self._append([refused(self._tenant, said, now)])
            case None:
                pass

    async def _append(self, drafts: Sequence[Draft]) -> None:
        if drafts:
            await append_surely(self._journal, self._clock, *drafts)
