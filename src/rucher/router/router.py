"""Follows the journal, decides each event by the rules in force, and records the decisions as hops.

Started by `rucher.daemon`. It decides and records and never delivers: `rucher.router.dispatch` acts on the hops.
"""

import asyncio
from collections.abc import Sequence

from rucher.protocol.backoff import surely
from rucher.protocol.events import CONTROL_PLANE, Draft, Event, control_event
from rucher.protocol.ids import derived
from rucher.protocol.livefile import Refused, Reloaded
from rucher.protocol.ports import Clock, Journal
from rucher.protocol.replies import awaiting
from rucher.router.reasons import append_surely, reason
from rucher.router.reload import RulesFile
from rucher.router.rules import Decision, Dropped, Rules, decide

BATCH = 500
"""The most events that are decided and recorded together."""

CHECK_EVERY_S = 1.0
"""How often the rules file is looked at while nothing arrives."""


class Router:
    """Gives every event its hops exactly once: their ids derive from event, rule and destination."""

    def __init__(self, journal: Journal, clock: Clock, rules: RulesFile, tenant: str, cursor: int) -> None:
        """`cursor` is the `seq` of the last event whose hops are in the journal."""
        self._journal = journal
        self._clock = clock
        self._rules = rules
        self._tenant = tenant
        self._cursor = cursor

    async def run(self) -> None:
        """Route until cancelled."""
        await self._record_rules(self._applied(self._rules.current, "start"))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(), name="router")
            group.create_task(self._watch(), name="rules file")

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
        rules = self._rules.current
        drafts = [draft for event in events if event.source != CONTROL_PLANE for draft in self._recorded(event, rules)]
        if drafts:
            await append_surely(self._journal, self._clock, *drafts)
        if events:
            self._cursor = events[-1].seq

    def _recorded(self, event: Event, rules: Rules) -> list[Draft]:
        decision = _decided(event, rules)
        about = {"event": event.id, "event_seq": event.seq}
        if isinstance(decision, Dropped):
            return [
                self._draft(event, "route.dropped", event.id, {**about, "reason": decision.reason, **awaiting(event)})
            ]
        return [
            self._draft(
                event,
                "hop.made",
                f"{event.id}:{route.rule_id}:{route.to}",
                {
                    **about,
                    "rule": route.rule_id,
                    "rules": rules.version,
                    "to": route.to,
                    "mode": route.mode,
                    "session": route.session,
                },
            )
            for route in decision
        ]

    def _draft(self, event: Event, kind: str, key: str, body: dict[str, object]) -> Draft:
        return control_event(
            tenant=event.tenant,
            part="router",
            kind=kind,
            key=key,
            trace_id=event.trace_id,
            parent_id=event.id,
            occurred_at=self._clock.now(),
            body=body,
        )

    async def _look_at_rules(self) -> None:
        match self._rules.check():
            case Reloaded(rules):
                await self._record_rules(self._applied(rules, str(self._clock.now())))
            case Refused(reason):
                await self._record_rules(self._about_rules("rules.refused", str(self._clock.now()), {"reason": reason}))
            case None:
                pass

    def _applied(self, rules: Rules, when: str) -> Draft:
        body = {"version": rules.version, "rules": len(rules.rules)}
        return self._about_rules("rules.applied", f"{rules.version}:{when}", body)

    def _about_rules(self, kind: str, key: str, body: dict[str, object]) -> Draft:
        trace_id = derived("trace", self._tenant, "rules", kind, key)
        return control_event(
            tenant=self._tenant,
            part="rules",
            kind=kind,
            key=key,
            trace_id=trace_id,
            occurred_at=self._clock.now(),
            body=body,
        )

    async def _record_rules(self, draft: Draft) -> None:
        await append_surely(self._journal, self._clock, draft)


def _decided(event: Event, rules: Rules) -> Decision:
    try:
        return decide(event, rules)
    except Exception as error:  # noqa: BLE001 - one poisoned rule or event must not stop the others; it is recorded
        return Dropped(f"deciding failed: {reason(error)}")
