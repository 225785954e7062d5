"""Sessions at work: messages are taken from each session's mailbox in order, and a run turns each into one answer.

The agent half of the dispatcher's destinations. One session works on one message at a time, many sessions at once. A
session whose files are damaged stops, says so, and goes on by itself once they are mended; the others never notice.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from rucher.daemon.emissions import ending, question
from rucher.daemon.history import exchange
from rucher.daemon.offers import offered
from rucher.engine.context import EXCHANGES, assemble, recent
from rucher.engine.loop import Agent, Outcome, converse
from rucher.instance.agents import AgentFile
from rucher.journal.store import JournalStore
from rucher.kernel.runs import Kernel, Run, RunSpec
from rucher.mailbox.rows import InboundRow
from rucher.protocol.backoff import waits
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import BadInput, Corrupt, Diverged, Fenced, Permanent, Retryable, RucherError, Suspended
from rucher.protocol.events import DEFAULT_GROUP, Draft, Event, control_event
from rucher.protocol.ids import derived
from rucher.protocol.ports import Clock, Model, Tools
from rucher.router.dispatch import Hop
from rucher.router.reasons import reason as told
from rucher.sandbox.mailboxes import Mailboxes

KEPT = 2000
"""Sessions remembered at once; one that rests is found again in the store."""

MESSAGE_FIELDS = frozenset({"event", "trace", "from", "trust", "text", "room", "thread"})

log = structlog.get_logger()


@dataclass(slots=True)
class _Session:
    session_id: str
    agent: str
    tenant: str
    trace_id: str
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    working: bool = False
    opened: bool = False
    filled: bool = False
    """Whether every hop that it has accepted is known to be in its mailbox, which is a view and may be lost."""
    stopped: str = ""
    at: "Cause | None" = None
    """What it works on just now."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The hop that something is about, and its trace."""

    hop: str
    trace_id: str


@dataclass(frozen=True, slots=True)
class Workplace:
    """What the sessions work with; wired by the daemon."""

    store: JournalStore
    kernel: Kernel
    clock: Clock
    mailboxes: Mailboxes
    model: Model
    tools: Callable[[str], Tools]
    agents: Mapping[str, AgentFile]
    concurrent_runs: int


class Sessions:
    """All sessions of an instance. `tasks` is the group that their work runs in."""

    def __init__(self, workplace: Workplace, tasks: asyncio.TaskGroup) -> None:
        self._at = workplace
        self._tasks = tasks
        self._sessions: dict[str, _Session] = {}
        self._slots = asyncio.Semaphore(workplace.concurrent_runs)

    async def resume(self) -> None:
        """Wake every session that has accepted work which is not done."""
        hops = await self._at.store.rows("hops.open", 0)
        for session_id in {hop["session_id"] for hop in hops if hop["session_id"]}:
            await self.wake(session_id)

    async def accept(self, hop: Hop, event: Event) -> Mapping[str, Any]:
        """Put the event into the mailbox of its session, and wake that session.

        Raises Permanent for an unknown agent, and Retryable while the session's files cannot take it: the hop then stays
        open and only this session's later hops wait behind it.
        """
        agent = hop.to.removeprefix("agent:")
        if agent not in self._at.agents:
            raise Permanent(f"there is no agent {agent!r}; see the folder kernel/agents")
        room, thread = _room(event), str(event.body.get("thread", ""))
        session = self._known(session_id(event.tenant, agent, room, thread), agent, event.tenant)
        if not session.opened:
            opened = {"session": session.session_id, "agent": agent, "group": room, "thread": thread}
            await self._at.store.append(self._note(session, "session.opened", session.session_id, opened))
            session.opened = True
        try:
            await self._at.mailboxes.put_message(session.session_id, hop.id, _message(event), self._at.clock.now())
        except (Corrupt, Retryable) as error:
            await self._stop(session, error, Cause(hop.id, event.trace_id))
            raise Retryable(str(error)) from error
        self._wake(session)
        return {"session": session.session_id}

    def trouble(self, event: Event, agent: str) -> str:
        """Why the session that this event goes to cannot work just now; empty when it can."""
        known = self._sessions.get(session_id(event.tenant, agent, _room(event), str(event.body.get("thread", ""))))
        return known.stopped if known else ""

    async def wake(self, session_id: str) -> None:
        """Look at a session, because it has work, or its owner resolved what it waited for."""
        row = (await self._at.store.rows("session.get", session_id))[0]
        self._wake(self._known(session_id, row["agent"], row["tenant"]))

    def _known(self, session_id: str, agent: str, tenant: str) -> _Session:
        session = self._sessions.pop(session_id, None) or _Session(
            session_id, agent, tenant, derived("trace", session_id)
        )
        self._sessions[session_id] = session
        if len(self._sessions) > KEPT:
            resting = next((known for known, other in self._sessions.items() if not other.working), session_id)
            del self._sessions[resting]
        return session

    def _wake(self, session: _Session) -> None:
        session.wake.set()
        if not session.working:
            session.working = True
            self._tasks.create_task(self._work(session), name=f"session {session.session_id}")

    async def _work(self, session: _Session) -> None:
        """Work until nothing is left. Whatever goes wrong stops this session only, and it looks again ever more slowly."""
        pauses = waits()
        try:
            while session.wake.is_set():
                session.wake.clear()
                try:
                    await self._drain(session)
                    pauses = waits()
                except Exception as error:
                    if not isinstance(error, RucherError):
                        log.exception("a session failed unexpectedly", session=session.session_id)
                    await self._stop(session, error)
                    await self._rest(session, next(pauses))
        finally:
            session.working = False

    async def _rest(self, session: _Session, seconds: float) -> None:
        """Wait, or until somebody wakes the session; then let it look again."""
        either = [
            asyncio.ensure_future(self._at.clock.sleep(seconds)),
            asyncio.ensure_future(session.wake.wait()),
        ]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in either:
                each.cancel()
        session.wake.set()

    async def _drain(self, session: _Session) -> None:
        boxes, store = self._at.mailboxes, self._at.store
        if not session.filled:
            await self._fill(session)
            session.filled = True
        for row in await boxes.pending_messages(session.session_id):
            async with self._slots:
                session.at = Cause(row.key, str(row.body.get("trace", session.trace_id)))
                await self._answer(session, row)
                session.at = None
        await self._notice_loss(session)
        if session.stopped:
            session.stopped = ""
            restarted = {"session": session.session_id}
            await store.append(self._note(session, "session.restarted", str(self._at.clock.now()), restarted))

    async def _notice_loss(self, session: _Session) -> None:
        """A mailbox that somebody removed comes back empty: fill it again when it lacks what the journal says is open."""
        held = {row.key for row in await self._at.mailboxes.pending_messages(session.session_id)}
        hops = await self._at.store.rows("hops.of_session", session.session_id)
        if any(hop["hop_id"] not in held for hop in hops):
            session.filled = False
            session.wake.set()

    async def _fill(self, session: _Session) -> None:
        for hop in await self._at.store.rows("hops.of_session", session.session_id):
            event = await self._at.store.event(hop["event_id"])
            if event is not None:
                message, now = _message(event), self._at.clock.now()
                await self._at.mailboxes.put_message(session.session_id, hop["hop_id"], message, now)

    async def _answer(self, session: _Session, row: InboundRow) -> None:
        if set(row.body) != MESSAGE_FIELDS:
            raise Corrupt(
                f"session {session.session_id}: row {row.seq} of inbound.db is no message; stop the daemon and remove the "
                "file, it is filled again from the journal"
            )
        spec = RunSpec(
            hop=row.key, session=session.session_id, agent=session.agent, model=self._at.model.name,
            tenant=session.tenant, trace_id=row.body["trace"],
        )  # fmt: skip
        run = await self._at.kernel.open(spec)
        if not run.finished and not run.waiting_for:
            await self._turn(run, row)
        if run.waiting_for:
            asked = question(spec, row, run.waiting_for, run.position, run.waiting_reason, self._at.clock.now())
            await self._at.store.append(asked)
        elif run.finished:
            await self._at.mailboxes.message_done(session.session_id, row.seq)

    async def _turn(self, run: Run, row: InboundRow) -> None:
        try:
            outcome = await self._engage(run, row)
        except Suspended:
            return
        except Diverged as error:
            outcome = Outcome("failed", f"I could not go on after an interruption: {error}", f"diverged: {error}")
        except (Corrupt, Retryable, Fenced):
            raise
        except BadInput as error:
            outcome = Outcome("failed", f"I could not finish this: {error}", str(error))
        except Exception as error:  # one poisoned message must end visibly and never stop its session
            log.exception("a run failed unexpectedly", run=run.spec.run_id)
            outcome = Outcome("failed", f"I could not finish this: {told(error)} (see state/daemon.log)", told(error))
        try:
            await self._finish(run, row, outcome)
        except BadInput as error:
            refused = f"my answer could not be kept: {error}"
            await self._finish(run, row, Outcome("failed", refused, str(error)))

    async def _finish(self, run: Run, row: InboundRow, outcome: Outcome) -> None:
        emission = ending(run.spec, row, outcome, self._at.clock.now())
        await run.finish(outcome.state, outcome.reason, emission)

    async def _engage(self, run: Run, row: InboundRow) -> Outcome:
        at, definition = self._at, self._at.agents[run.spec.agent]

        async def read_context(_key: str) -> Mapping[str, Any]:
            return {"persona": definition.persona, "earlier": recent(await self._exchanges(run.spec.session))}

        context = await run.perform("checkpoint", Effect.READ, {"read": "context"}, read_context)
        conversation = assemble(context["persona"], context["earlier"], row.body["text"])
        agent = Agent(at.model, at.tools(run.spec.session), offered(definition), run, at.clock)
        return await converse(agent, conversation)

    async def _exchanges(self, session: str) -> list[Mapping[str, Any]]:
        """What was said and done in the session before, newest first."""
        rows = await self._at.store.rows("session.exchanges", session, EXCHANGES)
        return [exchange(row["request"], row["answer"], await self._at.store.run_log(row["run_id"])) for row in rows]

    async def _stop(self, session: _Session, error: Exception, cause: "Cause | None" = None) -> None:
        """Say once, in the journal, that the session cannot go on and why; in the log alone if the journal is what fails.

        Said in the trace of the hop that it is about, once a hop and reason, so that whoever waits for an answer learns it.
        """
        reason = told(error)
        session.filled = False
        cause = cause or session.at
        session.at = None
        if session.stopped == reason and cause is None:
            return
        if session.stopped != reason:
            log.warning("a session stopped", session=session.session_id, reason=reason)
        session.stopped = reason
        body = {"session": session.session_id, "reason": reason}
        key = derived(cause.hop, reason) if cause else str(self._at.clock.now())
        note = self._note(session, "session.stopped", key, body, cause)
        try:
            await self._at.store.append(note)
        except Retryable as unwritten:
            log.warning("the journal cannot be written", reason=str(unwritten))

    def _note(
        self,
        session: _Session,
        kind: str,
        key: str,
        body: Mapping[str, Any],
        cause: "Cause | None" = None,
    ) -> Draft:
        return control_event(
            tenant=session.tenant, part="session", kind=kind, key=f"{session.session_id}:{key}",
            trace_id=cause.trace_id if cause else session.trace_id, parent_id=cause.hop if cause else None,
            occurred_at=self._at.clock.now(), body=body,
        )  # fmt: skip


def session_id(tenant: str, agent: str, room: str, thread: str) -> str:
    """The session that is the crossing of this agent, this room (`surface:group`) and this thread."""
    return derived("session", tenant, agent, room, thread)


def _room(event: Event) -> str:
    return f"{event.source}:{event.body.get('group', DEFAULT_GROUP)}"


def _message(event: Event) -> Mapping[str, Any]:
    return {
        "event": event.id, "trace": event.trace_id, "from": event.principal, "trust": event.trust.word,
        "text": str(event.body.get("text", "")), "room": _room(event), "thread": str(event.body.get("thread", "")),
    }  # fmt: skip
