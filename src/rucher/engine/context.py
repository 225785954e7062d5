"""What a model is given to read: the persona, the exchanges before, the request. Pure, and the same at every replay."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from rucher.protocol.conversation import Assistant, Conversation, User

EXCHANGES = 6
"""Earlier requests of a session that are shown with the present one."""
EARLIER_CHARACTERS = 4000
"""Characters that all earlier exchanges may take together; the oldest go first."""


def recent(exchanges: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """As many whole exchanges as may be shown, oldest first; given newest first, each with `request` and `answer`."""
    kept: list[dict[str, Any]] = []
    left = EARLIER_CHARACTERS
    for exchange in islice(exchanges, EXCHANGES):
        left -= len(exchange["request"]) + len(exchange["answer"])
        if left < 0:
            break
        kept.insert(0, dict(exchange))
    return kept


def assemble(persona: str, earlier: Iterable[Mapping[str, Any]], request: str) -> Conversation:
    """The conversation for one request after these exchanges, oldest first."""
    said = [part for each in earlier for part in (User(each["request"]), Assistant(each["answer"]))]
    return Conversation(persona, (*said, User(request)))
