"""What runs do: a message is put into its session's mailbox, the engine turns it into an answer, the answer ends the run.

The Body of the worker. A session whose files are damaged stops, says so, and goes on by itself once they are mended; the
others never notice.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import structlog

from rucher.daemon.emissions import Message, ending, message_of, questions, settled
from rucher.daemon.history import exchange
from rucher.daemon.offers import offered
from rucher.daemon.speaking import Speaker, speak
from rucher.engine.context import EXCHANGES, NOTES, assemble, noted, recent
from rucher.engine.loop import Agent, Outcome, converse
from rucher.instance.agents import AgentFile
from rucher.journal.store import JournalStore
from rucher.kernel.records import record
from rucher.kernel.run import Run
from rucher.kernel.spec import RunSpec, Versions
from rucher.kernel.steps import RunSteps, step_key
from rucher.mailbox.rows import Kind
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import BadInput, Corrupt, Denied, Diverged, Fenced, Retryable, RucherError, Suspended
from rucher.protocol.events import Draft, control_event
from rucher.protocol.ids import derived
from rucher.protocol.ports import Clock, Model, StepKind, Tools
from rucher.router.reasons import reason as told
from rucher.sandbox.mailboxes import Mailboxes

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Workplace:
    """What runs work with; wired by the daemon."""

    store: JournalStore
    clock: Clock
    mailboxes: Mailboxes
    model: Model
    tools: Callable[[str], Tools]
    agents: Mapping[str, AgentFile]
    files: Mapping[str, Path]
    """The owner's files that agents may propose changes of, by what they hold (see `speaking.PROPOSED`)."""


class Work:
    """The runs of this instance's agents."""

    def __init__(self, workplace: Workplace) -> None:
        self._at = workplace
        self._stopped: dict[str, str] = {}

    def versions(self, spec: RunSpec) -> Versions | None:
        """What the run would be begun with here; None for an agent that is no more, whose runs end by themselves."""
        agent = self._at.agents.get(spec.agent)
        return versions_of(agent) if agent else None

    async def prepare(self, run: Run) -> None:
        """Let the run ask its owner in the room that its message came from, and say what its agent says with its tools."""
        at, message = self._at, await self._message(run.spec)
        run.asks = lambda wait: questions(run.spec, message, wait, at.clock.now())
        run.emits = lambda step, request: speak(
            Speaker(run.spec, message, at.agents), step, request, at.clock.now(), lambda what: _text_of(at.files, what)
        )

    async def work(self, run: Run) -> None:
        """Bring the run to its end; see the Body of the worker."""
        message = await self._message(run.spec)
        seq = await self._at.mailboxes.use(
            run.spec.session,
            lambda box: box.put(Kind.MESSAGE, run.spec.hop or run.spec.run_id, message.row, self._at.clock.now()),
        )
        try:
            await self._turn(run, message)
        finally:
            if run.wish == "cancel":
                await self._end_calls_at_once(run)
        await self._at.mailboxes.message_done(run.spec.session, seq)
        await self._mended(run.spec)

    async def stop(self, run: Run, state: str, reason: str) -> None:
        """End the run in this state, and say so in its room, once no tool of it goes on anywhere."""
        await self._end_calls(run)
        message = await self._message(run.spec)
        await self._finish(run, message, Outcome(state, f"I stopped: {reason}.", reason))

    async def troubled(self, spec: RunSpec, error: Exception) -> None:
        """Say once in the journal that the session cannot go on and why; in the log alone if the journal is what fails.

        Said in the run's own trace, so that whoever waits for an answer learns it.
        """
        reason = told(error)
        if not isinstance(error, RucherError):
            log.error("a run failed unexpectedly", run=spec.run_id, exc_info=error)
        if self._stopped.get(spec.session) == reason:
            return
        log.warning("a session stopped", session=spec.session, reason=reason)
        body = {"session": spec.session, "run": spec.run_id, "reason": reason}
        try:
            await self._at.store.append(self._note(spec, "session.stopped", derived(spec.run_id, reason), body))
        except Retryable as unwritten:
            log.warning("the journal cannot be written", reason=str(unwritten))
        else:
            self._stopped[spec.session] = reason

    async def _end_calls_at_once(self, run: Run) -> None:
        """Do not leave it to `stop`, which waits until the run's children have ended, and whose log knows of no reads."""
        try:
            await self._end_calls(run)
        except RucherError as error:
            log.warning("a tool of a cancelled run is not ended yet", run=run.spec.run_id, reason=told(error))

    async def _end_calls(self, run: Run) -> None:
        keys = _open_calls(run)
        if not keys:
            return
        try:
            await self._at.tools(run.spec.session).cancel(keys)
        except Corrupt as error:
            # Its sandbox is ended, and in a session that cannot be read no other is started.
            log.warning("a run is ended in a damaged session", run=run.spec.run_id, reason=told(error))

    async def _mended(self, spec: RunSpec) -> None:
        rows = await self._at.store.rows("session.get", spec.session)
        if rows and rows[0]["state"] == "stopped":
            body = {"session": spec.session}
            await self._at.store.append(self._note(spec, "session.restarted", str(self._at.clock.now()), body))
        self._stopped.pop(spec.session, None)

    async def _message(self, spec: RunSpec) -> Message:
        event = await self._at.store.event(spec.event)
        if event is None:
            raise Corrupt(
                f"the message of run {spec.run_id} is not in the journal; put a backup of the journal in its place"
            )
        return message_of(event)

    async def _turn(self, run: Run, message: Message) -> None:
        try:
            outcome = settled(message, await self._engage(run, message))
        except Diverged as error:
            outcome = Outcome("failed", f"I could not go on after an interruption: {error}", f"diverged: {error}")
        except (Corrupt, Retryable, Fenced, Suspended):
            raise
        except BadInput as error:
            outcome = Outcome("failed", f"I could not finish this: {error}", str(error))
        except Exception as error:  # one poisoned message must end visibly and never stop its session
            log.exception("a run failed unexpectedly", run=run.spec.run_id)
            outcome = Outcome("failed", f"I could not finish this: {told(error)} (see state/daemon.log)", told(error))
        try:
            await self._finish(run, message, outcome)
        except BadInput as error:
            refused = f"my answer could not be kept: {error}"
            await self._finish(run, message, Outcome("failed", refused, str(error)))

    async def _finish(self, run: Run, message: Message, outcome: Outcome) -> None:
        emission = ending(run.spec, message, outcome, self._at.clock.now())
        await run.finish(outcome.state, outcome.reason, emission, result={"text": outcome.text})

    async def _engage(self, run: Run, message: Message) -> Outcome:
        at, definition = self._at, self._at.agents.get(run.spec.agent)
        if definition is None:
            return Outcome(
                "failed", f"I cannot work: there is no agent {run.spec.agent} any more.", "its agent is gone"
            )
        steps = RunSteps(run)

        async def read_context(_key: str) -> Mapping[str, Any]:
            earlier = recent(await self._exchanges(run.spec))
            return {"persona": definition.persona, "earlier": earlier, "unasked": await self._unasked(run)}

        context = await steps.perform(StepKind.CHECKPOINT, Effect.READ, {"read": "context"}, read_context)
        conversation = assemble(
            context["persona"], context["earlier"], message.request, str(context.get("unasked", ""))
        )
        agent = Agent(at.model, at.tools(run.spec.session), offered(definition), steps, at.clock)
        return await converse(agent, conversation)

    async def _exchanges(self, spec: RunSpec) -> list[Mapping[str, Any]]:
        """What was said and done in the session before, newest first."""
        before = (await self._at.store.rows("run.get", spec.run_id))[0]["seq"]
        rows = await self._at.store.rows("session.exchanges", spec.session, before, EXCHANGES)
        return [exchange(row["request"], row["answer"], await self._at.store.run_log(row["run_id"])) for row in rows]

    async def _unasked(self, run: Run) -> str:
        """What was said in the session without waking it, which no later run is told again.

        That it was heard is committed with the step that reads it.
        """
        session = run.spec.session
        rows = await self._at.store.rows("session.notes", session, NOTES + 1)
        if not rows:
            return ""
        events = [await self._at.store.event(row["event_id"]) for row in reversed(rows[:NOTES])]
        run.pen.hold(record("run.heard", {"run": run.spec.run_id, "session": session, "up_to": rows[0]["seq"]}))
        notes = [
            {"from": event.principal, "trust": event.trust.word, "text": str(event.body.get("text", ""))}
            for event in events
            if event is not None
        ]
        return noted(notes, more=len(rows) > NOTES)

    def _note(self, spec: RunSpec, kind: str, key: str, body: Mapping[str, Any]) -> Draft:
        return control_event(
            tenant=spec.tenant, part="session", kind=kind, key=f"{spec.session}:{key}", trace_id=spec.trace_id,
            parent_id=spec.hop or None, occurred_at=self._at.clock.now(), body=body,
        )  # fmt: skip


def _text_of(paths: Mapping[str, Path], what: str) -> str:
    """What an owner's file says now; empty when there is none. Raises Denied when it cannot be read."""
    try:
        return paths[what].read_bytes().decode() if paths[what].exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise Denied(f"The {what} cannot be read just now ({type(error).__name__}); tell the owner.") from error


@cache
def versions_of(agent: AgentFile) -> Versions:
    """What a run of this agent is begun with: hashes of its persona and of the tools that it is offered."""
    tools = [[spec.name, spec.description, spec.parameters, spec.effect.value] for spec in offered(agent)]
    return Versions(prompt=_hash(agent.persona), tools=_hash(json.dumps(tools, sort_keys=True)))


def _open_calls(run: Run) -> Sequence[str]:
    """The keys of tool calls that were asked for and have no result: some of them may be under way."""
    return [
        step_key(run.spec.run_id, name, step.attempt)
        for name, step in run.log.steps.items()
        if step.kind == StepKind.TOOL_CALL and step.result is None
    ]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
