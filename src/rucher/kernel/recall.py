"""What a run's log says about its steps: a pure fold from events to the state a resumption starts from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rucher.protocol.events import Event


@dataclass(frozen=True, slots=True)
class Recalled:
    """One step as the log knows it; `intended` without a `result` may or may not have been acted in this attempt."""

    kind: str
    request_hash: str
    attempt: int
    intended: bool = False
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RunLog:
    """A run as its log tells it. `next_seq` is the position of the run's next event."""

    next_seq: int = 0
    fence: int = 0
    finished: str = ""
    waiting_for: str = ""
    waiting_reason: str = ""
    steps: Mapping[str, Recalled] = field(default_factory=dict)


def recall(events: Iterable[Event]) -> RunLog:
    """Fold a run's events, given in the run's own order."""
    log = RunLog()
    steps: dict[str, Recalled] = {}
    for event in events:
        if event.run is None:
            raise ValueError(f"event {event.id} belongs to no run")
        body = event.body
        log = replace(log, next_seq=event.run.seq + 1, fence=event.run.fence)
        match event.type:
            case "step.intended":
                steps[body["step"]] = Recalled(body["kind"], body["request_hash"], body["attempt"], intended=True)
            case "step.recorded":
                steps[body["step"]] = Recalled(
                    body["kind"], body["request_hash"], body["attempt"], result=body["result"]
                )
                log = replace(log, waiting_for="")
            case "step.reopened":
                past = steps[body["step"]]
                steps[body["step"]] = replace(past, attempt=past.attempt + 1, intended=False)
                log = replace(log, waiting_for="")
            case "run.waiting":
                log = replace(log, waiting_for=body["step"], waiting_reason=body["reason"])
            case "run.finished":
                log = replace(log, finished=body["state"])
            case _:
                pass
    return replace(log, steps=steps)
