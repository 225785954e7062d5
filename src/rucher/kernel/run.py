"""`Run`: one run while this process owns it: what it is, how it is parked and how it ends. Its steps are in `steps.py`."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rucher.journal.artifacts import Artifacts
from rucher.journal.rows import encoded
from rucher.kernel.budgets import lost
from rucher.kernel.contents import MAX_CONTENT, kept, whole
from rucher.kernel.pen import Pen, RunStore
from rucher.kernel.recall import Recalled, RunLog
from rucher.kernel.records import Record, record, spent
from rucher.kernel.spec import RunSpec
from rucher.kernel.waits import Item, Mode, Outcome
from rucher.protocol.errors import Denied, Suspended
from rucher.protocol.events import Draft
from rucher.protocol.ports import Clock, StepKind


@dataclass(frozen=True, slots=True)
class Shared:
    """What all runs of a process share."""

    store: RunStore
    clock: Clock
    artifacts: Artifacts


@dataclass(frozen=True, slots=True)
class Parking:
    """How a run is about to wait: `kind` is a step's kind, `uncertain` or `migration`; `place` is where its log then ends."""

    kind: str
    step: str
    reason: str
    place: int


Asks = Callable[[Parking], Sequence[Draft]]
"""What is said when a run waits, in the same commit."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """What a step emits, the event that it is about first, and what the run is told of it."""

    drafts: Sequence[Draft]
    told: str


Emits = Callable[[str, Mapping[str, Any]], Emitted]
"""What a step of this number emits for this request, with ids that derive from run and step. Raises Denied."""


def _ask_nobody(_parking: Parking) -> Sequence[Draft]:
    return ()


def _emit_nothing(_step: str, _request: Mapping[str, Any]) -> Emitted:
    raise Denied("nothing can be said from here")


class Run:
    """One run, opened by the kernel; `wish` is what its owner wants of it (`pause` or `cancel`), obeyed before the next step.

    `met` are the outcomes of the wait that it was parked in, if it was; None while it must wait on. `asks` makes what is said
    in the same commit as a wait, and `emits` what is said in the same commit as a step that says something. `unfit` says why
    this version of Rucher must not go on with it.
    """

    def __init__(self, shared: Shared, spec: RunSpec, log: RunLog, met: Sequence[Outcome | None] | None = None) -> None:
        self.shared = shared
        self.spec = spec
        self.log = log
        self.met = met
        self.wish = ""
        self.unfit = ""
        self.asks: Asks = _ask_nobody
        self.emits: Emits = _emit_nothing
        self.pen = Pen(shared.store, shared.clock, spec.head, log.next_seq, log.fence)

    @property
    def finished(self) -> str:
        """Its terminal state; empty while it goes on."""
        return self.log.finished

    @property
    def parked(self) -> bool:
        """Whether it waits for something that is not there yet."""
        return bool(self.log.waiting_as) and self.met is None

    async def demand_fit(self) -> None:
        """Park a run that another version began, until its owner migrates it; raises Suspended."""
        if self.unfit:
            reason = f"it was begun by another version of Rucher ({self.unfit}); let it go on as it is, or cancel it"
            topic = f"migrate:{self.spec.run_id}:{self.pen.position}"
            await self.suspend("", reason, "migration", [Item("migration", topic)])

    async def obey(self, step: str) -> None:
        """Stop here when the owner wants the run paused, or ended, which is another's to do; raises Suspended."""
        if self.wish == "cancel":
            # Its task was cancelled already; but what runs in a group of tasks can lose that to an error beside it.
            await self.pen.write()
            raise Suspended(self.spec.run_id, step, "its owner cancelled it")
        if self.wish == "pause":
            reason = "its owner paused it"
            await self.pen.write(record("run.parked", {"run": self.spec.run_id, "step": step, "reason": reason}))
            raise Suspended(self.spec.run_id, step, reason)

    async def suspend(
        self, step: str, reason: str, kind: str, items: Sequence[Item], mode: Mode = "any", said: Sequence[Draft] = ()
    ) -> None:
        """Park the run until what it waits for is there; no task and no memory is held for it meanwhile. Raises Suspended.

        `kind` is what the wait is: a step's kind, `uncertain` or `migration`. What is `said` is committed with it.
        """
        before, stored = await self._not_taken_in()
        body = {
            "run": self.spec.run_id, "step": step, "reason": reason, "as": kind, "mode": mode,
            "items": [item.told() for item in items],
        }  # fmt: skip
        waiting = record("run.waiting", body | ({"before": before} if before else {}))
        asked = self.asks(Parking(kind, step, reason, self.pen.position))
        await self.pen.write(*stored, waiting, beside=[*said, *asked])
        self.log.waiting_for, self.log.waiting_reason, self.log.waiting_as, self.met = step, reason, kind, None
        self.log.met, self.log.before = None, before
        raise Suspended(self.spec.run_id, step, reason)

    async def _not_taken_in(self) -> tuple[Mapping[str, Any] | None, Sequence[Record]]:
        """The wait that was met before this one came between, whose rows it replaces; and what is recorded with it."""
        log = self.log
        if self.met is None:
            return None, ()
        outcomes = encoded({"outcomes": self.met}, "what a wait brought", MAX_CONTENT)
        text, stored = await kept(self.shared.artifacts, self.spec.run_id, outcomes, {})
        before = {"step": log.waiting_for, "as": log.waiting_as, "result": json.loads(text), "before": log.before}
        return before, stored

    async def wait_over(self) -> None:
        """The wait is over; what it came between, and was met before, is what the run is to take in next."""
        self.log.wait_over()
        self.met = await met(self.shared.artifacts, self.log)

    async def finish(self, state: str, reason: str, *emissions: Draft, result: Mapping[str, Any] | None = None) -> None:
        """End the run in a terminal state; what it emits is committed in the same transaction.

        `result` is what a parent that joins it is handed. What budgets still hold back for it is set free, and what it has
        spawned and not waited for is cancelled: nobody would learn what comes of it.
        """
        spec = self.spec
        body = {
            "run": spec.run_id, "state": state, "reason": reason, "hop": spec.hop, "parent": spec.parent, "result": result,
            "waited": bool(self.log.waiting_as), "spawned": self.log.spawned,
        }  # fmt: skip
        freed = [
            spent(spec.run_id, name, spec.accounts, _charged(step), step.reserved)
            for name, step in self.log.steps.items()
            if step.reserved and step.result is None
        ]
        await self.pen.write(*freed, record("run.finished", body), beside=emissions)
        self.log.finished = state


async def met(artifacts: Artifacts, log: RunLog) -> Sequence[Outcome | None] | None:
    """The outcomes of the run's wait, where its log tells them."""
    return None if log.met is None else list((await whole(artifacts, log.met))["outcomes"])


def _charged(step: Recalled) -> Mapping[str, int]:
    return lost(step.reserved) if step.kind == StepKind.MODEL_CALL else {}
