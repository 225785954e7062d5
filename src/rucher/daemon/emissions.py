"""What an agent emits at the end of a turn, as events: pure. Each has an id derived from its run, so it exists once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rucher.engine.loop import Outcome
from rucher.kernel.run import Parking
from rucher.kernel.spec import RunSpec
from rucher.protocol.events import Draft, Trust
from rucher.protocol.ids import caused


@dataclass(frozen=True, slots=True)
class Message:
    """What a run is about: the message that caused it, in the words of its session."""

    event: str
    trace: str
    principal: str
    trust: str
    text: str
    room: str
    thread: str

    @property
    def row(self) -> Mapping[str, Any]:
        """The message as it stands in the mailbox."""
        return {
            "event": self.event, "trace": self.trace, "from": self.principal, "trust": self.trust, "text": self.text,
            "room": self.room, "thread": self.thread,
        }  # fmt: skip


def ending(spec: RunSpec, message: Message, outcome: Outcome, now: int) -> Draft:
    """The answer, or the visible failure, that ends a run."""
    kind = "answer" if outcome.state in ("done", "partial") else "failure"
    return _emission(spec, message, kind, "end", outcome.text, now)


def questions(spec: RunSpec, message: Message, wait: Parking, now: int) -> list[Draft]:
    """What the owner is asked when a run waits for him; a timer or a child asks nobody."""
    match wait.kind:
        case "uncertain":
            text = (
                f"I was interrupted in step {wait.step} and cannot tell whether it happened: {wait.reason} Look, then say what "
                f"is true: rucher run resolve {spec.run_id} {wait.step} ran | not-run | failed"
            )
        case "migration":
            text = f"I wait: {wait.reason}: rucher run migrate {spec.run_id}"
        case "wait_human":
            text = f"{wait.reason} (rucher run answer {spec.run_id} {wait.step} TEXT)"
        case _:
            return []
    return [_emission(spec, message, "question", f"{wait.step}:{wait.place}", text, now)]


def _emission(spec: RunSpec, message: Message, kind: str, key: str, text: str, now: int) -> Draft:
    return Draft(
        id=caused(spec.run_id, kind, key), tenant=spec.tenant, source="agent", type=kind,
        principal=f"agent:{spec.agent}", trust=Trust.AGENT, trace_id=spec.trace_id, parent_id=spec.hop,
        addressed_to=f"group:{message.room}", occurred_at=now,
        body={
            "text": text, "group": message.room.partition(":")[2], "thread": message.thread, "run": spec.run_id,
            "session": spec.session, "in_reply_to": message.event,
        },
    )  # fmt: skip
