"""Another instance as a destination: each event is posted to its door, signed with this node's key.

Called by delivery, also for the agents that run there. A message whose answer was lost goes again under the same key, by
which the other door knows it.
"""

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from nacl.signing import SigningKey, VerifyKey

from rucher.protocol.events import DEFAULT_GROUP, Event
from rucher.protocol.ports import Clock, Proof
from rucher.surfaces.posting import Parcel, Target, post

PUBLIC_PREFIX = "whpk_"
"""What a public key of Standard Webhooks begins with, as the other instance's sources.toml wants it."""
CONTENT_TYPE = "application/cloudevents+json"
MOST_VIA = 64
"""The most agents of a chain that are told, the youngest."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ORIGIN = "rucher_origin"


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
        body = json.dumps(leaving(event, key, self._node.name, self._agent, asked), separators=(",", ":")).encode()
        return await post(self._target, Parcel(key, CONTENT_TYPE, body), self._signatures, self._clock)

    async def probe(self, event: Event, key: str) -> Proof:  # noqa: ARG002 - the port's
        """Nobody can tell, and it does no harm to post it again: the other door knows the key."""
        return Proof.REPEATABLE

    def _signatures(self, signed: bytes) -> list[str]:
        return ["v1a," + base64.b64encode(self._node.key.sign(signed).signature).decode()]


def leaving(event: Event, key: str, node: str, agent: str | None, asked: Event | None) -> dict[str, Any]:
    """The event as a CloudEvent that keeps its trace. `agent`: whom it is for, there. `asked`: the event here that it answers.

    With each goes where an answer to it belongs: what answers an event of the other instance is addressed by that, and
    names the event there. Who says it and how far that is trusted is not in it: the receiver stamps that, by the key.
    """
    at = (_EPOCH + timedelta(microseconds=event.occurred_at)).isoformat(timespec="microseconds")
    origin = asked.body.get("payload", {}) if asked is not None else {}
    home = origin.get(_ORIGIN) if isinstance(origin, Mapping) else None
    if not isinstance(home, Mapping) or not all(isinstance(home.get(name), kind) for name, kind in _HOME.items()):
        home = None
    data: dict[str, Any] = {
        "text": str(event.body.get("text", "")), "group": str(event.body.get("group") or DEFAULT_GROUP),
        "thread": str(event.body.get("thread", "")), "via": list(event.body.get("via", ()))[-MOST_VIA:],
        "depth": int(event.body.get("depth", 0)) + 1, "payload": {_ORIGIN: _home(event), "body": _shown(event)},
    }  # fmt: skip
    if event.body.get("automatic"):
        data["automatic"] = True
    address = f"agent:{agent}" if agent else None
    if isinstance(home, Mapping):
        address = home["reply_to"]
        data |= {"in_reply_to": home["event"], "group": home["group"], "thread": home["thread"]}
        if home["asked"]:
            data["answers"] = home["event"]
    return {
        "specversion": "1.0", "id": key, "source": f"rucher:{node}/{event.source}",
        "type": "message" if event.type == "ask" else event.type, "time": at.replace("+00:00", "Z"),
        "datacontenttype": "application/json", "traceid": event.trace_id,
        **({"addressedto": address} if address else {}), "data": data,
    }  # fmt: skip


_HOME: Mapping[str, type] = {"event": str, "reply_to": str, "group": str, "thread": str, "asked": bool}


def _home(event: Event) -> dict[str, Any]:
    """Where an answer to this event belongs here."""
    group, asked = str(event.body.get("group") or DEFAULT_GROUP), event.source == "agent"
    return {
        "event": event.id, "reply_to": event.principal if asked else f"group:{event.source}:{group}", "group": group,
        "thread": str(event.body.get("thread", "")), "asked": asked and event.type == "ask",
    }  # fmt: skip


def _shown(event: Event) -> dict[str, Any]:
    """What the event says besides what is told of every event, such as the payload of a webhook."""
    told = ("text", "group", "thread", "via", "depth", "run", "session", "in_reply_to", "reply_to_run", "reply_topic")
    return {name: value for name, value in event.body.items() if name not in told}


def public_text(key: VerifyKey) -> str:
    """This node's public key as the other's `sources.toml` takes it."""
    return PUBLIC_PREFIX + base64.b64encode(bytes(key)).decode()
