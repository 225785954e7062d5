"""What a model is given to read: the persona, the exchanges before, the request. Pure, and the same at every replay."""

from collections.abc import Mapping, Sequence
from typing import Any

from rucher.protocol.conversation import Assistant, Conversation, User

EXCHANGES = 6
"""Earlier requests of a session that are shown with the present one."""
EARLIER_CHARACTERS = 4000
"""Characters that all earlier exchanges may take together; the oldest go first."""


def assemble(persona: str, earlier: Sequence[Mapping[str, Any]], request: str) -> Conversation:
    """The conversation for one request; `earlier` holds `request` and `answer` texts, oldest first."""
    kept: list[Mapping[str, Any]] = []
    left = EARLIER_CHARACTERS
    for exchange in reversed(earlier[-EXCHANGES:]):
        left -= len(exchange["request"]) + len(exchange["answer"])
        if left < 0:
            break
        kept.insert(0, exchange)
    said = [part for each in kept for part in (User(each["request"]), Assistant(each["answer"]))]
    return Conversation(persona, (*said, User(request)))
