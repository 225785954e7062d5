"""What the readers of both tool modes share: how a stream ends, what JSON they take, how a call gets its id. Pure."""

import json
from collections.abc import Iterator
from typing import Any, Protocol

from rucher.engine.models.wire.chunks import Chunk
from rucher.protocol.conversation import Assistant, Conversation, ModelEvent, Stop, Usage
from rucher.protocol.errors import Retryable

_STOPS = {
    "length": Stop.MAX_TOKENS,
    "tool_calls": Stop.TOOL_CALLS,
    "function_call": Stop.TOOL_CALLS,
    "content_filter": Stop.REFUSAL,
}
_BROKEN_OFF = frozenset({"error", "insufficient_system_resource"})


class Reader(Protocol):
    """Turns the chunks of one stream into events."""

    def feed(self, chunk: Chunk) -> Iterator[ModelEvent]:
        """The events that this chunk completes."""
        ...

    def end(self) -> Iterator[ModelEvent]:
        """The events that only the stream's end completes, Finished last; raises Retryable for an early end."""
        ...


class Ending:
    """What is known so far about how and with what counts a stream ends."""

    def __init__(self) -> None:
        self.refused = False
        self.usage = Usage()
        self._reason: str | None = None

    def note(self, chunk: Chunk) -> None:
        """Keep what this chunk says about the end."""
        self.usage = chunk.counted or self.usage
        for choice in chunk.choices[:1]:
            self._reason = choice.finish_reason or self._reason

    def stop(self) -> Stop:
        """Why the stream ended; raises Retryable when the provider never said that it did."""
        if self._reason is None or self._reason in _BROKEN_OFF:
            raise Retryable("the model's stream ended before its end")
        return Stop.REFUSAL if self.refused else _STOPS.get(self._reason, Stop.END)


def call_id(conversation: Conversation, place: int = 0) -> str:
    """The id of the next call but `place` in this conversation: counted, so that asking again gives the same."""
    made = sum(len(said.calls) for said in conversation.messages if isinstance(said, Assistant))
    return f"call_{made + place + 1}"


def storable(text: str) -> Any:
    """The JSON value in `text`, with halves of characters that no file could hold replaced; raises ValueError for none."""
    value = json.loads(text)
    if "\\ud" not in text.lower():
        return value
    whole = json.dumps(value, ensure_ascii=False).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return json.loads(whole)
