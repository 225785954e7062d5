"""Drafts for tests: a message from the owner, and a run's own events."""

from rucher.protocol.events import Draft, RunPosition, Trust, control_event, message
from rucher.protocol.ids import derived

NOW = 1_800_000_000_000_000


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


def run_event(run: str, seq: int, fence: int, writer: str = "a") -> Draft:
    """The event at one position of a run's log, as the owner named `writer` would write it."""
    return control_event(
        tenant="local",
        part="kernel",
        kind="step.noted",
        key=f"{run}:{seq}:{writer}",
        trace_id=derived("trace", run),
        occurred_at=NOW,
        body={"run": run},
        run=RunPosition(run, seq, fence),
    )
