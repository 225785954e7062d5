"""What an owner orders about a run: cancel, pause, resume, steer, answer, migrate, fork. Each is an event with its author.

Called by the interface. An order changes what the run may do next; its worker learns of it from the views and obeys at its
next step. Nothing here touches a run's own log but `fork`, which begins a new one.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rucher.journal.rows import RunWrite
from rucher.kernel.pen import RunStore
from rucher.kernel.records import Record, record
from rucher.kernel.runs import VERDICTS
from rucher.kernel.spec import TERMINAL, RunSpec, run_of_row
from rucher.kernel.waits import UNCERTAIN
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import BadInput, Fenced
from rucher.protocol.events import Draft, Event, control_event
from rucher.protocol.ids import caused, nested
from rucher.protocol.ports import Appended, Clock


class OrderStore(RunStore, Protocol):
    """What orders need of a store."""

    async def append(self, *drafts: Draft) -> tuple[Appended, ...]:
        """Commit all drafts in one transaction."""
        ...

    async def run_log(self, run_id: str) -> Sequence[Event]:
        """The events of one run, in the run's own order."""
        ...


@dataclass(frozen=True, slots=True)
class Repeat:
    """A side effect that the branch of a fork may have a second time."""

    step: str
    effect: str
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fork:
    """A new run that begins like an old one: `kept` steps are taken over, and what comes after them may have `repeats`."""

    run_id: str
    kept: int
    repeats: Sequence[Repeat]


class Orders:
    """Of the owner `by` (a principal). `key` makes an order given twice one order."""

    def __init__(self, store: OrderStore, clock: Clock, by: str) -> None:
        self._store = store
        self._clock = clock
        self._by = by

    async def cancel(self, run_id: str, key: str, reason: str = "") -> None:
        """End the run and all of its children, from the root to the leaves. Raises BadInput when it has ended."""
        await self._order(run_id, "run.cancelling", key, {"reason": reason})

    async def pause(self, run_id: str, key: str) -> None:
        """Let the run go no further than the step that it is in. Raises BadInput when it has ended or is paused."""
        await self._order(run_id, "run.paused", key, {})

    async def resume(self, run_id: str, key: str) -> None:
        """Let a paused run go on. Raises BadInput when it is not paused."""
        await self._order(run_id, "run.resumed", key, {})

    async def steer(self, run_id: str, key: str, text: str) -> None:
        """Tell the run something, which it reads before its next turn. Raises BadInput when it has ended."""
        await self._order(run_id, "run.steered", key, {"text": text})

    async def resolve(self, run_id: str, step: str, verdict: str) -> None:
        """Say what became of an uncertain step: `ran`, `not-run` (it is done again) or `failed`. Raises BadInput."""
        if verdict not in VERDICTS:
            raise BadInput(f"{verdict!r} is no verdict; say one of {', '.join(VERDICTS)}")
        await self._signal(run_id, step, "resolve", {"verdict": verdict})

    async def answer(self, run_id: str, step: str, outcome: Mapping[str, Any]) -> None:
        """Answer the question, or with `approved` decide the approval, that the run waits for here. Raises BadInput."""
        await self._signal(run_id, step, "decide" if "approved" in outcome else "answer", outcome)

    async def migrate(self, run_id: str) -> None:
        """Let a run that another version began go on with this one. Raises BadInput when it does not wait for that."""
        await self._signal(run_id, "", "migrate", {"agreed": True})

    async def fork_preview(self, run_id: str, step: str) -> Fork:
        """What `fork` would do; raises BadInput for an unknown run or step."""
        old = await self._spec(run_id)
        return _fork(old, await self._log(old), step, "")[0]

    async def fork(self, run_id: str, step: str, key: str, text: str = "") -> Fork:
        """Begin a new run with the recorded steps of this one that come before `step`, and tell it `text` if there is any.

        The files that its tools work on are as they are now, not as they were then. Raises BadInput as `fork_preview`.
        """
        old = await self._spec(run_id)
        fork, new, records = _fork(old, await self._log(old), step, key)
        now = self._clock.now()
        steered = [self._event(new, "run.steered", f"{new.run_id}:{key}", {"text": text})] if text else []
        with suppress(Fenced):  # given a second time, the order is one order
            await self._store.write(RunWrite(new.head, 0, 0, now, records, steered))
        return fork

    async def _log(self, spec: RunSpec) -> Sequence[Event]:
        """The run's own log; raises BadInput when its beginning, or the message that it works on, was archived."""
        for needed in (nested(spec.run_id, 0), spec.event):
            if await self._store.rows("archived.seq", needed):
                raise BadInput(
                    f"run {spec.run_id} cannot be begun anew, as its events were archived; "
                    f"see them with `rucher trace {spec.trace_id}`"
                )
        return await self._store.run_log(spec.run_id)

    async def _signal(self, run_id: str, step: str, asked: str, outcome: Mapping[str, Any]) -> None:
        """Signal what the run waits for at this step; the first word counts, a second one is told so."""
        row = await self._row(run_id)
        waits = [wait for wait in await self._store.rows("run.waits", run_id) if wait["kind"] in _ASKED]
        here = [wait for wait in waits if wait["step"] == step]
        meant = [wait for wait in here if asked_by(wait) == asked]
        if row["wish"] == "cancel" and row["state"] not in TERMINAL:
            raise BadInput(f"run {run_id} {_fault('', row)}")
        if not meant:
            raise BadInput(_not_asked(row, waits, here, step, asked))
        spec = run_of_row(row)
        for wait in meant:
            _demand_time(wait)
            body = {"run": run_id, "topic": wait["topic"], "outcome": dict(outcome)}
            (appended,) = await self._store.append(self._event(spec, "signal.sent", wait["topic"], body))
            if not appended.first and appended.event.body["outcome"] != body["outcome"]:
                raise BadInput(f"this was decided already, by {appended.event.principal}; nothing was changed")
            for now in await self._store.rows("run.waits", run_id):
                if now["topic"] == wait["topic"]:
                    _demand_time(now)

    async def _order(self, run_id: str, kind: str, key: str, body: Mapping[str, Any]) -> None:
        row = await self._row(run_id)
        draft = self._event(run_of_row(row), kind, f"{run_id}:{key}", {"run": run_id, **body})
        fault = _fault(kind, row)
        if fault and not await self._store.rows("event.by_id", draft.id):
            raise BadInput(f"run {run_id} {fault}")
        await self._store.append(draft)
        if not fault and kind != "run.cancelling" and (await self._row(run_id))["state"] in TERMINAL:
            raise BadInput(f"run {run_id} ended before it could heed this; see `rucher runs {run_id}`")

    async def _row(self, run_id: str) -> Mapping[str, Any]:
        rows = await self._store.rows("run.get", run_id)
        if not rows:
            raise BadInput(f"there is no run {run_id}; see `rucher runs`")
        return rows[0]

    async def _spec(self, run_id: str) -> RunSpec:
        """The run with the ceilings of its own account, which a fork of it has too."""
        budget = await self._store.rows("run.budget", run_id)
        own = {line["measure"]: line["ceiling"] for line in budget if line["ceiling"] is not None}
        return replace(run_of_row(await self._row(run_id)), ceilings={run_id: own})

    def _event(self, spec: RunSpec, kind: str, key: str, body: Mapping[str, Any]) -> Draft:
        draft = control_event(
            tenant=spec.tenant, part="kernel", kind=kind, key=key, trace_id=spec.trace_id, parent_id=spec.hop or None,
            occurred_at=self._clock.now(), body={"run": spec.run_id, **body},
        )  # fmt: skip
        return replace(draft, principal=self._by)


def _demand_time(wait: Mapping[str, Any]) -> None:
    """Raise BadInput when the time for an answer ran out before there was one."""
    if wait["state"] == "met" and (came := json.loads(wait["outcome"])).get("expired"):
        raise BadInput(f"this is too late: {came.get('reason', 'the time for an answer is over')}; nothing was changed")


_ASKED = {"question": "answer", "approval": "decide", "migration": "migrate"}
_COMMANDS = {
    "resolve": "rucher run resolve {run} {step} ran|not-run|failed",
    "answer": "rucher run answer {run} {step} TEXT",
    "decide": "rucher run answer {run} {step} --approve|--refuse",
    "migrate": "rucher run migrate {run}",
}


def asked_by(wait: Mapping[str, Any]) -> str:
    """What the owner is asked to do by a row of `waits`: `resolve`, `answer`, `decide` or `migrate`; empty for nothing."""
    uncertain = wait["kind"] == "question" and wait["topic"].startswith(UNCERTAIN)
    return "resolve" if uncertain else _ASKED.get(wait["kind"], "")


def command_for(wait: Mapping[str, Any]) -> str:
    """The command by which the owner does what this wait asks for; empty when it asks nothing of him."""
    asked = asked_by(wait)
    return _COMMANDS[asked].format(run=wait["run_id"], step=wait["step"]) if asked else ""


def _not_asked(
    row: Mapping[str, Any], waits: Sequence[Mapping[str, Any]], here: Sequence[Mapping[str, Any]], step: str, asked: str
) -> str:
    run_id = row["run_id"]
    if here or (waits and asked == "migrate"):
        return f"run {run_id} asks for something else; use: {command_for((here or waits)[0])}"
    if waits:
        return (
            f"run {run_id} asks nothing at step {step!r}; it waits at step {waits[0]['step']}: {command_for(waits[0])}"
        )
    what = "to be migrated" if asked == "migrate" else f"for an answer at step {step!r}"
    return f"run {run_id} does not wait {what}; it is {row['state']}: see `rucher runs {run_id}`"


def _fault(kind: str, row: Mapping[str, Any]) -> str:
    """Why the run cannot be given this order now; empty when it can."""
    if row["state"] in TERMINAL:
        return f"has ended ({row['state']}); begin a new one from one of its steps with `rucher run fork`"
    if row["wish"] == "cancel":
        return "is being cancelled; nothing else can be done with it"
    if kind == "run.paused" and row["wish"] == "pause":
        return "is paused already; let it go on with `rucher run resume`"
    if kind == "run.resumed" and row["wish"] != "pause":
        return f"is not paused; it is {row['state']}"
    return ""


def _fork(old: RunSpec, log: Sequence[Event], step: str, key: str) -> tuple[Fork, RunSpec, list[Record]]:
    """The fork, the new run and the first records of its log: pure."""
    steps = [event for event in log if event.type in ("step.intended", "step.recorded")]
    names = list(dict.fromkeys(event.body["step"] for event in steps))
    if step not in names:
        known = f"its steps are {', '.join(names[:20])}{' ...' if len(names) > 20 else ''}" if names else "it has none"  # noqa: PLR2004 - as many as fit a line
        raise BadInput(f"run {old.run_id} has no step {step!r}; {known}")
    cut = next(number for number, event in enumerate(steps) if event.body["step"] == step)
    intentions = {event.body["step"]: event.body for event in steps if event.type == "step.intended"}
    later = {event.body["step"] for event in steps[cut:] if event.type == "step.intended"}
    kept = {
        event.body["step"]: event.body
        for event in steps[:cut]
        if event.type == "step.recorded" and event.body["step"] not in later
    }
    run_id = caused(old.run_id, "fork", step, key)
    accounts = tuple(run_id if account == old.run_id else account for account in old.accounts)
    new = replace(old, run_id=run_id, parent="", accounts=accounts, ceilings={run_id: old.ceilings.get(old.run_id, {})})
    created = new.created() | {"forked": {"run": old.run_id, "step": step}}
    records = [record("run.created", created)]
    migrated = max((place for place, event in enumerate(log) if event.type == "run.migrated"), default=0)
    trusted = {event.body["step"] for event in log[:migrated] if event.type == "step.recorded"}
    records += [
        record("step.recorded", _copied(body, intentions.get(name, {}), run_id, old.run_id, trusted=name in trusted))
        for name, body in kept.items()
    ]
    repeats = [
        Repeat(body["step"], body["effect"], body["request"])
        for name, body in intentions.items()
        if name not in kept and body["effect"] in (Effect.IDEMPOTENT_WRITE, Effect.NON_IDEMPOTENT)
    ]
    return Fork(run_id, len(kept), repeats), new, records


def _copied(
    body: Mapping[str, Any], intention: Mapping[str, Any], run_id: str, old: str, *, trusted: bool
) -> dict[str, Any]:
    said = {name: intention[name] for name in ("request_hash", "request") if name in intention}
    return {**said, **body, "run": run_id, "from": old} | ({"trusted": True} if trusted else {})
