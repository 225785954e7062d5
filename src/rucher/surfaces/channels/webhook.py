"""A webhook as a destination: each event is posted, signed, to an address that its owner wrote.

Called by delivery. A message whose answer was lost goes again under the same `webhook-id`, by which the receiver knows it.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rucher.protocol.errors import BadInput, Permanent, Retryable
from rucher.protocol.events import Event
from rucher.protocol.ports import Clock, Proof
from rucher.surfaces.posting import Parcel, Target, post

TEST = "destination.test"
"""The type of what an owner sends to try a destination; every webhook takes it."""

SECRET_PREFIX = "whsec_"  # noqa: S105 - what secrets begin with, not one
KEY_BYTES = (24, 64)
"""The fewest and the most bytes of a key, as Standard Webhooks ask for."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class WebhookPlace:
    """Where to post, and what is taken there: these types of events (none: all) with a text of at most so many characters."""

    name: str
    target: Target
    events: tuple[str, ...] = ()
    max_chars: int | None = None


class WebhookChannel:
    """The deliverer of one webhook. `secrets` gives the keys that sign, newest first; it is asked at each message."""

    def __init__(self, place: WebhookPlace, secrets: Callable[[], Sequence[bytes]], clock: Clock) -> None:
        self._place = place
        self._secrets = secrets
        self._clock = clock

    async def deliver(self, event: Event, key: str) -> dict[str, Any]:
        """Post the event; the receipt is what the receiver answered.

        Raises Retryable and Permanent as `post` does, Retryable too while there is no secret to sign with.
        """
        place, text = self._place, str(event.body.get("text", ""))
        if place.events and event.type not in (TEST, *place.events):
            raise Permanent(f"webhook {place.name} takes {', '.join(place.events)}, not {event.type}; see its events")
        if place.max_chars is not None and len(text) > place.max_chars:
            raise Permanent(f"webhook {place.name} takes {place.max_chars} characters of text, this has {len(text)}")
        keys = self._secrets()
        if not keys:
            raise Retryable(
                f"webhook {place.name} has no secret to sign with; make one: rucher destinations secret {place.name}"
            )
        return await post(
            place.target,
            Parcel(key, "application/json", payload(event)),
            lambda signed: [_signature(secret, signed) for secret in keys],
            self._clock,
        )

    async def probe(self, event: Event, key: str) -> Proof:  # noqa: ARG002 - the port's
        """Nobody can tell, and it does no harm to post it again: the receiver knows the key."""
        return Proof.REPEATABLE


def key_of(secret: str, name: str) -> bytes:
    """The key that a secret of webhook `name` stands for; raises BadInput, which never shows it, when it is none."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(SECRET_PREFIX) or not KEY_BYTES[0] <= len(key) <= KEY_BYTES[1]:
        raise BadInput(
            f"a secret of webhook {name} is damaged; make a new one: rucher destinations secret {name} --rotate"
        )
    return key


def secret_of(key: bytes) -> str:
    """The key as its receiver takes it."""
    return SECRET_PREFIX + base64.b64encode(key).decode()


def payload(event: Event) -> bytes:
    """The event as Standard Webhooks advise it: `type`, `timestamp`, and all else in `data`."""
    at = (_EPOCH + timedelta(microseconds=event.occurred_at)).isoformat(timespec="microseconds")
    said = {
        "type": event.type,
        "timestamp": at.replace("+00:00", "Z"),
        "data": {
            "event": event.id, "trace_id": event.trace_id, "from": event.principal, "trust": event.trust.word,
            "addressed_to": event.addressed_to, "text": event.body.get("text", ""),
            "group": event.body.get("group", ""), "thread": event.body.get("thread", ""), "body": dict(event.body),
        },
    }  # fmt: skip
    return json.dumps(said, separators=(",", ":")).encode()


def _signature(secret: bytes, signed: bytes) -> str:
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
