"""Deliveries as their senders make them: signed by the vendors' own libraries wherever there is one."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from nacl.signing import SigningKey
from slack_sdk.signature import SignatureVerifier
from standardwebhooks import Webhook
from stripe import WebhookSignature

from rucher.surfaces.verification import Scheme

STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - the specification's own example
PLAIN_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"  # noqa: S105 - an example
NODE = SigningKey(bytes(range(32)))
PUBLIC_KEY = "whpk_" + base64.b64encode(bytes(NODE.verify_key)).decode()
SECRETS = {
    Scheme.STANDARD: STANDARD_SECRET,
    Scheme.GITHUB: PLAIN_SECRET,
    Scheme.STRIPE: "whsec_" + PLAIN_SECRET,
    Scheme.SLACK: PLAIN_SECRET,
    Scheme.BEARER: PLAIN_SECRET,
    Scheme.ED25519: PUBLIC_KEY,
}
"""What the receiver verifies with."""
OTHERS = {
    Scheme.STANDARD: "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
    Scheme.GITHUB: "another secret of 20",
    Scheme.STRIPE: "whsec_another0secret",
    Scheme.SLACK: "another0secret0of020",
    Scheme.BEARER: "another0secret0of020",
    Scheme.ED25519: "00" * 31 + "01",
}
"""Other secrets, of the same form."""


@dataclass(frozen=True)
class Sent:
    """A delivery on the wire."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def but(self, **headers: str | None) -> "Sent":
        """The same with other headers; None leaves one out. Underscores stand for dashes."""
        changed = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return replace(self, headers={name: value for name, value in changed.items() if value is not None})

    def saying(self, body: bytes) -> "Sent":
        """The same headers over another body."""
        return replace(self, body=body)


def standard(payload: Any, at_s: int, key: str = "msg_1", secret: str = STANDARD_SECRET) -> Sent:
    body = json.dumps(payload)
    signature = Webhook(secret).sign(key, datetime.fromtimestamp(at_s, UTC), body)
    return Sent(body.encode(), _json(webhook_id=key, webhook_timestamp=str(at_s), webhook_signature=signature))


def ed25519(payload: Any, at_s: int, key: str = "msg_1", signer: SigningKey = NODE) -> Sent:
    """There is no library that signs so; the form is that of the specification, section on asymmetric signatures."""
    body = json.dumps(payload).encode()
    signature = signer.sign(f"{key}.{at_s}.".encode() + body).signature
    headers = _json(
        webhook_id=key, webhook_timestamp=str(at_s), webhook_signature="v1a," + base64.b64encode(signature).decode()
    )
    return Sent(body, headers)


def github(payload: Any, event: str = "push", secret: str = PLAIN_SECRET) -> Sent:
    """GitHub publishes no library that signs; the test of its documentation's own example stands beside."""
    body = json.dumps(payload).encode()
    signature = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return Sent(body, _json(x_hub_signature_256=signature, x_github_event=event, x_github_delivery="d-1"))


def stripe(payload: Any, at_s: int, secret: str = SECRETS[Scheme.STRIPE]) -> Sent:
    body = json.dumps(payload)
    header = WebhookSignature.generate_signature_header(payload=body, secret=secret, timestamp=at_s)
    return Sent(body.encode(), _json(stripe_signature=header))


def slack(payload: Any, at_s: int, secret: str = PLAIN_SECRET, *, form: bool = False) -> Sent:
    body = urlencode(payload) if form else json.dumps(payload)
    signature = SignatureVerifier(secret).generate_signature(timestamp=str(at_s), body=body)
    headers = _json(x_slack_request_timestamp=str(at_s), x_slack_signature=signature or "")
    kind = "application/x-www-form-urlencoded" if form else "application/json"
    return Sent(body.encode(), {**headers, "content-type": kind})


def bearer(payload: Any, key: str | None = None, secret: str = PLAIN_SECRET) -> Sent:
    sent = Sent(json.dumps(payload).encode(), _json(authorization=f"Bearer {secret}"))
    return sent.but(idempotency_key=key) if key else sent


def by(scheme: Scheme, payload: Any, at_s: int) -> Sent:
    """A good delivery of this scheme."""
    match scheme:
        case Scheme.STANDARD:
            return standard(payload, at_s)
        case Scheme.GITHUB:
            return github(payload)
        case Scheme.STRIPE:
            return stripe(payload, at_s)
        case Scheme.SLACK:
            return slack(payload, at_s)
        case Scheme.BEARER:
            return bearer(payload, "k-1")
        case Scheme.ED25519:
            return ed25519(payload, at_s)


def _json(**headers: str) -> dict[str, str]:
    return {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
