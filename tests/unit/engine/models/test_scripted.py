"""The scripted model: rules, templates, pretended failures and readable complaints."""

import asyncio
import json
from pathlib import Path

import pytest

from rucher.engine.models.scripted import Reply, ScriptedModel
from rucher.protocol.conversation import (
    Assistant,
    CallRequested,
    Conversation,
    Finished,
    ModelEvent,
    ModelOptions,
    Stop,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from rucher.protocol.errors import BadInput, Permanent, Retryable

SCRIPT = """
[[rule]]
match = "weather in (?P<town>\\\\w+)"
[[rule.call]]
tool = "shell"
arguments = { command = "report {town}", list = ["{1}", 3] }

[[rule]]
on = "result"
result = "rain"
answer = "Take an umbrella: {result}"

[[rule]]
on = "result"
answer = "It says {result} for {text} {unknown}"

[[rule]]
match = "^flaky"
fail_times = 2
answer = "at last"

[[rule]]
match = "^broken"
fail = "it is broken"

[[rule]]
match = "^slow"
delay_ms = 1500
answer = "done"
"""


class HandClock:
    """A clock whose sleeps are only noted."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def model(tmp_path: Path, text: str = SCRIPT, clock: HandClock | None = None) -> ScriptedModel:
    path = tmp_path / "story.toml"
    path.write_text(text, encoding="utf-8")
    return ScriptedModel.load(path, clock)


def ask(asked: ScriptedModel, conversation: Conversation) -> list[ModelEvent]:
    async def collect() -> list[ModelEvent]:
        return [event async for event in asked.stream(conversation, (), ModelOptions())]

    return asyncio.run(collect())


def say(text: str) -> Conversation:
    return Conversation("", (User(text),))


def test_echo_needs_no_file() -> None:
    events = ask(ScriptedModel.load("echo"), say("good\nday"))
    assert events == [TextDelta("echo: good\nday"), Finished(Stop.END, Usage(output_tokens=3))]


def test_a_rule_calls_a_tool_and_answers_with_its_result(tmp_path: Path) -> None:
    scripted = model(tmp_path)
    asked = say("the weather in Lyon?")
    call = ToolCall("call_1", "shell", {"command": "report Lyon", "list": ["Lyon", 3]})
    assert ask(scripted, asked) == [CallRequested(call), Finished(Stop.TOOL_CALLS)]
    told = asked.plus(Assistant("", (call,)), ToolResult("call_1", "shell", ok=True, text="rain at noon"))
    assert ask(scripted, told)[0] == TextDelta("Take an umbrella: rain at noon")
    told = asked.plus(Assistant("", (call,)), ToolResult("call_1", "shell", ok=True, text="{text}"))
    assert ask(scripted, told)[0] == TextDelta("It says {text} for the weather in Lyon? {unknown}")


def test_a_new_request_is_not_taken_for_a_result(tmp_path: Path) -> None:
    call = ToolCall("call_1", "shell", {})
    before = say("the weather in Lyon?").plus(
        Assistant("", (call,)), ToolResult("call_1", "shell", ok=True, text="rain"), Assistant("rain")
    )
    events = ask(model(tmp_path), before.plus(User("the weather in Nice?")))
    assert events[0] == CallRequested(ToolCall("call_2", "shell", {"command": "report Nice", "list": ["Nice", 3]}))


def test_a_pretended_failure_ends_after_its_count_for_each_conversation_alone(tmp_path: Path) -> None:
    scripted = model(tmp_path)
    for text in ("flaky a", "flaky b"):
        for _ in range(2):
            with pytest.raises(Retryable, match="pretended"):
                ask(scripted, say(text))
        assert ask(scripted, say(text))[0] == TextDelta("at last")


def test_a_rule_may_fail_for_good_or_take_its_time(tmp_path: Path) -> None:
    clock = HandClock()
    scripted = model(tmp_path, clock=clock)
    with pytest.raises(Permanent, match="it is broken"):
        ask(scripted, say("broken"))
    ask(scripted, say("slow"))
    assert clock.slept == [1.5]


def test_a_situation_that_no_rule_foresees_is_a_failure_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="no rule on = 'user' for 'what'"):
        ask(model(tmp_path), say("what"))


def test_a_rule_can_wait_for_its_step(tmp_path: Path) -> None:
    text = """
        [[rule]]
        call = [{ tool = "shell" }]
        [[rule]]
        on = "result"
        after = 2
        answer = "two"
        [[rule]]
        on = "result"
        call = [{ tool = "shell" }]
    """
    scripted, conversation = model(tmp_path, text), say("go")
    for step in (1, 2):
        (event, _) = ask(scripted, conversation)
        assert isinstance(event, CallRequested)
        assert event.call.id == f"call_{step}"
        conversation = conversation.plus(
            Assistant("", (event.call,)), ToolResult(event.call.id, "shell", ok=True, text="x")
        )
    assert ask(scripted, conversation)[0] == TextDelta("two")


def test_a_pure_function_is_a_script() -> None:
    scripted = ScriptedModel("count", lambda conversation: Reply(text=str(len(conversation.messages))))
    assert ask(scripted, say("x"))[0] == TextDelta("1")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[rule]\n", "line 1"),
        ("[[rule]]\nanswr = 'x'", "rule.0.answr"),
        ("[[rule]]\nmatch = '('\nanswer = 'x'", "no regular expression"),
        ("[[rule]]\nmatch = 'x'", "needs an answer"),
        ("rules = 3", "rule"),
    ],
)
def test_a_script_that_cannot_be_used_is_refused_with_the_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(BadInput, match=r"story\.toml") as refused:
        model(tmp_path, text)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_script_may_be_json_and_must_exist(tmp_path: Path) -> None:
    path = tmp_path / "story.json"
    path.write_text(json.dumps({"rule": [{"answer": "yes {text}"}]}), encoding="utf-8")
    assert ask(ScriptedModel.load(path), say("sir"))[0] == TextDelta("yes sir")
    with pytest.raises(BadInput, match="echo"):
        ScriptedModel.load(tmp_path / "none.toml")
