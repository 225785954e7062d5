"""Laws of the talking tools: a model learns what came of what it said, and a turn may end without an answer."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from rucher.engine.loop import Agent, Outcome, converse
from rucher.engine.tools.talking import ASK_AGENT, NO_ANSWER, NOTIFY, PROPOSE
from rucher.protocol.conversation import Conversation, ToolResult, User
from tests.fakes.clock import ManualClock
from tests.unit.engine.test_loop import Bench, Notebook, Reply, Talker

SPECS = (ASK_AGENT, NOTIFY, PROPOSE, NO_ANSWER)


def talked(*replies: Reply, answers: tuple[Mapping[str, Any], ...] = ()) -> tuple[Outcome, Talker, Notebook]:
    """How a run ends whose model gives these replies, and whose words bring these answers."""
    model, steps = Talker(*replies), Notebook(answers=answers)
    agent = Agent(model, Bench(), SPECS, steps, ManualClock())
    return asyncio.run(converse(agent, Conversation("be good", (User("hello"),)))), model, steps


def returned(model: Talker) -> ToolResult:
    """What the model was last told of its call."""
    (last,) = [message for message in model.seen[-1][0].messages if isinstance(message, ToolResult)]
    return last


@pytest.mark.parametrize(
    ("brought", "ok", "text"),
    [
        ({"ok": True, "from": "agent:bea", "text": "much"}, True, "agent:bea replies: much"),
        ({"ok": False, "from": "agent:bea", "text": "I could not"}, False, "There is no reply: I could not"),
        ({"ok": False, "text": "no rule covers it"}, False, "There is no reply: no rule covers it"),
        ({"expired": True}, False, "agent:bea did not reply within 2 hours; go on without its reply."),
    ],
)
def test_a_model_learns_the_reply_or_why_there_is_none(brought: Mapping[str, Any], *, ok: bool, text: str) -> None:
    call = ("ask_agent", {"agent": "bea", "text": "how much?", "expires_in_hours": 2})
    outcome, model, steps = talked([call], "so much", answers=(brought,))
    assert (returned(model).ok, returned(model).text, outcome.text) == (ok, text, "so much")
    assert steps.waited[0][1] == 7200


def test_a_question_without_a_time_waits_a_day() -> None:
    call = ("ask_agent", {"agent": "bea", "text": "how much?"})
    assert talked([call], "so", answers=({"ok": True, "text": "x"},))[2].waited[0][1] == 86_400


@pytest.mark.parametrize(
    "call",
    [
        ("notify", {"to": "owner", "text": "look"}),
        ("propose", {"what": "rules", "text": "[[rule]]", "why": "quieter"}),
    ],
)
def test_what_is_said_without_waiting_returns_at_once(call: tuple[str, Mapping[str, Any]]) -> None:
    _, model, steps = talked([call], "done", answers=({"ok": False, "text": "refused"},))
    assert (returned(model).ok, returned(model).text) == (False, "refused")
    assert len(steps.waited) == 1


@pytest.mark.parametrize(
    "call",
    [
        ("ask_agent", {"agent": "bea"}),
        ("ask_agent", {"agent": "bea", "text": ""}),
        ("ask_agent", {"agent": "bea", "text": "x", "expires_in_hours": 0}),
        ("notify", {"to": "owner"}),
        ("propose", {"what": "agents", "text": "x", "why": "y"}),
        ("no_answer", {}),
    ],
)
def test_a_call_with_wrong_arguments_says_nothing(call: tuple[str, Mapping[str, Any]]) -> None:
    outcome, model, steps = talked([call], "done")
    assert (returned(model).ok, steps.waited, outcome.text) == (False, [], "done")


def test_no_answer_ends_the_turn_and_says_why() -> None:
    outcome, model, _ = talked([("no_answer", {"why": "it is not for me"})])
    assert outcome == Outcome("done", "it is not for me", silent=True)
    assert len(model.seen) == 1


def test_what_is_called_beside_no_answer_is_done_all_the_same() -> None:
    calls = [("no_answer", {"why": "x"}), ("notify", {"to": "owner", "text": "look"})]
    outcome, _, steps = talked([*calls], answers=({"ok": True, "text": "said"},))
    assert (outcome.silent, len(steps.waited)) == (True, 1)
