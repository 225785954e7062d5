"""Another instance as a destination: each event is posted to its door, signed with this node's key.

Called by delivery, also for the agents that run there. A message whose answer was lost goes again under the same key, by
which the other door knows it.
"""

import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from nacl.signing import SigningKey, VerifyKey

from rucher.protocol.events import Event
from rucher.protocol.ports import Clock, Proof
from rucher.surfaces.crossing import CONTENT_TYPE, leaving
from rucher.surfaces.posting import Parcel, Target, post

PUBLIC_PREFIX = "whpk_"
"""What a public key of Standard Webhooks begins with, as the other instance's sources.toml wants it."""


@dataclass(frozen=True, slots=True)
class Node:
    """This instance, as the others know it."""

    name: str
    key: SigningKey
    find: Callable[[str], Awaitable[Event | None]]
    """The event of this journal with an id."""


class InstanceChannel:
    """The deliverer of one other instance; `agent` there is whom everything is for, if anybody."""

    def __init__(self, target: Target, node: Node, clock: Clock, agent: str | None = None) -> None:
        self._target = target
        self._node = node
        self._clock = clock
        self._agent = agent

    async def deliver(self, event: Event, key: str) -> dict[str, Any]:
        """Post the event; the receipt is what the other door answered. Raises Retryable and Permanent as `post` does."""
        replied = event.body.get("in_reply_to")
        asked = await self._node.find(replied) if isinstance(replied, str) else None
        record = leaving(event, key, self._node.name, self._agent, asked)
        body = json.dumps(record, separators=(",", ":")).encode()
        return await post(self._target, Parcel(key, CONTENT_TYPE, body), self._signatures, self._clock)

    async def probe(self, event: Event, key: str) -> Proof:  # noqa: ARG002 - the port's
        """Nobody can tell, and it does no harm to post it again: the other door knows the key."""
        return Proof.REPEATABLE

    def _signatures(self, signed: bytes) -> list[str]:
        return ["v1a," + base64.b64encode(self._node.key.sign(signed).signature).decode()]


def public_text(key: VerifyKey) -> str:
    """This node's public key as the other's `sources.toml` takes it."""
    return PUBLIC_PREFIX + base64.b64encode(bytes(key)).decode()
