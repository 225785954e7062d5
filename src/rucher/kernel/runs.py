"""`Kernel`: makes runs and takes them over. Called by workers, and by whoever hands work to them.

A run is made once (`create`), and then opened as often as it takes until it has ended: each opening reads its log, takes the
run under a new fence, and writes what its owner decided meanwhile.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from rucher.journal.artifacts import Artifacts
from rucher.journal.rows import RunWrite
from rucher.kernel.budgets import used_by
from rucher.kernel.pen import RunStore
from rucher.kernel.recall import RunLog, recall
from rucher.kernel.records import Record, record, recorded, spent
from rucher.kernel.run import Run, Shared, met
from rucher.kernel.spec import RunSpec, Versions
from rucher.kernel.waits import outcomes
from rucher.protocol.errors import Fenced
from rucher.protocol.events import Draft, Event
from rucher.protocol.ids import ulid
from rucher.protocol.ports import Clock, Entropy

VERDICTS: Mapping[str, Mapping[str, Any] | None] = {
    "ran": {"ok": True, "text": "The owner says that it ran before an interruption; its output was lost."},
    "not-run": None,
    "failed": {"ok": False, "text": "The owner says that it was interrupted and must count as failed."},
}
"""What the owner may say about a step that may or may not have happened, and the result that it then has."""


class KernelStore(RunStore, Protocol):
    """What the kernel needs of a store."""

    async def run_log(self, run_id: str) -> Sequence[Event]:
        """The events of one run, in the run's own order."""
        ...

    async def run_logs(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        """The logs of many runs, by run."""
        ...


class Kernel:
    """Under a random name of its own, so that two processes can never be confused."""

    def __init__(self, store: KernelStore, clock: Clock, entropy: Entropy, artifacts: Artifacts) -> None:
        self.worker = ulid(clock.now(), entropy.bytes(10))
        self._store = store
        self._clock = clock
        self._shared = Shared(store, clock, artifacts)

    async def create(self, spec: RunSpec, *beside: Draft) -> bool:
        """Make the run, with what is said beside it, for a worker to take; False when it was made before."""
        created = [record("run.created", spec.created())]
        try:
            await self._store.write(RunWrite(spec.head, 0, 0, self._clock.now(), created, beside))
        except Fenced:
            return False
        return True

    async def begin(self, spec: RunSpec, versions: Versions | None = None) -> Run:
        """Take over a run that nobody has taken yet, without reading its log; one that was taken is opened as it is."""
        log = RunLog(next_seq=1)
        run = Run(self._shared, spec, log)
        try:
            await self._take(run, versions)
        except Fenced:
            return await self.open(spec, versions)
        return run

    async def logs(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        """What `open` reads, of many runs at once."""
        return await self._store.run_logs(run_ids)

    async def open(
        self,
        spec: RunSpec,
        versions: Versions | None = None,
        *,
        to_end: bool = False,
        events: Sequence[Event] | None = None,
    ) -> Run:
        """Take the run over: from here on, whoever held it before can write nothing.

        A run that is finished, or still waits, is returned as it is and not taken; `to_end` takes a waiting one too, to
        finish it. One that was begun with versions that these cannot continue is `unfit` to go on. `events` is its log, if that
        was read already; when more was written since, taking the run raises Fenced.
        Raises Fenced when another process took it at the same moment.
        """
        log = recall(await self._store.run_log(spec.run_id) if events is None else events)
        brought = await met(self._shared.artifacts, log)
        if brought is None and log.waiting_as and (waits := await self._store.rows("run.waits", spec.run_id)):
            brought = outcomes(waits)
        run = Run(self._shared, spec, log, brought)
        if log.finished or (run.parked and not to_end):
            return run
        await self._take(run, None if to_end else versions)
        return run

    async def _take(self, run: Run, versions: Versions | None) -> None:
        records = [record("run.acquired", {"run": run.spec.run_id, "worker": self.worker}), *await self._decided(run)]
        if versions:
            records += await self._migrated(run, versions)
        await run.pen.take(*records)
        if versions and not versions.continues(run.spec.versions):
            run.unfit = _what_differs(run.spec.versions, versions)

    async def _decided(self, run: Run) -> list[Record]:
        """What the owner said about the step that the run could not be sure of."""
        spec, log = run.spec, run.log
        if log.waiting_as != "uncertain" or run.met is None:
            return []
        step, said = log.waiting_for, next(outcome for outcome in run.met if outcome is not None)
        past = log.steps[step]
        over = record("wait.over", {"run": spec.run_id, "step": step})
        await run.wait_over()
        verdict = VERDICTS[str(said["verdict"])]
        if verdict is None:
            past.attempt, past.intended = past.attempt + 1, False
            return [record("step.reopened", {"run": spec.run_id, "step": step, "by": "owner"}), over]
        settled = []
        if past.reserved:
            settled.append(spent(spec.run_id, step, spec.accounts, used_by(past.kind, verdict, 0), past.reserved))
        past.result, past.reserved = verdict, {}
        told = recorded(spec.run_id, step, past.kind, past.attempt, json.dumps(verdict), ',"by":"owner"')
        return [told, *settled, over]

    async def _migrated(self, run: Run, versions: Versions) -> list[Record]:
        """The run goes on with these versions, because its owner said so or because it had not begun."""
        spec, log = run.spec, run.log
        agreed = log.waiting_as == "migration" and run.met is not None
        if not agreed and (log.begun or versions == spec.versions):
            return []
        body = {
            "run": spec.run_id, "engine_version": versions.engine, "prompt_hash": versions.prompt,
            "tools_hash": versions.tools,
        }  # fmt: skip
        run.spec = replace(spec, versions=versions)
        for step in log.steps.values():
            step.trusted = True
        over = [record("wait.over", {"run": spec.run_id, "step": ""})] if agreed else []
        if agreed:
            await run.wait_over()
        return [record("run.migrated", body), *over]


def _what_differs(begun: Versions, now: Versions) -> str:
    if begun.engine != now.engine:
        return f"engine {begun.engine}, now {now.engine}"
    return "with other tools than its agent has now"
