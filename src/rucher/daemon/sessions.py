"""Sessions: where an agent, a room and a thread cross. Each message that a rule sends to an agent becomes a run of its session.

A rule may also cut an agent's sessions wider: one for a whole room, or one for all rooms (`rucher.protocol.rooms`).
The agent half of the dispatcher's destinations. A run is made here and worked on by whichever worker claims it; runs of one
session go one after the other, those of many sessions at once. Two things make no run: the reply to what a run asked, which
goes to that run, and what a session is only to know, which its next run reads.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rucher.daemon.emissions import brought_by
from rucher.instance.agents import AgentFile
from rucher.journal.store import JournalStore
from rucher.kernel.runs import Kernel
from rucher.kernel.spec import RunSpec, Versions, run_of_hop
from rucher.protocol.errors import Permanent
from rucher.protocol.events import Draft, Event, control_event
from rucher.protocol.ids import caused, derived
from rucher.protocol.ports import Clock
from rucher.protocol.replies import awaited, is_reply
from rucher.protocol.rooms import crossing
from rucher.router.dispatch import Hop, ended

ACKNOWLEDGED = "hop.acknowledged"
Ceilings = Mapping[str, int]
"""Limits of a run's budget by measure; a measure that is missing has none."""
REMEMBERED = 10_000
"""Sessions that are known to be open; for any other it is said again, which changes nothing."""


class Sessions:
    """All sessions of an instance."""

    def __init__(  # noqa: PLR0913, PLR0917 - wired once
        self,
        kernel: Kernel,
        store: JournalStore,
        clock: Clock,
        agents: Mapping[str, AgentFile],
        model: str,
        versions: Callable[[AgentFile], Versions],
        ceilings: Ceilings,
    ) -> None:
        self._kernel = kernel
        self._store = store
        self._clock = clock
        self._agents = agents
        self._model = model
        self._versions = versions
        self._ceilings = ceilings
        self._opened: set[str] = set()

    async def accept(self, hop: Hop, event: Event) -> Mapping[str, Any]:
        """Make the run that this hop causes, and its session if it is new. Raises Permanent for an unknown agent.

        A reply goes to the run that asked, whatever the rule says of sessions; what is for context alone wakes nobody.
        """
        if is_reply(event) and event.addressed_to == hop.to:
            return await self._reply(hop, event)
        agent = hop.to.removeprefix("agent:")
        if agent not in self._agents:
            raise Permanent(f"there is no agent {agent!r}; see the folder kernel/agents")
        room, thread = crossing(hop.session, event)
        session = session_id(event.tenant, agent, room, thread)
        opened = self._opening(session, event.tenant, {"agent": agent, "group": room, "thread": thread})
        if hop.mode == "context":
            return await self._keep(hop, event, session, opened)
        run_id = run_of_hop(hop.id)
        spec = RunSpec(
            run_id=run_id, tenant=event.tenant, agent=agent, model=self._model, trace_id=event.trace_id, session=session,
            hop=hop.id, priority=self._agents[agent].priority, event=event.id, accounts=(run_id,) if self._ceilings else (),
            ceilings={run_id: self._ceilings}, versions=self._versions(self._agents[agent]),
        )  # fmt: skip
        await self._kernel.create(spec, *opened)
        self._remember(session)
        return {"session": session}

    async def _reply(self, hop: Hop, event: Event) -> Mapping[str, Any]:
        """Bring a reply to the run that asked. If that waits for it no more, its session keeps it for the next turn."""
        run_id, topic = str(event.body["reply_to_run"]), awaited(event)
        rows = await self._store.rows("run.get", run_id)
        if not rows:
            raise Permanent(f"the run {run_id} that asked is not in the journal")
        session = str(rows[0]["session_id"])
        waits = await self._store.rows("run.waits", run_id)
        heard = any(wait["topic"] == topic and wait["state"] == "open" for wait in waits)
        late = f"run {run_id} waits for this no more; its session reads it in its next turn"
        body = {"session": session, "detail": "" if heard else late, "done": True}
        now = self._clock.now()
        told = {
            "run": run_id, "topic": topic, "outcome": brought_by(event),
            "unheard": {"session": session, "event": event.id},
        }  # fmt: skip
        signal = self._record(hop, event, "signal.sent", hop.id, told)
        # One commit: taken up again after a kill between the two, an answered run would look like one that waits no more.
        await self._store.append(replace(signal, principal=event.principal), ended(ACKNOWLEDGED, hop, event, now, body))
        return body

    async def _keep(self, hop: Hop, event: Event, session: str, opened: tuple[Draft, ...]) -> Mapping[str, Any]:
        """Keep for the session's next run what it is only to know. Whoever asked it something learns that it is not asked."""
        noted = self._record(
            hop, event, "session.noted", f"{session}:{event.id}", {"session": session, "event": event.id}
        )
        drafts = [*opened, noted]
        if event.type == "ask" and event.addressed_to == hop.to and (topic := awaited(event)):
            why = f"the rule {hop.rule_id} gives this to {hop.to} as context only, so that it does not answer"
            outcome = {"run": event.body["run"], "topic": topic, "outcome": {"ok": False, "text": why}}
            drafts.append(self._record(hop, event, "signal.sent", hop.id, outcome))
        await self._store.append(*drafts)
        self._remember(session)
        return {"session": session, "detail": "kept as context", "done": True}

    def _record(self, hop: Hop, event: Event, kind: str, key: str, body: Mapping[str, Any]) -> Draft:
        return control_event(
            tenant=event.tenant, part="session", kind=kind, key=key, trace_id=event.trace_id, parent_id=hop.id,
            occurred_at=self._clock.now(), body=body,
        )  # fmt: skip

    def _opening(self, session: str, tenant: str, where: Mapping[str, str]) -> tuple[Draft, ...]:
        """What says that the session is open, unless that is known."""
        if session in self._opened:
            return ()
        opened = control_event(
            tenant=tenant, part="session", kind="session.opened", key=f"{session}:{session}",
            trace_id=caused(session, "trace"), occurred_at=self._clock.now(), body={"session": session, **where},
        )  # fmt: skip
        return (opened,)

    def _remember(self, session: str) -> None:
        if len(self._opened) >= REMEMBERED:
            self._opened.clear()
        self._opened.add(session)


def session_id(tenant: str, agent: str, room: str, thread: str) -> str:
    """The session that is the crossing of this agent, this room (`surface:group`) and this thread; see `crossing`."""
    return derived("session", tenant, agent, room, thread)
