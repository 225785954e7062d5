"""Laws of a run's state as people see it: one word that says what it does and what its owner wants, and what it waits for."""

from typing import Any

import pytest

from rucher.control.runstates import SHOWN, patterns, shown, waiting
from rucher.kernel.spec import TERMINAL


@pytest.mark.parametrize(
    ("state", "wish", "word"),
    [
        ("ready", "", "ready"),
        ("running", "pause", "pausing"),
        ("queued", "pause", "paused"),
        ("waiting", "pause", "paused"),
        ("ready", "cancel", "cancelling"),
        ("cancelled", "cancel", "cancelled"),
        ("done", "pause", "done"),
    ],
)
def test_state_and_wish_are_one_word(state: str, wish: str, word: str) -> None:
    assert shown({"state": state, "wish": wish}) == word


def test_the_patterns_of_a_word_hold_for_every_run_that_is_shown_so() -> None:
    for state in ("queued", "ready", "running", "waiting", *TERMINAL):
        for wish in ("", "pause", "cancel"):
            word = shown({"state": state, "wish": wish})
            assert word in SHOWN
            assert [
                given
                for given, pattern in zip((state, wish), patterns(word), strict=True)
                if pattern not in ("%", given)
            ] == []


def wait(kind: str, topic: str = "t", due_at: int | None = None, step: str = "3") -> dict[str, Any]:
    row = {"run_id": "R", "step": step, "item": 0, "kind": kind, "mode": "any", "topic": topic}
    return row | {"due_at": due_at, "state": "open", "outcome": None}


@pytest.mark.parametrize(
    ("row", "what", "command"),
    [
        (wait("approval"), "your decision", "rucher run answer R 3 --approve|--refuse"),
        (
            wait("approval", due_at=5),
            "your decision; without one it is a refusal",
            "rucher run answer R 3 --approve|--refuse",
        ),
        (wait("question"), "your answer", "rucher run answer R 3 TEXT"),
        (
            wait("question", "step:R:3:9"),
            "your word about what became of the step",
            "rucher run resolve R 3 ran|not-run|failed",
        ),
        (wait("migration", step=""), "your consent to go on with this version", "rucher run migrate R"),
        (wait("timer", "", 5), "a moment", ""),
        (wait("child", "run:C"), "the end of run C", "rucher runs C"),
        (wait("event", "rain"), "the event rain", ""),
    ],
)
def test_each_wait_says_what_for_and_what_its_owner_can_do(row: dict[str, Any], what: str, command: str) -> None:
    told = waiting(row)
    assert (told.what, told.command) == (what, command)
