"""Sessions: where an agent, a room and a thread cross. Each message that a rule sends to an agent becomes a run of its session.

The agent half of the dispatcher's destinations. A run is made here and worked on by whichever worker claims it; runs of one
session go one after the other, those of many sessions at once.
"""

from collections.abc import Callable, Mapping
from typing import Any

from rucher.instance.agents import AgentFile
from rucher.kernel.runs import Kernel
from rucher.kernel.spec import RunSpec, Versions, run_of_hop
from rucher.protocol.errors import Permanent
from rucher.protocol.events import DEFAULT_GROUP, Event, control_event
from rucher.protocol.ids import caused, derived
from rucher.protocol.ports import Clock
from rucher.router.dispatch import Hop
from rucher.surfaces.schedules.plan import SOURCE as SCHEDULE

Ceilings = Mapping[str, int]
"""Limits of a run's budget by measure; a measure that is missing has none."""
REMEMBERED = 10_000
"""Sessions that are known to be open; for any other it is said again, which changes nothing."""


class Sessions:
    """All sessions of an instance."""

    def __init__(
        self,
        kernel: Kernel,
        clock: Clock,
        agents: Mapping[str, AgentFile],
        model: str,
        versions: Callable[[AgentFile], Versions],
        ceilings: Ceilings,
    ) -> None:
        self._kernel = kernel
        self._clock = clock
        self._agents = agents
        self._model = model
        self._versions = versions
        self._ceilings = ceilings
        self._opened: set[str] = set()

    async def accept(self, hop: Hop, event: Event) -> Mapping[str, Any]:
        """Make the run that this hop causes, and its session if it is new. Raises Permanent for an unknown agent."""
        agent = hop.to.removeprefix("agent:")
        if agent not in self._agents:
            raise Permanent(f"there is no agent {agent!r}; see the folder kernel/agents")
        thread = str(event.body.get("thread", ""))
        session = session_id(event.tenant, agent, room_of(event), thread)
        run_id = run_of_hop(hop.id)
        spec = RunSpec(
            run_id=run_id, tenant=event.tenant, agent=agent, model=self._model, trace_id=event.trace_id, session=session,
            hop=hop.id, priority=self._agents[agent].priority, event=event.id, accounts=(run_id,) if self._ceilings else (),
            ceilings={run_id: self._ceilings}, versions=self._versions(self._agents[agent]),
        )  # fmt: skip
        opened = control_event(
            tenant=event.tenant, part="session", kind="session.opened", key=f"{session}:{session}",
            trace_id=caused(session, "trace"), occurred_at=self._clock.now(),
            body={"session": session, "agent": agent, "group": room_of(event), "thread": thread},
        )  # fmt: skip
        await self._kernel.create(spec, *(() if session in self._opened else (opened,)))
        if len(self._opened) >= REMEMBERED:
            self._opened.clear()
        self._opened.add(session)
        return {"session": session}


def session_id(tenant: str, agent: str, room: str, thread: str) -> str:
    """The session that is the crossing of this agent, this room (`surface:group`) and this thread."""
    return derived("session", tenant, agent, room, thread)


def room_of(event: Event) -> str:
    """The room that an event was said in: `surface:group`. A schedule is no surface; its file says where it speaks."""
    if event.source == SCHEDULE and "room" in event.body:
        return str(event.body["room"])
    return f"{event.source}:{event.body.get('group', DEFAULT_GROUP)}"
