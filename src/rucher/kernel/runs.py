"""`Kernel` opens runs, `Run` journals their steps. Called by whoever supervises a session; the engine sees a port.

Every write carries the run's next position and the fence of this acquisition, so that a former owner that wakes up late
can write nothing. The result of a step travels in the same commit as the intention of the next.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from rucher.kernel.recall import Recalled, RunLog, recall
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import BadInput, Diverged, Fenced, Suspended, Uncertain
from rucher.protocol.events import Draft, Event, RunPosition, control_event
from rucher.protocol.ids import derived, ulid
from rucher.protocol.ports import Clock, Entropy, Journal, Proof

ENGINE_VERSION = 1
"""Raised by hand when recorded steps can no longer be replayed by this code; never derived from the source."""

Act = Callable[[str], Awaitable[Mapping[str, Any]]]
Probe = Callable[[str], Awaitable[Proof]]


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What a run is about; `hop` is the hop that caused it and gives it its id, so that one hop never has two runs."""

    hop: str
    session: str
    agent: str
    model: str
    tenant: str
    trace_id: str
    run_id: str = field(init=False)
    """The id of the run that this hop causes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "run_id", derived("run", self.hop))


class RunLogs(Journal, Protocol):
    """What the kernel needs of a store: the journal, and one run's events in the run's own order."""

    async def run_log(self, run_id: str) -> Sequence[Event]:
        """The events of one run."""
        ...


class Kernel:
    """Opens, resumes and resolves runs, under a random name of its own so that two processes can never be confused."""

    def __init__(self, journal: RunLogs, clock: Clock, entropy: Entropy) -> None:
        self._journal = journal
        self._clock = clock
        self._worker = ulid(clock.now(), entropy.bytes(10))

    async def open(self, spec: RunSpec) -> "Run":
        """Create the run if it is new, and take it over: from here on, whoever held it before can write nothing.

        A run that is finished, or waits for its owner, is returned as it is and not taken.
        """
        log = recall(await self._journal.run_log(spec.run_id))
        run = Run(self._journal, self._clock, spec, log, self._worker)
        if not log.finished and not log.waiting_for:
            await run.acquire()
        return run

    async def resolve(self, spec: RunSpec, step: str, result: Mapping[str, Any] | None) -> None:
        """Write the owner's word about an uncertain step: its result, or None to have it done again.

        Raises BadInput when the run does not wait for that step.
        """
        log = recall(await self._journal.run_log(spec.run_id))
        if not step or log.waiting_for != step:
            waits = f"it waits for step {log.waiting_for}" if log.waiting_for else "it waits for nothing"
            raise BadInput(f"run {spec.run_id} does not wait for step {step}; {waits}")
        run = Run(self._journal, self._clock, spec, log, self._worker)
        await run.acquire(step, result)


class Run:
    """One run while this process owns it: the Steps port for the engine, and its beginning and end."""

    def __init__(self, journal: Journal, clock: Clock, spec: RunSpec, log: RunLog, worker: str) -> None:
        self.spec = spec
        self.finished = log.finished
        self.waiting_for = log.waiting_for
        self.waiting_reason = log.waiting_reason
        self._journal = journal
        self._clock = clock
        self._past = log.steps
        self._worker = worker
        self._next_seq = log.next_seq
        self._fence = log.fence
        self._count = 0
        self._unwritten: list[Draft] = []
        self._poisoned = False

    @property
    def position(self) -> int:
        """Where the run's next event will stand in its own log."""
        return self._next_seq

    async def acquire(self, resolved: str = "", result: Mapping[str, Any] | None = None) -> None:
        """Take the run, and with it write the owner's word about step `resolved` if there is one.

        Raises Fenced when another process took it at the same moment.
        """
        drafts = []
        if self._next_seq == 0:
            body = asdict(self.spec) | {"engine_version": ENGINE_VERSION}
            drafts.append(self._draft("run.created", body))
        self._fence = self._next_seq
        drafts.append(self._draft("run.acquired", {"worker": self._worker}, writer=self._worker))
        if resolved and result is None:
            drafts.append(self._draft("step.reopened", {"step": resolved, "by": "owner"}))
        elif resolved:
            drafts.append(self._recorded(resolved, replace(self._past[resolved], result=result), {"by": "owner"}))
        appended = await self._journal.append(*drafts)
        if not all(each.first for each in appended if each.event.type != "run.created"):
            raise Fenced(f"run {self.spec.run_id} was acquired twice at the same position")

    async def perform(
        self, kind: str, effect: Effect, request: Mapping[str, Any], act: Act, probe: Probe | None = None
    ) -> Mapping[str, Any]:
        """The recorded result of the run's next step, or that of `act(key)`; see the Steps port.

        Raises Suspended, with the run parked, when `act` cannot tell whether an interrupted act happened.
        """
        self._count += 1
        step = str(self._count)
        asked = _hash(kind, request)
        past = self._past.get(step)
        if past is not None and past.request_hash != asked:
            raise Diverged(
                f"step {step} of run {self.spec.run_id} was recorded for another request; it cannot be replayed"
            )
        if past is not None and past.result is not None:
            return past.result
        attempt = await self._intend(step, kind, effect, request, asked, past)
        key = derived("step", self.spec.run_id, step, str(attempt))
        unfinished = past is not None and past.intended and effect is Effect.NON_IDEMPOTENT
        try:
            if unfinished and probe is not None:
                await _demand_proof(kind, probe, key)
            result = await act(key)
        except Uncertain as error:
            intended = (
                [self._intended(step, effect, request, Recalled(kind, asked, attempt))] if effect is Effect.READ else []
            )
            await self._write(*intended, self._draft("run.waiting", {"step": step, "reason": str(error)}))
            self.waiting_for, self.waiting_reason = step, str(error)
            raise Suspended(self.spec.run_id, step, str(error)) from error
        more = {"request": dict(request)} if effect is Effect.READ else {}
        self._unwritten.append(self._recorded(step, Recalled(kind, asked, attempt, result=result), more))
        return result

    async def finish(self, state: str, reason: str, *emissions: Draft) -> None:
        """End the run in a terminal state; what it emits is committed in the same transaction."""
        await self._write(
            self._draft("run.finished", {"state": state, "reason": reason, "hop": self.spec.hop}), *emissions
        )
        self.finished = state

    async def _intend(
        self, step: str, kind: str, effect: Effect, request: Mapping[str, Any], asked: str, past: Recalled | None
    ) -> int:
        """Commit the step's intention, with the results not yet written, before anything is done; returns the attempt.

        A read needs no intention: it is simply done again. The results before it are committed all the same, because
        nothing says how long it takes.
        """
        attempt = past.attempt if past else 1
        if effect is Effect.READ:
            await self._write()
        else:
            await self._write(self._intended(step, effect, request, Recalled(kind, asked, attempt)))
        return attempt

    async def _write(self, *drafts: Draft) -> None:
        """Append in position order; after a first failure this owner writes no more, or a later unit could land alone.

        BadInput is no such failure: surely nothing was written, so what could not be stored is dropped, and the run can
        still be finished.
        """
        if self._poisoned:
            raise Fenced(f"run {self.spec.run_id} had a failed write; it must be opened again")
        batch, self._unwritten = (*self._unwritten, *drafts), []
        if not batch:
            return
        try:
            await self._journal.append(*batch)
        except BadInput:
            self._next_seq = min(draft.run.seq for draft in batch if draft.run)
            raise
        except BaseException:
            self._poisoned = True
            raise

    def _intended(self, step: str, effect: Effect, request: Mapping[str, Any], asked: Recalled) -> Draft:
        body = {
            "step": step, "kind": asked.kind, "effect": effect.value, "attempt": asked.attempt,
            "request_hash": asked.request_hash, "request": dict(request),
        }  # fmt: skip
        return self._draft("step.intended", body)

    def _recorded(self, step: str, past: Recalled, more: Mapping[str, Any]) -> Draft:
        body = {
            "step": step, "kind": past.kind, "attempt": past.attempt, "request_hash": past.request_hash,
            "result": dict(past.result or {}), "usage": (past.result or {}).get("usage", {}),
        }  # fmt: skip
        return self._draft("step.recorded", body | dict(more))

    def _draft(self, kind: str, body: Mapping[str, Any], writer: str = "") -> Draft:
        """The run's next event; its id names the writer, so that two owners' events at one position collide."""
        spec, seq = self.spec, self._next_seq
        self._next_seq += 1
        return control_event(
            tenant=spec.tenant, part="kernel", kind=kind, key=f"{spec.run_id}:{seq}:{writer or self._fence}",
            trace_id=spec.trace_id, parent_id=spec.hop, occurred_at=self._clock.now(),
            body={"run": spec.run_id, **body}, run=RunPosition(spec.run_id, seq, self._fence),
        )  # fmt: skip


async def _demand_proof(kind: str, probe: Probe, key: str) -> None:
    if await probe(key) is Proof.UNKNOWN:
        raise Uncertain(f"{kind}: it was intended before an interruption, and nothing tells whether it ran.")


def _hash(kind: str, request: Mapping[str, Any]) -> str:
    text = json.dumps([kind, request], ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
