"""What the engine and a model say to each other, in no provider's own words.

A conversation only grows at its end, so that a provider's prompt cache keeps its prefix.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Effect(StrEnum):
    """What a restart may do with a step that has an intention and no result."""

    READ = "read"
    """Changes nothing: run it again."""
    IDEMPOTENT_WRITE = "idempotent_write"
    """Run it again with the same key; whoever executes it returns the result it already has."""
    NON_IDEMPOTENT = "non_idempotent"
    """Ask whether it was done; without a sure answer the owner decides."""
    MODEL_CALL = "model_call"
    """Run it again; the first call's cost is lost and recorded as lost."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """The declaration of a tool: what a model may call. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    effect: Effect
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that a model asks for; `id` is unique in its conversation."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class User:
    """What a person or another principal said."""

    text: str


@dataclass(frozen=True, slots=True)
class Assistant:
    """One model answer: text, tool calls, or both."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of a tool call; when `ok` is False it failed or was refused, and `text` says why."""

    call_id: str
    name: str
    ok: bool
    text: str


Message = User | Assistant | ToolResult


@dataclass(frozen=True, slots=True)
class Conversation:
    """A system text and the messages since, oldest first; each ToolResult follows the Assistant whose call it answers."""

    system: str
    messages: tuple[Message, ...] = ()

    def plus(self, *messages: Message) -> "Conversation":
        """This conversation, grown at its end."""
        return Conversation(self.system, (*self.messages, *messages))


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Limits of one model call."""

    max_tokens: int = 1024
    timeout_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that one model call was counted with, as the provider says; cached tokens are part of `input_tokens`."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class Stop(StrEnum):
    """Why a model stopped."""

    END = "end"
    TOOL_CALLS = "tool_calls"
    MAX_TOKENS = "max_tokens"
    REFUSAL = "refusal"


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallRequested:
    """A complete tool call; its arguments are parsed, not yet checked against the tool's schema."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of every stream that did not raise."""

    stop: Stop
    usage: Usage = field(default_factory=Usage)


ModelEvent = TextDelta | CallRequested | Finished
