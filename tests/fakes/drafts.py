"""Drafts and runs for tests: a message from the owner, a run, and a run's own events."""

from typing import Any

from rucher.kernel.spec import RunSpec
from rucher.protocol.events import Draft, RunPosition, Trust, control_event, message
from rucher.protocol.ids import derived

NOW = 1_800_000_000_000_000
TRACE = derived("trace", "t")


def said(key: str, text: str = "hello", group: str = "main") -> Draft:
    """A message of the owner under an idempotency key."""
    return message(
        tenant="local",
        source="cli",
        key=key,
        principal="owner:ana",
        trust=Trust.OWNER,
        text=text,
        group=group,
        occurred_at=NOW,
    )


def run_spec(name: str = "r", **told: Any) -> RunSpec:
    """A run whose id derives from its name, in a session and trace of its own unless told otherwise."""
    given = {
        "run_id": derived("run", name), "tenant": "local", "agent": "scribe", "model": "m",
        "trace_id": derived("trace", name), "session": f"session of {name}",
    }  # fmt: skip
    return RunSpec(**given | told)


def run_event(run: str, seq: int, fence: int, writer: str = "a") -> Draft:
    """The event at one position of a run's log, as the owner named `writer` would write it; the first one makes the run."""
    body = {"run": run, "session": run, "agent": "scribe", "hop": "", "model": "m", "engine_version": 1}
    return control_event(
        tenant="local",
        part="kernel",
        kind="step.noted" if seq else "run.created",
        key=f"{run}:{seq}:{writer}",
        trace_id=derived("trace", run),
        occurred_at=NOW,
        body=body,
        run=RunPosition(run, seq, fence),
    )
