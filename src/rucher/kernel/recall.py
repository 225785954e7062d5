"""What a run's log says: a pure fold from its events to the state that a resumption starts from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rucher.protocol.events import Event
from rucher.protocol.ports import StepKind


@dataclass(slots=True)
class Recalled:
    """One step as the log knows it; `intended` without a `result` may or may not have been acted in this attempt.

    `reserved` is what budgets hold back for it. `trusted` says that the owner let another version of Rucher go on from here:
    its result is taken as it is.
    """

    kind: str
    request_hash: str
    attempt: int = 1
    intended: bool = False
    result: Mapping[str, Any] | None = None
    reserved: Mapping[str, int] = field(default_factory=dict)
    trusted: bool = False


@dataclass(slots=True)
class RunLog:
    """A run as its log tells it. `next_seq` is the place of the run's next event."""

    next_seq: int = 0
    fence: int = 0
    begun: bool = False
    finished: str = ""
    waiting_for: str = ""
    waiting_reason: str = ""
    waiting_as: str = ""
    """What kind of wait it is: `uncertain` and `migration` are the kernel's own, any other is a step of the engine's."""
    met: Mapping[str, Any] | None = None
    """The `outcomes` of that wait, perhaps in a file, where this log tells them; else the rows of the wait do."""
    before: Mapping[str, Any] | None = None
    """The wait that was met and not yet taken in when this one came between: its `step`, `as` and `result`, and what it came
    between itself."""
    steered: int = 0
    """The journal's `seq` of the newest word of the owner that the run has taken in."""
    spawned: bool = False
    """Whether it has children."""
    steps: dict[str, Recalled] = field(default_factory=dict)

    def wait_over(self) -> None:
        """The run waits no more, or again for what it was about to take in when this wait came between."""
        back: Mapping[str, Any] = self.before or {}
        self.waiting_for, self.waiting_as, self.met = back.get("step", ""), back.get("as", ""), back.get("result")
        self.waiting_reason, self.before = "", back.get("before")


def recall(events: Iterable[Event]) -> RunLog:
    """Fold a run's events, given in the run's own order."""
    log = RunLog()
    for event in events:
        if event.run is None:
            raise ValueError(f"event {event.id} belongs to no run")
        log.next_seq, log.fence = event.run.seq + 1, event.run.fence
        _step(log, event.type, event.body) if event.type in _OF_STEPS else _life(log, event.type, event.body)
    return log


_OF_STEPS = frozenset({"step.intended", "step.recorded", "step.reopened", "budget.reserved", "run.spent"})


def _step(log: RunLog, kind: str, body: Mapping[str, Any]) -> None:
    name = body.get("step", "")
    step = log.steps.get(name) or Recalled(body.get("kind", ""), body.get("request_hash", ""))
    match kind:
        case "step.intended":
            step.kind, step.request_hash, step.attempt = body["kind"], body["request_hash"], body["attempt"]
            step.intended = True
        case "step.recorded":
            step.kind, step.attempt, step.result = body["kind"], body["attempt"], body["result"]
            step.request_hash = body.get("request_hash", step.request_hash)
            step.trusted = body.get("trusted", step.trusted)
            log.steered = max(log.steered, body.get("steered", 0))
            log.spawned = log.spawned or step.kind == StepKind.SPAWN
        case "step.reopened":
            step.attempt, step.intended = step.attempt + 1, False
        case "budget.reserved":
            step.reserved = body["amounts"]
        case _:
            step.reserved = {}
    log.steps[name] = step


def _life(log: RunLog, kind: str, body: Mapping[str, Any]) -> None:
    match kind:
        case "run.acquired":
            log.begun = True
        case "run.waiting":
            log.waiting_for, log.waiting_reason = body["step"], body["reason"]
            log.waiting_as = body.get("as", "uncertain")
            log.met, log.before = None, body.get("before")
        case "wait.over":
            log.wait_over()
        case "run.migrated":
            for step in log.steps.values():
                step.trusted = True
        case "run.finished":
            log.finished = body["state"]
        case _:
            pass
