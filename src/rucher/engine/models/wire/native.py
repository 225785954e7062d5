"""The wire's own tool calls: requests and streams of endpoints whose models were trained for them. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

from rucher.engine.models.wire.chunks import CallPiece, Chunk
from rucher.engine.models.wire.reading import Ending, call_id, storable
from rucher.protocol.conversation import (
    Assistant,
    CallRequested,
    Conversation,
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
from rucher.protocol.errors import Retryable


def render(name: str, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions) -> dict[str, Any]:
    """The request body; an earlier body of the same conversation is a prefix of a later one's messages."""
    body: dict[str, Any] = {
        "model": name,
        "messages": [{"role": "system", "content": conversation.system}, *_messages(conversation.messages)],
        "max_tokens": options.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if tools:
        body["tools"] = [_tool(spec) for spec in tools]
    return body


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
    return {"type": "function", "function": function}


def _messages(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """The messages, with a stand-in for every result that never came: providers refuse a request that lacks one."""
    open_calls: dict[str, str] = {}
    for message in messages:
        if isinstance(message, ToolResult):
            open_calls.pop(message.call_id, None)
        else:
            yield from _stand_ins(open_calls)
            open_calls = {call.id: call.name for call in message.calls} if isinstance(message, Assistant) else {}
        yield _message(message)
    yield from _stand_ins(open_calls)


def _stand_ins(open_calls: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    return (
        _message(ToolResult(call, name, ok=False, text="no result was recorded")) for call, name in open_calls.items()
    )


def _message(message: Message) -> dict[str, Any]:
    match message:
        case User(text):
            return {"role": "user", "content": text}
        case Assistant(text, calls):
            said: dict[str, Any] = {"role": "assistant", "content": text or None}
            if calls:
                said["tool_calls"] = [_call(call) for call in calls]
            elif not text:
                said["content"] = ""
            return said
        case ToolResult(call_id=made, ok=ok, text=text):
            return {"role": "tool", "tool_call_id": made, "content": text if ok else f"FAILED: {text}"}
        case _:
            assert_never(message)


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


class NativeReader:
    """Turns the chunks of one stream into events; calls are handed on only once the stream has come to its end."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._ending = Ending()
        self._calls: dict[int, _PartialCall] = {}

    def feed(self, chunk: Chunk) -> Iterator[ModelEvent]:
        """The events that this chunk completes."""
        self._ending.note(chunk)
        for choice in chunk.choices[:1]:
            for text in (choice.delta.content, choice.delta.refusal):
                if text:
                    yield TextDelta(text)
            if choice.delta.refusal:
                self._ending.refused = True
            for piece in choice.delta.tool_calls or ():
                self._take(piece)

    def end(self) -> Iterator[ModelEvent]:
        """The events that only the stream's end completes; raises Retryable when it ended before its end."""
        stop = self._ending.stop()
        calls = [] if stop is Stop.MAX_TOKENS else list(self._complete_calls())
        yield from calls
        if stop in {Stop.END, Stop.TOOL_CALLS}:
            stop = Stop.TOOL_CALLS if calls else Stop.END
        yield Finished(stop, self._ending.usage)

    def _take(self, piece: CallPiece) -> None:
        index = piece.index
        if index is None:
            # Servers that number no pieces send each call whole, or start each with a new id.
            index = len(self._calls) if piece.id or not self._calls else len(self._calls) - 1
        partial = self._calls.setdefault(index, _PartialCall())
        partial.id = piece.id or partial.id
        partial.name = partial.name or piece.function.name or ""
        partial.arguments += piece.function.arguments or ""

    def _complete_calls(self) -> Iterator[CallRequested]:
        taken = {call.id for said in self._conversation.messages if isinstance(said, Assistant) for call in said.calls}
        for place, (_, partial) in enumerate(sorted(self._calls.items())):
            made = partial.id if partial.id and partial.id not in taken else call_id(self._conversation, place)
            taken.add(made)
            yield CallRequested(ToolCall(made, partial.name, partial.parsed()))


class _PartialCall:
    __slots__ = ("arguments", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = ""

    def parsed(self) -> Mapping[str, Any]:
        try:
            arguments = storable(self.arguments or "{}")
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            raise Retryable(f"the model wrote arguments for {self.name or 'a tool'} that are no JSON object")
        return arguments
