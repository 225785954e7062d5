"""What every model must do, whichever speaks. An adapter joins by an entry in SUBJECTS.

The answers of `chat` come from a strict server on a real socket; tests marked `model` ask real weights in the server of
llama.cpp, which nobody here wrote.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from rucher.engine.models.chat import ChatModel, ToolMode
from rucher.engine.models.scripted import Reply, ScriptedModel
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
from rucher.protocol.errors import BadInput, Permanent, Retryable
from rucher.protocol.ports import Model
from tests.conformance.wire_server import DONE, KEY, Said, WireServer, piece, refusal, serving, usage

LOOK = ToolSpec(
    "look",
    "Look at a thing.",
    {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    Effect.READ,
)
ASKED = Conversation("You look at things.", (User("What is there?"),))
SEEN = ASKED.plus(
    Assistant("", (ToolCall("call_1", "look", {"at": "a"}),)), ToolResult("call_1", "look", ok=True, text="b")
)
TEXT = 'A tree, and a "bee" \\ é 😀.'


def native_answer(text: str) -> list[bytes]:
    return [
        piece({"role": "assistant", "content": ""}),
        *[piece({"content": c}) for c in text],
        piece(finish="stop"),
        usage(),
        DONE,
    ]


def native_call(arguments: str) -> list[bytes]:
    first = {"index": 0, "id": "call_x", "type": "function", "function": {"name": "look", "arguments": ""}}
    rest = [piece({"tool_calls": [{"index": 0, "function": {"arguments": c}}]}) for c in arguments]
    return [
        piece({"role": "assistant", "content": None, "tool_calls": [first]}),
        *rest,
        piece(finish="tool_calls"),
        usage(),
        DONE,
    ]


def constrained_reply(tool: str, **arguments: Any) -> list[bytes]:
    return native_answer(json.dumps({"tool": tool, "arguments": arguments}))


def model(server: WireServer, mode: ToolMode) -> ChatModel:
    return ChatModel("m", server.url, SecretStr(KEY), mode)


def answers(mode: ToolMode) -> tuple[Said, Said]:
    if mode is ToolMode.NATIVE:
        return Said(native_call('{"at": "the sky"}')), Said(native_answer(TEXT))
    return Said(constrained_reply("look", at="the sky")), Said(constrained_reply("answer", text=TEXT))


@asynccontextmanager
async def scripted() -> AsyncIterator[Model]:
    def decide(conversation: Conversation) -> Reply:
        seen = isinstance(conversation.messages[-1], ToolResult)
        return Reply(text=TEXT) if seen else Reply(calls=(("look", {"at": "the sky"}),))

    yield ScriptedModel("scripted", decide)


def chat(mode: ToolMode) -> Callable[[], AbstractAsyncContextManager[Model]]:
    @asynccontextmanager
    async def subject() -> AsyncIterator[Model]:
        async with serving(*answers(mode)) as server:
            asked = model(server, mode)
            yield asked
            await asked.close()
            assert server.complaints == []

    return subject


SUBJECTS: dict[str, Callable[[], AbstractAsyncContextManager[Model]]] = {
    "scripted": scripted,
    "chat-native": chat(ToolMode.NATIVE),
    "chat-constrained": chat(ToolMode.CONSTRAINED),
}
"""Models that call `look` at "the sky" when asked, and answer TEXT once they have seen."""


async def heard(asked: Model, conversation: Conversation = ASKED, timeout_s: float = 20.0) -> list[ModelEvent]:
    options = ModelOptions(max_tokens=200, timeout_s=timeout_s)
    return [event async for event in asked.stream(conversation, (LOOK,), options)]


def told(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS.keys())
def test_a_call_then_an_answer_each_end_with_one_finished(
    subject: Callable[[], AbstractAsyncContextManager[Model]],
) -> None:
    async def story() -> None:
        async with subject() as asked:
            events = await heard(asked)
            calls = [event.call for event in events if isinstance(event, CallRequested)]
            assert [(call.name, dict(call.arguments)) for call in calls] == [("look", {"at": "the sky"})]
            assert isinstance(events[-1], Finished)
            assert events[-1].stop is Stop.TOOL_CALLS
            seen = ASKED.plus(
                Assistant(told(events), tuple(calls)), ToolResult(calls[0].id, "look", ok=True, text="blue")
            )
            after = await heard(asked, seen)
            assert told(after) == TEXT
            assert [type(event) for event in after].count(Finished) == 1
            assert isinstance(after[-1], Finished)
            assert after[-1].stop is Stop.END

    asyncio.run(story())


MODES = pytest.mark.parametrize("mode", list(ToolMode))


def run(mode: ToolMode, check: Callable[[Model, WireServer], Any], *said: Said) -> None:
    async def story() -> None:
        async with serving(*said) as server:
            asked = model(server, mode)
            try:
                await check(asked, server)
            finally:
                await asked.close()

    asyncio.run(story())


def raised(mode: ToolMode, kind: type[Exception], *said: Said, timeout_s: float = 20.0) -> str:
    """The text of the error of this kind that the answer leads to; no error may hold the key."""
    texts: list[str] = []

    async def check(asked: Model, _server: WireServer) -> None:
        with pytest.raises(kind) as error:
            await heard(asked, timeout_s=timeout_s)
        texts.append(str(error.value))
        assert KEY not in "".join(map(repr, (error.value, error.value.__cause__, asked)))

    run(mode, check, *said)
    return texts[0]


@MODES
def test_tokens_are_counted_as_the_provider_says(mode: ToolMode) -> None:
    async def check(asked: Model, _server: WireServer) -> None:
        assert (await heard(asked))[-1] == Finished(Stop.TOOL_CALLS, Usage(7, 3, 2))

    run(mode, check, answers(mode)[0])


@MODES
def test_a_trickle_of_single_bytes_is_the_same_answer(mode: ToolMode) -> None:
    whole = b"".join(answers(mode)[1].body)

    async def check(asked: Model, _server: WireServer) -> None:
        assert told(await heard(asked, SEEN)) == TEXT

    run(mode, check, Said([whole[at : at + 1] for at in range(len(whole))]))


@MODES
@pytest.mark.parametrize("cut", [True, False])
def test_a_stream_cut_in_the_middle_of_a_call_is_retryable_and_makes_no_call(mode: ToolMode, *, cut: bool) -> None:
    half = answers(mode)[0].body[:-5]
    events: list[ModelEvent] = []

    async def check(asked: Model, _server: WireServer) -> None:
        with pytest.raises(Retryable):
            events.extend([event async for event in asked.stream(ASKED, (LOOK,), ModelOptions(timeout_s=20))])

    run(mode, check, Said(half, cut=cut))
    assert events == []


@MODES
def test_an_overload_is_retryable_after_the_time_that_was_named(mode: ToolMode) -> None:
    async def check(asked: Model, _server: WireServer) -> None:
        for wait in (11.0, None, 0.25):
            with pytest.raises(Retryable) as error:
                await heard(asked)
            assert error.value.retry_after == wait
        assert told(await heard(asked, SEEN)) == TEXT

    run(
        mode,
        check,
        refusal(429, "slow down", retry_after="11"),
        refusal(503, "loading"),
        refusal(529, "overloaded", retry_after_ms="250"),
        answers(mode)[1],
    )


@MODES
def test_nothing_is_retried_by_the_adapter_itself(mode: ToolMode) -> None:
    async def check(asked: Model, server: WireServer) -> None:
        with pytest.raises(Retryable):
            await heard(asked)
        assert len(server.asked) == 1

    run(mode, check, refusal(503, "busy"))


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (refusal(401, f"Incorrect API key provided: {KEY}"), Permanent, "***"),
        (refusal(404, "no model m"), Permanent, "name"),
        (refusal(400, "x", "context_length_exceeded"), Permanent, "new thread"),
        (refusal(429, "quota", "insufficient_quota"), Permanent, "credit"),
        (Said([b"data: {not json}\n\n"]), Retryable, "cannot be read"),
        (Said([piece(finish=None, error={"message": f"overloaded {KEY}", "code": 529})]), Retryable, "overloaded ***"),
        (Said([b"<html>"], headers={"content-type": "text/html"}), Permanent, "base_url"),
        (Said(status=307, headers={"location": "http://127.0.0.1:1/v1"}), Permanent, "redirects are not followed"),
        (Said([]), Retryable, "before its end"),
        (Said([b": ping\n\n", DONE]), Retryable, "before its end"),
    ],
)
def test_each_refusal_and_breakage_has_its_name(said: Said, kind: type[Exception], words: str) -> None:
    assert words in raised(ToolMode.NATIVE, kind, said)


def test_malformed_arguments_are_never_a_call() -> None:
    assert "look" in raised(ToolMode.NATIVE, Retryable, Said(native_call('{"at": "the')))


def test_an_empty_answer_is_an_answer_or_a_named_failure() -> None:
    async def check(asked: Model, _server: WireServer) -> None:
        assert await heard(asked) == [Finished(Stop.END, Usage(7, 3, 2))]

    run(ToolMode.NATIVE, check, Said(native_answer("")))
    raised(ToolMode.CONSTRAINED, Retryable, Said(native_answer("")))


def test_fields_nobody_knows_change_nothing() -> None:
    odd = [
        b"event: message\nid: 4\nretry: 10\n"
        + piece({"content": "hi", "annotations": [1], "audio": None}, provider={"x": 1}),
        b": comment\n\n",
        piece({"tool_calls": None}, "stop", usage=None, x_time={"queue": 0.1}),
        DONE,
    ]

    async def check(asked: Model, _server: WireServer) -> None:
        assert await heard(asked) == [TextDelta("hi"), Finished(Stop.END)]

    run(ToolMode.NATIVE, check, Said(odd))


@MODES
def test_a_silent_endpoint_is_given_up_after_the_time_limit(mode: ToolMode) -> None:
    assert "within 0.3 s" in raised(mode, Retryable, Said([piece({"content": ""})], stall=True), timeout_s=0.3)


def test_nobody_listening_is_retryable() -> None:
    async def story() -> None:
        async with serving(Said([])) as server:
            pass
        asked = model(server, ToolMode.NATIVE)
        with pytest.raises(Retryable, match="cannot be reached"):
            await heard(asked)
        await asked.close()

    asyncio.run(story())


@MODES
def test_a_reader_who_leaves_early_closes_the_connection_and_can_ask_again(mode: ToolMode) -> None:
    first = answers(mode)[1].body

    async def check(asked: Model, server: WireServer) -> None:
        stream = asked.stream(SEEN, (LOOK,), ModelOptions(timeout_s=20))
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]  # every adapter's stream is a generator
        assert told(await heard(asked, SEEN)) == TEXT
        async with asyncio.timeout(10):
            while not server.aborted:  # noqa: ASYNC110 - what is waited for happens on the far side of a socket
                await asyncio.sleep(0.01)

    run(mode, check, Said(first[:-4], stall=True), Said(first))


@pytest.mark.parametrize(
    "url", ["", "ftp://x/v1", "http://", "//x", "http://user:word@x/v1", "https://x/v1?key=1", "http://[::"]
)
def test_an_address_that_cannot_be_one_is_refused_at_once(url: str) -> None:
    with pytest.raises(BadInput, match="base_url"):
        ChatModel("m", url)


@pytest.mark.parametrize("key", ["line\n", "with blank", "accenté"])
def test_a_key_that_cannot_be_one_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(BadInput) as refused:
        ChatModel("m", "http://127.0.0.1:1/v1", SecretStr(key))
    assert key not in str(refused.value)


def test_the_key_is_nowhere_in_what_a_debugger_prints() -> None:
    asked = ChatModel("m", "http://127.0.0.1:1/v1", SecretStr(KEY))
    endpoint = vars(asked)["_endpoint"]
    shown = "".join(
        repr(thing) for thing in (asked, vars(asked), vars(endpoint), endpoint, vars(endpoint)["_client"].headers)
    )
    assert KEY not in shown
    with contextlib.suppress(RuntimeError):
        asyncio.run(asked.close())
