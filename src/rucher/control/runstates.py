"""The state of a run as people see it, and what it waits for: pure. Called by `rucher runs` and `rucher run`.

A run has a state of its own, and its owner may wish it to pause or to end; what is shown says both in one word.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rucher.journal.runviews import child_topic
from rucher.kernel.orders import command_for
from rucher.kernel.spec import TERMINAL
from rucher.protocol.replies import reply_topic

SHOWN = ("queued", "ready", "running", "waiting", "pausing", "paused", "cancelling", *sorted(TERMINAL))
"""Every word that `shown` may give."""
_WISHES = {"pausing": "pause", "paused": "pause", "cancelling": "cancel"}


def shown(row: Mapping[str, Any]) -> str:
    """The word for a row of `runs`: `pausing` as long as the step that it is in goes on, then `paused`."""
    state = str(row["state"])
    match row["wish"]:
        case _ if state in TERMINAL:
            return state
        case "cancel":
            return "cancelling"
        case "pause":
            return "pausing" if state == "running" else "paused"
        case _:
            return state


def patterns(word: str) -> tuple[str, str]:
    """LIKE patterns of state and wish that hold for every run that is shown so, and for few others."""
    if not word:
        return "%", "%"
    return ("%", _WISHES[word]) if word in _WISHES else (word, "%")


@dataclass(frozen=True, slots=True)
class Waiting:
    """One thing that a run waits for. `command` is what its owner can do about it, empty where time or others decide."""

    step: str
    kind: str
    mode: str
    what: str
    state: str
    due_at: int | None
    command: str


def waiting(row: Mapping[str, Any]) -> Waiting:
    """What a row of `waits` says."""
    return Waiting(row["step"], row["kind"], row["mode"], _what(row), row["state"], row["due_at"], _command(row))


def _what(row: Mapping[str, Any]) -> str:
    match row["kind"]:
        case "approval":
            return "your decision; without one it is a refusal" if row["due_at"] else "your decision"
        case "question":
            return (
                "your word about what became of the step"
                if command_for(row).startswith("rucher run resolve")
                else "your answer"
            )
        case "migration":
            return "your consent to go on with this version"
        case "timer":
            return "a moment"
        case "child":
            return f"the end of run {_child(row)}"
        case _:
            topic = str(row["topic"])
            return "the reply of another agent" if topic.startswith(reply_topic("")) else f"the event {topic}"


def _command(row: Mapping[str, Any]) -> str:
    return f"rucher runs {_child(row)}" if row["kind"] == "child" else command_for(row)


def _child(row: Mapping[str, Any]) -> str:
    return str(row["topic"]).removeprefix(child_topic(""))
