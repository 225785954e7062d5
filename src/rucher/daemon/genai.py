"""The names of OpenTelemetry's conventions for generative AI, all in this module: they still change. Pure.

Called by `rucher.daemon.spans`. Source: https://opentelemetry.io/docs/specs/semconv/gen-ai/ (agent, model and tool spans).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
MODEL = "gen_ai.request.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOOL = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
CALL_ID = "gen_ai.tool.call.id"
CALL_ARGUMENTS = "gen_ai.tool.call.arguments"
CALL_RESULT = "gen_ai.tool.call.result"
INPUT = "gen_ai.input.messages"
OUTPUT = "gen_ai.output.messages"
ERROR = "error.type"

INVOKE_AGENT = "invoke_agent"
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"

PROVIDERS = {"embedded": "llama.cpp", "compatible": "openai_compatible", "scripted": "scripted"}
"""By the kind of model in rucher.toml; the conventions take other names than their own for what they do not list."""

MOST_TEXT = 8192
"""Characters of one text that leave; the journal has all of it."""


def said(role: str, text: str, calls: Sequence[Mapping[str, Any]] = ()) -> str:
    """One message as the conventions write it, as JSON."""
    parts: list[dict[str, Any]] = [{"type": "text", "content": cut(text)}] if text else []
    parts += [
        {"type": "tool_call", "id": call.get("id"), "name": call.get("name"), "arguments": call.get("arguments")}
        for call in calls
    ]
    return json.dumps([{"role": role, "parts": parts}], ensure_ascii=False)


def cut(text: str) -> str:
    """The text, or its beginning where it is long."""
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 3]}..."
