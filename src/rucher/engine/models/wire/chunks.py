"""One piece of a streamed answer, as a record: parsed here once, trusted by the readers.

Fields that providers add are ignored, fields that they leave out or send as null have a meaning here.
"""

from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from rucher.protocol.conversation import Usage
from rucher.protocol.errors import Retryable


class _FunctionPiece(BaseModel):
    name: str | None = None
    arguments: str | None = None


class CallPiece(BaseModel):
    """A part of a tool call; parts of one call share their `index`, and only the first must carry id and name."""

    index: int | None = None
    id: str | None = None
    function: _FunctionPiece = _FunctionPiece()


class Delta(BaseModel):
    """What a chunk adds to the answer."""

    content: str | None = None
    refusal: str | None = None
    tool_calls: list[CallPiece] | None = None


MOST_TOKENS = 1 << 32
"""More than any one call can have used."""


class Choice(BaseModel):
    """One alternative answer; only the first is ever asked for."""

    delta: Delta = Delta()
    finish_reason: str | None = None


class _CachedTokens(BaseModel):
    cached_tokens: int | None = None


class _UsageField(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _CachedTokens | None = None


class Chunk(BaseModel):
    """One event of the stream. `error` is set when the provider fails in the middle of an answer."""

    choices: list[Choice] = []
    usage: _UsageField | None = None
    error: Any = None

    @property
    def counted(self) -> Usage | None:
        """The tokens, where this chunk tells them."""
        if self.usage is None:
            return None
        details = self.usage.prompt_tokens_details
        return Usage(
            input_tokens=_count(self.usage.prompt_tokens),
            cached_tokens=_count(details.cached_tokens if details else None),
            output_tokens=_count(self.usage.completion_tokens),
        )


def _count(told: int | None) -> int:
    """A number of tokens that can be one; what an endpoint tells is charged to budgets, which nothing may lower."""
    return min(max(told or 0, 0), MOST_TOKENS)


_CHUNK = TypeAdapter(Chunk)


def parse(data: str) -> Chunk:
    """The chunk in one event's data; raises Retryable for text that is none."""
    try:
        return _CHUNK.validate_json(data)
    except ValidationError as error:
        raise Retryable("the model's stream broke: a piece of it cannot be read") from error
