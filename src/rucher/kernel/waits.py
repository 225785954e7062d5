"""What a run can wait for. A wait is rows in the store: while it lasts, no task and no memory is held for it. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rucher.journal.runviews import child_topic
from rucher.protocol.errors import BadInput

Kind = Literal["approval", "question", "timer", "child", "event", "migration"]
Mode = Literal["any", "all"]
Outcome = Mapping[str, Any]
UNCERTAIN = "step:"
"""How the topics begin under which the owner says what became of an interrupted step."""

MOST_TOPIC = 1000
"""Bytes of a topic. It is a key in the store; PostgreSQL's take no more than 2,700, and a run goes on over either database."""

EXPIRED: Outcome = {"expired": True}
REFUSED: Outcome = {"approved": False, "reason": "nobody decided in time", "expired": True}


@dataclass(frozen=True, slots=True)
class Item:
    """One thing waited for: a signal with this `topic`, or the moment `due_at` (microseconds), whichever comes first.

    Raises BadInput for a topic of more than MOST_TOPIC bytes.
    """

    kind: Kind
    topic: str
    due_at: int | None = None

    def __post_init__(self) -> None:
        if (size := len(self.topic.encode("utf-8", "surrogatepass"))) > MOST_TOPIC:
            raise BadInput(f"a topic of {size:,} bytes cannot be waited for; at most {MOST_TOPIC:,} are taken")

    def told(self) -> dict[str, Any]:
        """The item as the event of the wait tells it."""
        return {"kind": self.kind, "topic": self.topic, "due_at": self.due_at}


def approval(topic: str, expires_at: int | None = None) -> Item:
    """A decision of the owner; when it expires, it is a refusal."""
    return Item("approval", topic, expires_at)


def question(topic: str, expires_at: int | None = None) -> Item:
    """An answer of the owner."""
    return Item("question", topic, expires_at)


def timer(at: int) -> Item:
    """A moment, in microseconds since the epoch."""
    return Item("timer", "", at)


def child(run_id: str, expires_at: int | None = None) -> Item:
    """The end of another run."""
    return Item("child", child_topic(run_id), expires_at)


def event(topic: str, expires_at: int | None = None) -> Item:
    """Anything that somebody signals under this topic."""
    return Item("event", topic, expires_at)


def at_due(kind: str) -> Outcome:
    """What an item's time brings when no signal came before."""
    match kind:
        case "timer":
            return {"fired": True}
        case "approval":
            return REFUSED
        case _:
            return EXPIRED


def outcomes(rows: Sequence[Mapping[str, Any]]) -> list[Outcome | None] | None:
    """The outcomes of a run's wait by item, None for those still open; None when the run must wait on."""
    told = [json.loads(row["outcome"]) if row["state"] == "met" else None for row in rows]
    met = [outcome for outcome in told if outcome is not None]
    enough = len(met) == len(rows) or (met and any(row["mode"] == "any" for row in rows))
    return told if enough else None
