"""Tool calls for models too small for the wire's own: the answer is one JSON object that a schema forces. Pure.

The endpoint must honour `response_format` of type `json_schema` while it samples, as llama.cpp's server does; then no
call can name an unknown tool or leave out an argument. Calls and results of the past are plain text.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

from pydantic_core import from_json

from rucher.engine.models.wire.chunks import Chunk
from rucher.engine.models.wire.reading import Ending, call_id, storable
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

ANSWER = "answer"
_ANSWER_SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
_ORDER = (Effect.READ, Effect.IDEMPOTENT_WRITE, Effect.NON_IDEMPOTENT, Effect.MODEL_CALL)
"""Small models prefer what they are shown first: looking, then writing, then running."""
_SHORTEST_RESULT = 500
_LONGEST_REMINDER = 300
_CALL_AND_RESULT = 2
_LEFT_OUT = "[Older messages are left out here.]"
_CHARS_PER_TOKEN = 3
"""Low for English and about right for code, so that a body judged to fit does fit."""


def render(
    name: str, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions, context_tokens: int
) -> dict[str, Any]:
    """The request body; what does not fit `context_tokens` is left out of it, oldest first, and said to be."""
    tools = sorted(tools, key=lambda spec: (_ORDER.index(spec.effect), spec.name))
    prefix = _system(conversation.system, tools)
    offered = () if _repeats_itself(conversation.messages) else tools
    room = (context_tokens - options.max_tokens) * _CHARS_PER_TOKEN - len(prefix)
    return {
        "model": name,
        "messages": [{"role": "system", "content": prefix}, *_fitted(conversation.messages, room)],
        "max_tokens": options.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "response_format": {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema(offered)}},
    }


def _repeats_itself(messages: Sequence[Message]) -> bool:
    """Whether a call was made twice since the user spoke: a small model would go on, so only its answer is left to it."""
    calls: list[str] = []
    for message in messages:
        if isinstance(message, User):
            calls = []
        elif isinstance(message, Assistant):
            calls += [_reply(call.name, call.arguments) for call in message.calls]
    return len(set(calls)) < len(calls)


def schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The JSON schema that every reply obeys: a call of one of the tools with its arguments, or an answer."""
    replies = [(spec.name, closed(required(spec.parameters))) for spec in tools]
    return {"anyOf": [_reply_schema(name, arguments) for name, arguments in (*replies, (ANSWER, _ANSWER_SCHEMA))]}


def required(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters without the optional ones: a small model that may fill them in does, with inventions."""
    needed = parameters.get("required", ())
    properties = {name: value for name, value in parameters.get("properties", {}).items() if name in needed}
    return {**parameters, "properties": properties} if properties else parameters


def closed(parameters: Any) -> Any:
    """This schema with every object in it closed to properties that it does not name."""
    if isinstance(parameters, Mapping):
        shut = {name: closed(value) for name, value in parameters.items()}
        return {**shut, "additionalProperties": False} if shut.get("type") == "object" else shut
    return [closed(value) for value in parameters] if isinstance(parameters, list | tuple) else parameters


def _reply_schema(name: str, arguments: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"tool": {"const": name}, "arguments": arguments},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }


def _system(persona: str, tools: Sequence[ToolSpec]) -> str:
    listed = [f"- {_signature(spec)}: {_first_sentence(spec.description)}" for spec in tools]
    lines = [
        persona.strip(),
        'You act by replying with one JSON object: {"tool": NAME, "arguments": {...}}.',
        "Tools:",
        *listed,
        f"- {ANSWER}(text): give the final answer to the user.",
        _HOW,
    ]
    return "\n".join(line for line in lines if line)


_HOW = (
    "To a greeting, to thanks or to a question about yourself, reply with the answer tool at once. "
    "If the request is about files or needs a tool, use the tool before you answer, and never guess what it would say. "
    "When a tool result answers the request, reply with the answer tool."
)


def _first_sentence(text: str) -> str:
    """All of a description that a small model heeds; every further sentence made it choose worse."""
    first = re.match(r".*?[.!?](?=\s|$)", " ".join(text.split()))
    return first[0] if first else text


def _signature(spec: ToolSpec) -> str:
    return f"{spec.name}({', '.join(required(spec.parameters).get('properties', {}))})"


def _fitted(messages: Sequence[Message], room: int) -> list[dict[str, str]]:
    """The messages in `room` characters where that can be: past exchanges go first, then past results of this one."""
    exchanges = _exchanges(messages, longest=max(room // 3, _SHORTEST_RESULT))
    whole = _size(exchanges)
    while len(exchanges) > 1 and _size(exchanges) > room:
        exchanges.pop(0)
    while exchanges and len(exchanges[-1]) > _CALL_AND_RESULT + 1 and _size(exchanges) > room:
        del exchanges[-1][1 : 1 + _CALL_AND_RESULT]
    if _size(exchanges) < whole:
        exchanges[0][0]["content"] = f"{_LEFT_OUT}\n{exchanges[0][0]['content']}"
    return [message for exchange in exchanges for message in exchange]


def _size(exchanges: Sequence[Sequence[Mapping[str, str]]]) -> int:
    return sum(len(message["content"]) for exchange in exchanges for message in exchange)


def _exchanges(messages: Sequence[Message], longest: int) -> list[list[dict[str, str]]]:
    """The messages as the model reads them, in groups that begin with what the user said."""
    exchanges: list[list[dict[str, str]]] = []
    request = ""
    for message in messages:
        match message:
            case User(text):
                request = text
                exchanges.append([{"role": "user", "content": text}])
                continue
            case Assistant(text, calls):
                said = [_reply(call.name, call.arguments) for call in calls] or [_reply(ANSWER, {"text": text})]
                rendered = {"role": "assistant", "content": "\n".join(said)}
            case ToolResult():
                rendered = {"role": "user", "content": _result(message, request, longest)}
            case _:
                assert_never(message)
        if not exchanges:
            exchanges.append([])
        exchanges[-1].append(rendered)
    return exchanges


def _result(result: ToolResult, request: str, longest: int) -> str:
    head = "Tool result" if result.ok else "The tool failed"
    text, asked = _clipped(result.text, longest), _clipped(request, _LONGEST_REMINDER)
    return f"{head}:\n{text}\n\nThe request: {asked}\nIf this answers the request, reply with the answer tool."


def _clipped(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n[{len(text) - longest} more characters are not shown]"


def _reply(tool: str, arguments: Mapping[str, Any]) -> str:
    return json.dumps({"tool": tool, "arguments": dict(arguments)}, ensure_ascii=False)


class ConstrainedReader:
    """Turns the chunks of one constrained reply into events; the text of an answer is handed on as it grows."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._ending = Ending()
        self._raw = ""
        self._told = ""

    def feed(self, chunk: Chunk) -> Iterator[ModelEvent]:
        """The events that this chunk completes."""
        self._ending.note(chunk)
        added = "".join(choice.delta.content or "" for choice in chunk.choices[:1])
        if not added:
            return
        self._raw += added
        yield from self._grown(_answer_so_far(self._raw))

    def end(self) -> Iterator[ModelEvent]:
        """The events that only the end completes; raises Retryable when nothing of use came before it."""
        stop = self._ending.stop()
        reply = _parsed(self._raw)
        if reply is None and stop is Stop.MAX_TOKENS and self._told:
            yield Finished(stop, self._ending.usage)
            return
        tool, arguments = _checked(reply, stop, self._raw)
        if tool == ANSWER:
            yield from self._grown(arguments["text"])
            yield Finished(Stop.REFUSAL if stop is Stop.REFUSAL else Stop.END, self._ending.usage)
        else:
            yield CallRequested(ToolCall(call_id(self._conversation), tool, arguments))
            yield Finished(Stop.TOOL_CALLS, self._ending.usage)

    def _grown(self, text: str) -> Iterator[TextDelta]:
        if len(text) > len(self._told):
            yield TextDelta(text[len(self._told) :])
            self._told = text


def _answer_so_far(raw: str) -> str:
    try:
        reply = from_json(raw, allow_partial="trailing-strings")
    except ValueError:
        return ""
    arguments = reply.get("arguments") if isinstance(reply, dict) and reply.get("tool") == ANSWER else None
    text = arguments.get("text") if isinstance(arguments, dict) else None
    return text if isinstance(text, str) else ""


def _parsed(raw: str) -> Any:
    try:
        return storable(raw)
    except ValueError:
        return None


def _checked(reply: Any, stop: Stop, raw: str) -> tuple[str, dict[str, Any]]:
    match reply:
        case {"tool": "answer", "arguments": {"text": str()}} | {"tool": str(), "arguments": dict()}:
            return reply["tool"], reply["arguments"]
        case None if stop is Stop.MAX_TOKENS or not raw.strip():
            raise Retryable("the model's reply was cut before it said anything of use (max_tokens is too small for it)")
        case _:
            raise Permanent(
                'the endpoint ignores response_format, so its replies are of no use (set tools = "native" under [model])'
            )
