"""What an agent emits at the end of a turn, as events: pure. Each has an id derived from its run, so it exists once."""

from rucher.engine.loop import Outcome
from rucher.kernel.runs import RunSpec
from rucher.mailbox.rows import InboundRow
from rucher.protocol.events import Draft, Trust, event_id


def ending(spec: RunSpec, message: InboundRow, outcome: Outcome, now: int) -> Draft:
    """The answer, or the visible failure, that ends a run."""
    kind = "answer" if outcome.state in ("done", "partial") else "failure"
    return _emission(spec, message, kind, "end", outcome.text, now)


def question(spec: RunSpec, message: InboundRow, step: str, attempt_seq: int, reason: str, now: int) -> Draft:
    """The question that puts an uncertain step to the owner; `attempt_seq` tells one interruption from the next."""
    text = (
        f"I was interrupted in step {step} and cannot tell whether it happened: {reason} Look, then say what is true: "
        f"rucher run resolve {spec.run_id} {step} ran | not-run | failed"
    )
    return _emission(spec, message, "question", f"{step}:{attempt_seq}", text, now)


def _emission(spec: RunSpec, message: InboundRow, kind: str, key: str, text: str, now: int) -> Draft:
    room, thread = message.body["room"], message.body["thread"]
    return Draft(
        id=event_id(spec.tenant, "agent", f"{spec.run_id}:{kind}:{key}"), tenant=spec.tenant, source="agent", type=kind,
        principal=f"agent:{spec.agent}", trust=Trust.AGENT, trace_id=spec.trace_id, parent_id=spec.hop,
        addressed_to=f"group:{room}", occurred_at=now,
        body={
            "text": text, "group": room.partition(":")[2], "thread": thread, "run": spec.run_id, "session": spec.session,
            "in_reply_to": message.body["event"],
        },
    )  # fmt: skip
