"""The plain-text tool history and the schema that make a small model's calls valid."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from rucher.engine.models.wire.chunks import parse
from rucher.engine.models.wire.constrained import ConstrainedReader, closed, render, schema
from rucher.protocol.conversation import (
    Assistant,
    CallRequested,
    Conversation,
    Effect,
    Finished,
    Message,
    ModelEvent,
    ModelOptions,
    Stop,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    User,
)
from rucher.protocol.errors import Permanent, Retryable

WRITE = ToolSpec(
    "write_file",
    "Write a text file. Missing folders are made.",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "mode": {"type": "integer"}},
        "required": ["path", "content"],
    },
    Effect.IDEMPOTENT_WRITE,
)
LIST = ToolSpec(
    "list_dir",
    "List a folder.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    Effect.READ,
)
CALL = ToolCall("call_1", "list_dir", {"path": "."})
ASKED = Conversation("You are Scribe.", (User("Which files are there?"),))
OPTIONS = ModelOptions(max_tokens=100)


def body(conversation: Conversation, context_tokens: int = 8192) -> dict[str, Any]:
    return render("m", conversation, (WRITE, LIST), OPTIONS, context_tokens)


def contents(conversation: Conversation, context_tokens: int = 8192) -> list[str]:
    return [message["content"] for message in body(conversation, context_tokens)["messages"]]


def read(raw: Iterable[str], finish: str = "stop", conversation: Conversation = ASKED) -> list[ModelEvent]:
    reader = ConstrainedReader(conversation)
    events: list[ModelEvent] = []
    for text in raw:
        events += reader.feed(parse(json.dumps({"choices": [{"delta": {"content": text}}]})))
    events += reader.feed(parse(json.dumps({"choices": [{"delta": {}, "finish_reason": finish}]})))
    return [*events, *reader.end()]


def said(events: Sequence[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize(
    ("reply", "valid"),
    [
        ({"tool": "list_dir", "arguments": {"path": "."}}, True),
        ({"tool": "answer", "arguments": {"text": "a.txt"}}, True),
        ({"tool": "write_file", "arguments": {"path": "a", "content": "b"}}, True),
        ({"tool": "write_file", "arguments": {"path": "a"}}, False),
        ({"tool": "write_file", "arguments": {"path": "a", "content": "b", "mode": 7}}, False),
        ({"tool": "list_dir", "arguments": {"path": ".", "more": 1}}, False),
        ({"tool": "list_dir", "arguments": {"path": 3}}, False),
        ({"tool": "delete_all", "arguments": {}}, False),
        ({"tool": "answer", "arguments": {}}, False),
        ({"tool": "answer", "arguments": {"text": "x"}, "also": 1}, False),
        ("a.txt", False),
    ],
)
def test_the_schema_admits_exactly_the_calls_that_a_tool_takes(reply: object, valid: bool) -> None:  # noqa: FBT001 - a table
    assert jsonschema.Draft202012Validator(schema((WRITE, LIST))).is_valid(reply) is valid


def test_objects_are_closed_at_any_depth() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object", "properties": {}}}}}
    shut = closed(inner)
    assert shut["additionalProperties"] is False
    assert shut["properties"]["a"]["items"]["additionalProperties"] is False
    assert "additionalProperties" not in inner


def test_the_prefix_is_the_same_whatever_was_said_and_in_whatever_order_the_tools_come() -> None:
    later = ASKED.plus(Assistant("", (CALL,)), ToolResult("call_1", "list_dir", ok=True, text="a.txt"))
    first, second = body(ASKED)["messages"], body(later)["messages"]
    assert second[: len(first)] == first
    assert render("m", ASKED, (LIST, WRITE), OPTIONS, 8192) == body(ASKED)


def test_the_prefix_names_each_tool_with_the_arguments_it_must_have() -> None:
    assert "- list_dir(path): List a folder.\n- write_file(path, content): Write a text file.\n" in contents(ASKED)[0]


def test_a_result_is_plain_text_that_repeats_the_present_request_and_not_an_earlier_one() -> None:
    conversation = Conversation("You are Scribe.", (User("Who wrote it?"), Assistant("Ana."))).plus(
        User("Which files are there?"), Assistant("", (CALL,)), ToolResult("call_1", "list_dir", ok=True, text="a.txt")
    )
    roles = [message["role"] for message in body(conversation)["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    result = contents(conversation)[-1]
    assert result.startswith("Tool result:\na.txt\n")
    assert "The request: Which files are there?" in result
    assert "Who wrote it?" not in result


def test_a_model_that_repeats_a_call_is_left_only_its_answer_until_the_user_speaks_again() -> None:
    once = ASKED.plus(Assistant("", (CALL,)), ToolResult("call_1", "list_dir", ok=True, text="a.txt"))
    twice = once.plus(
        Assistant("", (replace(CALL, id="call_2"),)), ToolResult("call_2", "list_dir", ok=True, text="a.txt")
    )
    forms = [body(asked)["response_format"] for asked in (ASKED, once, twice, twice.plus(User("Again, please.")))]
    only_answer = render("m", ASKED, (), OPTIONS, 8192)["response_format"]
    assert [form == only_answer for form in forms] == [False, False, True, False]
    assert body(twice)["messages"][0] == body(ASKED)["messages"][0]


def test_a_failed_tool_is_told_as_failed() -> None:
    failed = ASKED.plus(Assistant("", (CALL,)), ToolResult("call_1", "list_dir", ok=False, text="no such folder"))
    assert contents(failed)[-1].startswith("The tool failed:\nno such folder")


def exchanges(count: int, result: str) -> tuple[Message, ...]:
    return tuple(
        message
        for number in range(count)
        for message in (
            User(f"request {number}"),
            Assistant("", (ToolCall(f"call_{number + 1}", "list_dir", {"path": "."}),)),
            ToolResult(f"call_{number + 1}", "list_dir", ok=True, text=result),
        )
    )


def test_what_does_not_fit_is_left_out_oldest_first_and_said_to_be() -> None:
    told = contents(Conversation("You are Scribe.", exchanges(40, "x" * 900)), context_tokens=2000)
    assert sum(map(len, told)) < 2000 * 3
    assert told[1].startswith("[Older messages are left out here.]\n")
    assert "request 39" in told[-1]
    assert not any("request 0\n" in text for text in told)


def test_one_long_result_is_cut_and_says_by_how_much() -> None:
    told = contents(Conversation("You are Scribe.", exchanges(1, "x" * 90_000)), context_tokens=2000)
    assert sum(map(len, told)) < 2000 * 3
    assert "more characters are not shown]" in told[-1]


def test_many_results_of_one_request_lose_the_oldest_but_never_the_request() -> None:
    steps = tuple(message for message in exchanges(60, "x" * 400) if not isinstance(message, User))
    told = contents(Conversation("You are Scribe.", (User("the request"), *steps)), context_tokens=2000)
    assert sum(map(len, told)) < 2000 * 3
    assert told[1].endswith("the request")


REPLY = json.dumps({"tool": "answer", "arguments": {"text": 'é "quoted" \\ \n😀 end'}})


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_an_answer_arrives_as_text_however_the_stream_is_cut_into_pieces(size: int) -> None:
    events = read(REPLY[at : at + size] for at in range(0, len(REPLY), size))
    assert said(events) == 'é "quoted" \\ \n😀 end'
    assert events[-1] == Finished(Stop.END)
    assert len(events) == 2 or size < 1000


def test_a_call_arrives_parsed_and_its_id_is_new_in_the_conversation() -> None:
    again = ASKED.plus(Assistant("", (CALL,)), ToolResult("call_1", "list_dir", ok=True, text="a.txt"))
    call: Mapping[str, Any] = {"tool": "list_dir", "arguments": {"path": "sub"}}
    assert read([json.dumps(call)], conversation=again) == [
        CallRequested(ToolCall("call_2", "list_dir", {"path": "sub"})),
        Finished(Stop.TOOL_CALLS),
    ]


def test_a_cut_answer_keeps_the_text_that_came() -> None:
    events = read(['{"tool":"answer","arguments":{"text":"The files are a.t'], finish="length")
    assert said(events) == "The files are a.t"
    assert events[-1] == Finished(Stop.MAX_TOKENS)


@pytest.mark.parametrize("raw", ['{"tool":"write_file","arguments":{"path":"a","content":"half', '{"too', ""])
def test_a_cut_call_is_never_made(raw: str) -> None:
    with pytest.raises(Retryable, match="cut"):
        read([raw], finish="length")


@pytest.mark.parametrize("raw", ["Sure! The files are a.txt.", "[1]", '{"tool": 3}', '{"arguments": {}}'])
def test_an_endpoint_that_ignores_the_schema_is_named_as_such(raw: str) -> None:
    with pytest.raises(Permanent, match="response_format"):
        read([raw])


def test_text_that_no_file_could_hold_is_made_to_be_one_that_can() -> None:
    events = read(['{"tool":"answer","arguments":{"text":"a \\ud83d b"}}'])
    assert said(events).encode() == b"a \xef\xbf\xbd b"
