"""`RunSteps`: the Steps port over one run, or over one branch of it. Recorded steps come back as they are, new ones are done.

A step is numbered when it is asked for: `3`, and in the second of the branches that stand for step 4, `4.2.1`. So ordinary code
with loops and parallel branches asks for the same steps under the same numbers whenever it is run again with the same answers.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from rucher.journal.rows import RunWrite, encoded
from rucher.kernel.budgets import lost, to_reserve, used_by
from rucher.kernel.contents import MAX_CONTENT, SMALL, kept, whole
from rucher.kernel.recall import Recalled
from rucher.kernel.records import Record, asked, intended, record, recorded, spent, unintended
from rucher.kernel.run import Run
from rucher.kernel.spec import RunSpec
from rucher.kernel.waits import UNCERTAIN, Item, Mode, Outcome, child, event, question, timer
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import Denied, Diverged, Exhausted, Uncertain
from rucher.protocol.events import Draft
from rucher.protocol.ids import caused
from rucher.protocol.ports import Proof, StepKind
from rucher.protocol.replies import reply_topic

Act = Callable[[str], Awaitable[Mapping[str, Any]]]
Probe = Callable[[str], Awaitable[Proof]]
_STEERS = {"read": "steers"}
_NOTHING: Mapping[str, Any] = {}


class RunSteps:
    """The steps of a run (`prefix` empty) or of one branch."""

    def __init__(self, run: Run, prefix: str = "") -> None:
        self._run = run
        self._prefix = prefix
        self._count = 0

    async def perform(
        self,
        kind: StepKind,
        effect: Effect,
        request: Mapping[str, Any],
        act: Act,
        probe: Probe | None = None,
        most: Mapping[str, int] | None = None,
    ) -> Mapping[str, Any]:
        """The recorded result of the next step, or that of `act(key)`; see the Steps port.

        Raises Suspended, with the run parked, when nothing can tell whether an interrupted act happened.
        """
        run, step = self._run, self._next()
        text, hashed = asked(kind, request)
        past = self._recalled(step, kind, hashed)
        if past is not None and past.result is not None:
            return await whole(run.shared.artifacts, past.result)
        if run.wish:
            await run.obey(step)
        stored: list[Record] = []
        if len(text) > SMALL:
            text, stored = await kept(run.shared.artifacts, run.spec.run_id, text, request)
        asked_for = _Asked(step, effect, text, most or _NOTHING)
        now = Recalled(kind, hashed)
        if past is not None:
            now.attempt, now.reserved = past.attempt, past.reserved
        try:
            await run.pen.write(*stored, *self._before(asked_for, past, now))
        except Exhausted:
            self._count -= 1  # nothing was done, so what is asked for next is this step
            raise
        run.log.steps[step] = now
        key = step_key(run.spec.run_id, step, now.attempt)
        began = run.shared.clock.monotonic() if run.spec.accounts else 0.0
        try:
            if probe is not None and past is not None and past.intended and effect is Effect.NON_IDEMPOTENT:
                await _demand_proof(kind, probe, key)
            result = await act(key)
        except Uncertain as error:
            await self._ask_the_owner(asked_for, now, str(error))
            raise
        body = encoded(result, "a step's result", MAX_CONTENT)
        if len(body) > SMALL:
            body, stored = await kept(run.shared.artifacts, run.spec.run_id, body, result)
            run.pen.hold(*stored)
        self._after(asked_for, now, body, result, began)
        return result

    def _before(self, asked_for: "_Asked", past: Recalled | None, now: Recalled) -> list[Record]:
        """What is committed, with the results not yet written, before anything is done: the intention, and a reservation.

        A read needs no intention: it is simply done again. The results before it are committed all the same, because
        nothing says how long it takes. What budgets must hold back for the step is in the same commit.
        """
        spec, step, records = self._run.spec, asked_for.step, []
        if past is not None and past.intended and asked_for.effect is Effect.MODEL_CALL:
            records.append(spent(spec.run_id, step, spec.accounts, lost(past.reserved), past.reserved, lost=True))
            now.reserved = _NOTHING
        if spec.accounts and not now.reserved:
            now.reserved = to_reserve(now.kind, asked_for.most)
            body = {
                "run": spec.run_id, "step": step, "kind": now.kind, "request_hash": now.request_hash,
                "accounts": list(spec.accounts), "amounts": now.reserved,
            }  # fmt: skip
            records.append(record("budget.reserved", body))
        if asked_for.effect is not Effect.READ:
            now.intended = True
            records.append(_intention(spec.run_id, asked_for, now))
        return records

    def _after(self, asked_for: "_Asked", now: Recalled, body: str, result: Mapping[str, Any], began: float) -> None:
        """Hold the step's result for the next write, with what it cost; what was written is not kept in memory."""
        run, spec, step = self._run, self._run.spec, asked_for.step
        more = unintended(now.request_hash, asked_for.text) if asked_for.effect is Effect.READ else ""
        run.pen.hold(recorded(spec.run_id, step, now.kind, now.attempt, body, more))
        if spec.accounts or "usage" in result:
            wall = round((run.shared.clock.monotonic() - began) * 1e6) if spec.accounts else 0
            used = used_by(now.kind, result, wall)
            run.pen.hold(spent(spec.run_id, step, spec.accounts, used, now.reserved))
        now.result, now.reserved = _NOTHING, _NOTHING

    async def note(self, kind: StepKind, request: Mapping[str, Any], result: Mapping[str, Any]) -> Mapping[str, Any]:
        """A step that acts on nothing (checkpoint, compaction, verdict): committed with its result, and recalled as it was."""
        step, (text, hashed) = self._next(), asked(kind, request)
        past = self._recalled(step, kind, hashed)
        if past is not None and past.result is not None:
            return await whole(self._run.shared.artifacts, past.result)
        await self._run.obey(step)
        await self._note(step, kind, hashed, text, result)
        return result

    async def told(self) -> Sequence[str]:
        """What the owner said to this run since it was last asked; see the Steps port."""
        text, hashed = asked(StepKind.CHECKPOINT, _STEERS)
        past = self._run.log.steps.get(self._name(self._count + 1))
        if past is not None and past.kind:
            if past.request_hash != hashed:
                return ()
            self._next()
            return list((await whole(self._run.shared.artifacts, past.result or {})).get("texts", ()))
        rows = await self._run.shared.store.rows("run.steers", self._run.spec.run_id, self._run.log.steered)
        if not rows:
            return ()
        newest = rows[-1]["seq"]
        texts = [row["text"] for row in rows]
        await self._note(self._next(), StepKind.CHECKPOINT, hashed, text, {"texts": texts}, more=f',"steered":{newest}')
        self._run.log.steered = newest
        return texts

    def branches(self, count: int) -> Sequence["RunSteps"]:
        """So many branches beneath the next step; see the Steps port."""
        step = self._next()
        return [RunSteps(self._run, f"{step}.{number}.") for number in range(1, count + 1)]

    async def wait(
        self, kind: StepKind, request: Mapping[str, Any], reason: str, items: Sequence[Item], mode: Mode = "all"
    ) -> Sequence[Outcome | None]:
        """The outcomes of `items`, in order: of all of them, or of those that came first (None for the others).

        Until they are there the run is parked: raises Suspended, and whoever resumes it comes back here.
        """
        step, (text, hashed) = self._next(), asked(kind, request)
        brought = await self._brought(step, kind, hashed, text)
        if brought is not None:
            return brought
        if not items:
            await self._note(step, kind, hashed, text, {"outcomes": []})
            return []
        await self._run.obey(step)
        await self._run.suspend(step, reason, kind.value, items, mode)
        raise AssertionError("suspend always raises")

    async def _brought(self, step: str, kind: StepKind, hashed: str, text: str) -> Sequence[Outcome | None] | None:
        """What the wait at this step has brought; None while that is not known, or before it began."""
        run = self._run
        past = self._recalled(step, kind, hashed)
        if past is not None and past.result is not None:
            return list((await whole(run.shared.artifacts, past.result))["outcomes"])
        if run.log.waiting_for != step or run.met is None:
            return None
        outcomes = list(run.met)
        over = record("wait.over", {"run": run.spec.run_id, "step": step})
        await self._note(step, kind, hashed, text, {"outcomes": outcomes}, over)
        await run.wait_over()
        return outcomes

    async def emit(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Say something, in the same commit as this step; see the Steps port."""
        kind, run = StepKind.TOOL_CALL, self._run
        step, (text, hashed) = self._next(), asked(kind, request)
        past = self._recalled(step, kind, hashed)
        if past is not None and past.result is not None:
            return await whole(run.shared.artifacts, past.result)
        await run.obey(step)
        drafts: Sequence[Draft] = ()
        try:
            emitted = run.emits(step, request)
        except Denied as error:
            result = {"ok": False, "text": str(error)}
        else:
            drafts, result = emitted.drafts, {"ok": True, "text": emitted.told, "event": emitted.drafts[0].id}
        await self._note(step, kind, hashed, text, result, beside=drafts)
        return result

    async def consult(self, request: Mapping[str, Any], expires_in_s: float) -> Outcome:
        """Ask another agent, in the same commit as the wait for its reply; see the Steps port."""
        kind, run = StepKind.TOOL_CALL, self._run
        step, (text, hashed) = self._next(), asked(kind, request)
        brought = await self._brought(step, kind, hashed, text)
        if brought is not None:
            return brought[0] or {}
        await run.obey(step)
        try:
            emitted = run.emits(step, request)
        except Denied as error:
            refused = {"ok": False, "text": str(error)}
            await self._note(step, kind, hashed, text, {"outcomes": [refused]})
            return refused
        item = event(reply_topic(emitted.drafts[0].id), run.shared.clock.now() + round(expires_in_s * 1e6))
        await run.suspend(step, emitted.told, kind.value, [item], said=emitted.drafts)
        raise AssertionError("suspend always raises")

    async def ask(self, question_text: str, expires_in_s: float | None) -> Outcome:
        """The owner's answer; see the Steps port."""
        step, run = self._name(self._count + 1), self._run
        due = None if expires_in_s is None else run.shared.clock.now() + round(expires_in_s * 1e6)
        item = question(f"ask:{run.spec.run_id}:{step}:{run.pen.position}", due)
        request = {"question": question_text, "expires_in_s": expires_in_s}
        (answer,) = await self.wait(StepKind.WAIT_HUMAN, request, question_text, [item])
        return answer or {}

    async def sleep(self, seconds: float) -> None:
        """Go on after so many seconds; see the Steps port."""
        at = self._run.shared.clock.now() + round(seconds * 1e6)
        await self.wait(StepKind.TIMER, {"seconds": seconds}, f"until {seconds:g} seconds have passed", [timer(at)])

    async def spawn(self, request: Mapping[str, Any], spec: Callable[[str], RunSpec]) -> str:
        """The id of a child run, created in the same commit as this step; `spec` is handed the id that it must have."""
        kind = StepKind.SPAWN
        step, (text, hashed) = self._next(), asked(kind, request)
        past = self._recalled(step, kind, hashed)
        if past is not None and past.result is not None:
            return str(past.result["run"])
        await self._run.obey(step)
        made = spec(caused(self._run.spec.run_id, "child", step))
        born = RunWrite(made.head, 0, 0, self._run.shared.clock.now(), [record("run.created", made.created())])
        await self._note(step, kind, hashed, text, {"run": made.run_id}, beside=[born])
        self._run.log.spawned = True
        return made.run_id

    async def join(self, runs: Sequence[str], mode: Mode = "all") -> Sequence[Outcome | None]:
        """How these runs, which this one has spawned, ended: each outcome has `state`, `reason` and `result`."""
        items = [child(run) for run in runs]
        return await self.wait(StepKind.JOIN, {"runs": list(runs), "mode": mode}, "waits for its children", items, mode)

    async def _note(  # noqa: PLR0913 - what a step consists of
        self, step: str, kind: StepKind, hashed: str, text: str, result: Mapping[str, Any], *more_records: Record,
        beside: Sequence[Draft | RunWrite] = (), more: str = "",
    ) -> None:  # fmt: skip
        run, spec = self._run, self._run.spec
        text, stored = await kept(run.shared.artifacts, spec.run_id, text, {})
        body, also = await kept(
            run.shared.artifacts, spec.run_id, encoded(result, f"a {kind.value}'s result", MAX_CONTENT), result
        )
        noted = recorded(spec.run_id, step, kind, 1, body, unintended(hashed, text) + more)
        await run.pen.write(*stored, *also, noted, *more_records, beside=beside)
        run.log.steps[step] = Recalled(kind, hashed, result=_NOTHING)

    async def _ask_the_owner(self, asked_for: "_Asked", now: Recalled, reason: str) -> None:
        """Park the run until its owner says what became of this step. Raises Suspended."""
        run = self._run
        step = asked_for.step
        if asked_for.effect is Effect.READ:
            run.pen.hold(_intention(run.spec.run_id, asked_for, now))
        await run.suspend(
            step, reason, "uncertain", [question(uncertain_topic(run.spec.run_id, step, run.pen.position))]
        )

    def _next(self) -> str:
        self._count += 1
        return self._name(self._count)

    def _name(self, number: int) -> str:
        return f"{self._prefix}{number}"

    def _recalled(self, step: str, kind: StepKind, hashed: str) -> Recalled | None:
        """What the log knows of this step; raises Diverged when that is another step than this one."""
        past = self._run.log.steps.get(step)
        if past is None or not past.kind:
            return None
        if past.kind != kind or (past.request_hash != hashed and not past.trusted):
            raise Diverged(
                f"step {step} of run {self._run.spec.run_id} was recorded for another request; it cannot be replayed"
            )
        return past


def step_key(run_id: str, step: str, attempt: int) -> str:
    """What the executor of a step knows it by, over all restarts: BLAKE2b-128 over its run, its number and the attempt."""
    return blake2b(f"{run_id}:{step}:{attempt}".encode(), digest_size=16).hexdigest()


def uncertain_topic(run_id: str, step: str, place: int) -> str:
    """The topic under which the owner says what became of a step that was interrupted when the log was this long."""
    return f"{UNCERTAIN}{run_id}:{step}:{place}"


@dataclass(slots=True)
class _Asked:
    """A step as it was asked for: its number, its request as the journal holds it, and the most that it may use."""

    step: str
    effect: Effect
    text: str
    most: Mapping[str, int]


def _intention(run_id: str, asked_for: _Asked, now: Recalled) -> Record:
    return intended(
        run=run_id, step=asked_for.step, kind=now.kind, effect=asked_for.effect, attempt=now.attempt,
        hashed=now.request_hash, request=asked_for.text,
    )  # fmt: skip


async def _demand_proof(kind: StepKind, probe: Probe, key: str) -> None:
    if await probe(key) is Proof.UNKNOWN:
        raise Uncertain(f"{kind.value}: it was intended before an interruption, and nothing tells whether it ran.")
