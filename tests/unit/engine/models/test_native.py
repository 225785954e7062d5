"""The wire's own tool calls: what is sent, and how the pieces of calls are put together."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from rucher.engine.models.wire.chunks import parse
from rucher.engine.models.wire.native import NativeReader, render
from rucher.protocol.conversation import (
    Assistant,
    CallRequested,
    Conversation,
    Effect,
    Finished,
    ModelEvent,
    ModelOptions,
    Stop,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    User,
)
from rucher.protocol.errors import Retryable

TOOL = ToolSpec("look", "Look.", {"type": "object", "properties": {"at": {"type": "string"}}}, Effect.READ)
ASKED = Conversation("sys", (User("hi"),))
A, B = ToolCall("a", "look", {"at": "é"}), ToolCall("b", "look", {})


def delta(finish: str | None = None, **added: Any) -> dict[str, Any]:
    return {"choices": [{"delta": added, "finish_reason": finish}]}


def call(index: int | None = 0, made: str | None = None, name: str | None = None, args: str = "") -> dict[str, Any]:
    return delta(tool_calls=[{"index": index, "id": made, "function": {"name": name, "arguments": args}}])


def read(chunks: Iterable[dict[str, Any]], conversation: Conversation = ASKED) -> list[ModelEvent]:
    reader = NativeReader(conversation)
    events = [event for chunk in chunks for event in reader.feed(parse(json.dumps(chunk)))]
    return [*events, *reader.end()]


def test_the_transcript_goes_out_in_the_wires_own_words() -> None:
    conversation = ASKED.plus(
        Assistant("let me see", (A, B)),
        ToolResult("a", "look", ok=True, text="a tree"),
        ToolResult("b", "look", ok=False, text="fog"),
        Assistant("a tree"),
    )
    body = render("m", conversation, (TOOL,), ModelOptions(max_tokens=9))
    assert body["messages"][2]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": "é"}'}
    assert body["messages"][3:] == [
        {"role": "tool", "tool_call_id": "a", "content": "a tree"},
        {"role": "tool", "tool_call_id": "b", "content": "FAILED: fog"},
        {"role": "assistant", "content": "a tree"},
    ]
    assert body["tools"][0]["function"]["parameters"] == TOOL.parameters
    assert body["max_tokens"] == 9


@pytest.mark.parametrize("after", [(), (User("still there?"),), (Assistant("I was cut off"),)])
def test_a_call_whose_result_was_lost_does_not_spoil_the_next_request(after: tuple[User | Assistant, ...]) -> None:
    """Case K5."""
    conversation = ASKED.plus(Assistant("", (A, B)), ToolResult("a", "look", ok=True, text="x"), *after)
    messages = render("m", conversation, (TOOL,), ModelOptions())["messages"]
    stand_in = {"role": "tool", "tool_call_id": "b", "content": "FAILED: no result was recorded"}
    assert messages[4] == stand_in
    assert len(messages) == 5 + len(after)


def test_without_tools_none_are_offered() -> None:
    assert "tools" not in render("m", ASKED, (), ModelOptions())


def test_text_and_interleaved_pieces_of_two_calls() -> None:
    events = read(
        [
            delta(content="let me "),
            delta(content="see", reasoning_content="hm"),
            call(0, "a", "look", '{"at"'),
            call(1, "b", "look", ""),
            call(0, None, None, ': "é"}'),
            delta("tool_calls"),
            {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": None}},
        ]
    )
    assert events == [
        TextDelta("let me "),
        TextDelta("see"),
        CallRequested(A),
        CallRequested(B),
        Finished(Stop.TOOL_CALLS, Usage(5, 0, 2)),
    ]


@pytest.mark.parametrize(("told", "counted"), [(-1_000_000, 0), (2**63, 1 << 32), (10**30, 1 << 32)])
def test_numbers_of_tokens_that_cannot_be_are_bounded(told: int, counted: int) -> None:
    events = read([delta("stop"), {"choices": [], "usage": {"prompt_tokens": told, "completion_tokens": told}}])
    assert events == [Finished(Stop.END, Usage(counted, 0, counted))]


def test_pieces_that_carry_no_number_are_told_apart_by_their_ids() -> None:
    events = read(
        [call(None, "a", "look", '{"at":'), call(None, None, None, '"é"}'), call(None, "b", "look"), delta("stop")]
    )
    assert events == [CallRequested(A), CallRequested(B), Finished(Stop.TOOL_CALLS)]


@pytest.mark.parametrize("made", [None, "", "a"])
def test_a_missing_or_repeated_id_is_replaced_by_one_that_is_new(made: str | None) -> None:
    conversation = ASKED.plus(Assistant("", (A,)), ToolResult("a", "look", ok=True, text="x"))
    events = read([call(0, made, "look", "{}"), delta("tool_calls")], conversation)
    assert events[0] == CallRequested(ToolCall("call_2", "look", {}))


@pytest.mark.parametrize("args", ['{"at": ', "[1]", '"x"', "null"])
def test_arguments_that_are_no_object_are_never_a_call(args: str) -> None:
    with pytest.raises(Retryable, match="look"):
        read([call(0, "a", "look", args), delta("tool_calls")])


def test_calls_of_an_answer_that_was_cut_are_never_made() -> None:
    assert read([delta(content="so"), call(0, "a", "look", '{"at": "x'), delta("length")]) == [
        TextDelta("so"),
        Finished(Stop.MAX_TOKENS),
    ]


@pytest.mark.parametrize(
    ("chunks", "stop"),
    [
        ([delta("stop")], Stop.END),
        ([delta("tool_calls")], Stop.END),
        ([delta("eos")], Stop.END),
        ([delta("content_filter")], Stop.REFUSAL),
        ([delta(refusal="no"), delta("stop")], Stop.REFUSAL),
    ],
)
def test_every_end_has_a_name(chunks: list[dict[str, Any]], stop: Stop) -> None:
    assert read(chunks)[-1] == Finished(stop)


@pytest.mark.parametrize("chunks", [[], [delta(content="half")], [delta("error")]])
def test_a_stream_that_never_said_its_end_is_broken(chunks: list[dict[str, Any]]) -> None:
    with pytest.raises(Retryable, match="before its end"):
        read(chunks)
