"""Whether a delivery comes from who holds the secret: a pure decision over its headers and the raw bytes of its body. Called by
`rucher.control.doors`, before a byte of the body is read as anything.

The formats are those of the senders' own documentation:

- standard, ed25519: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md (`v1`, `v1a`)
- github: https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
- stripe: https://docs.stripe.com/webhooks#verify-manually
- slack: https://docs.slack.dev/authentication/verifying-requests-from-slack
- bearer: https://www.rfc-editor.org/rfc/rfc6750#section-2.1
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from rucher.protocol.errors import BadInput, Denied
from rucher.protocol.events import Trust

WINDOW_S = 300
"""Seconds that a signed time may be from ours, before or after: a delivery that was copied is worth nothing later."""
MOST_SIGNATURES = 16
"""The most signatures of one delivery that are looked at."""
MOST_KEY = 200
"""The longest id of a delivery, in characters."""
SECRET_PREFIX = "whsec_"  # noqa: S105 - what every such secret begins with
PUBLIC_PREFIX = "whpk_"
KEY_BYTES = 32

Headers = Mapping[str, str]
"""Headers by their names in small letters; of one that came twice, none."""


class Scheme(StrEnum):
    """How the deliveries of a source are signed."""

    STANDARD = "standard"
    GITHUB = "github"
    STRIPE = "stripe"
    SLACK = "slack"
    BEARER = "bearer"
    ED25519 = "ed25519"


MOST_TRUST = {
    Scheme.STANDARD: Trust.OWNER,
    Scheme.ED25519: Trust.OWNER,
    Scheme.BEARER: Trust.MEMBER,
    Scheme.GITHUB: Trust.PARTNER,
    Scheme.STRIPE: Trust.PARTNER,
    Scheme.SLACK: Trust.PARTNER,
}
"""The most that a scheme can vouch for. A bearer's word is not bound to what it sends; a platform's signature proves the
platform, and not the people who write there."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What came in: headers, the body's raw bytes, and when, in microseconds since the epoch."""

    headers: Headers
    body: bytes
    at: int


@dataclass(frozen=True, slots=True)
class Verified:
    """What a signature vouches for: the id of this delivery as it was signed; None where no id is signed but the body is."""

    key: str | None


def verify(scheme: Scheme, secrets: Sequence[str], delivery: Delivery) -> Verified:
    """What was verified, with any one of the secrets (public keys for ed25519).

    Raises Denied, in one line that says nothing about the secret, when none fits or the signed time is too far from now,
    and BadInput for an id that cannot be used.
    """
    return _SCHEMES[scheme](secrets, delivery)


def body_key(body: bytes) -> str:
    """The idempotency key of a delivery whose body is signed, and whose id is not."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def demand_usable(scheme: Scheme, secret: str) -> None:
    """Raise BadInput for a secret that could verify nothing under this scheme, without repeating it."""
    if not secret.isascii() or not secret.isprintable() or secret != secret.strip():
        raise BadInput("a secret is one line of ASCII letters, digits and signs; paste it as the sender shows it")
    if len(secret) < _SHORTEST_SECRET:
        raise BadInput(f"a secret has at least {_SHORTEST_SECRET} characters; let `rucher sources rotate` make one")
    if scheme is Scheme.STANDARD and len(_standard_key(secret)) < _SHORTEST_SECRET:
        raise BadInput(f"a Standard Webhooks secret holds at least {_SHORTEST_SECRET} bytes; take a longer one")


def public_key(text: str) -> bytes:
    """The 32 bytes of a public key, written as whpk_ and base64 or as 64 hexadecimal digits; raises BadInput."""
    if re.fullmatch(r"[0-9a-fA-F]{64}", text):
        return bytes.fromhex(text)
    try:
        raw = base64.b64decode(text.removeprefix(PUBLIC_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != KEY_BYTES:
        raise BadInput("this is no Ed25519 public key; write whpk_ and its base64, or its 64 hexadecimal digits")
    return raw


_SHORTEST_SECRET = 16


def _standard(secrets: Sequence[str], delivery: Delivery) -> Verified:
    signed = _Signed.of(delivery)
    given = signed.signatures("v1")
    wanted = [hmac.digest(_standard_key(secret), signed.content, "sha256") for secret in secrets]
    _demand(_any_equal(wanted, given))
    return Verified(signed.id)


def _ed25519(keys: Sequence[str], delivery: Delivery) -> Verified:
    signed = _Signed.of(delivery)
    given = signed.signatures("v1a")
    _demand(any(_signed_by(public_key(key), signed.content, one) for key in keys for one in given))
    return Verified(signed.id)


def _github(secrets: Sequence[str], delivery: Delivery) -> Verified:
    given = _header(delivery, "x-hub-signature-256")
    wanted = [_hex_mac(secret, delivery.body) for secret in secrets]
    _demand(_any_equal(wanted, [given.removeprefix("sha256=").encode()]) and given.startswith("sha256="))
    return Verified(body_key(delivery.body))


def _stripe(secrets: Sequence[str], delivery: Delivery) -> Verified:
    pairs = [part.strip().partition("=") for part in _header(delivery, "stripe-signature").split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    if len(times) != 1:
        raise Denied("the header stripe-signature names no single time t")
    _demand_recent(times[0], delivery.at)
    given = [value.encode() for name, _, value in pairs if name == "v1"][:MOST_SIGNATURES]
    content = times[0].encode() + b"." + delivery.body
    _demand(_any_equal([_hex_mac(secret, content) for secret in secrets], given))
    return Verified(None)


def _slack(secrets: Sequence[str], delivery: Delivery) -> Verified:
    at = _header(delivery, "x-slack-request-timestamp")
    given = _header(delivery, "x-slack-signature")
    _demand_recent(at, delivery.at)
    content = b"v0:" + at.encode() + b":" + delivery.body
    wanted = [b"v0=" + _hex_mac(secret, content) for secret in secrets]
    _demand(_any_equal(wanted, [given.encode()]))
    return Verified(None)


def _bearer(secrets: Sequence[str], delivery: Delivery) -> Verified:
    kind, _, given = _header(delivery, "authorization").partition(" ")
    fits = _any_equal([secret.encode() for secret in secrets], [given.strip().encode()])
    if kind.lower() != "bearer" or not fits:
        raise Denied("the bearer token does not fit")
    key = delivery.headers.get("idempotency-key")
    if key is None:
        return Verified(None)
    if not _is_id(key := key.strip().strip('"')):
        raise BadInput(f"the header idempotency-key holds no id of up to {MOST_KEY} ASCII characters; shorten it")
    return Verified(key)


_SCHEMES: Mapping[Scheme, Callable[[Sequence[str], Delivery], Verified]] = {
    Scheme.STANDARD: _standard,
    Scheme.GITHUB: _github,
    Scheme.STRIPE: _stripe,
    Scheme.SLACK: _slack,
    Scheme.BEARER: _bearer,
    Scheme.ED25519: _ed25519,
}


@dataclass(frozen=True, slots=True)
class _Signed:
    """What a delivery by Standard Webhooks says was signed."""

    id: str
    content: bytes
    given: str

    @classmethod
    def of(cls, delivery: Delivery) -> "_Signed":
        # The service whose format became the standard still signs under its own name, with the same content.
        family = "svix" if "svix-id" in delivery.headers and "webhook-id" not in delivery.headers else "webhook"
        key = _header(delivery, f"{family}-id")
        if not _is_id(key):
            raise Denied(f"the header {family}-id holds no id of up to {MOST_KEY} ASCII characters")
        at = _header(delivery, f"{family}-timestamp")
        given = _header(delivery, f"{family}-signature")
        _demand_recent(at, delivery.at)
        return cls(key, f"{key}.{at}.".encode() + delivery.body, given)

    def signatures(self, version: str) -> list[bytes]:
        pairs = [one.partition(",") for one in self.given.split(" ")[:MOST_SIGNATURES]]
        decoded = [_decoded(value) for name, _, value in pairs if name == version]
        return [one for one in decoded if one]


def _header(delivery: Delivery, name: str) -> str:
    value = delivery.headers.get(name, "")
    if not value:
        raise Denied(f"the header {name} is missing, or came more than once")
    return value


def _is_id(value: str) -> bool:
    return 0 < len(value) <= MOST_KEY and value.isascii() and value.isprintable()


def _demand_recent(value: str, now: int) -> None:
    if not re.fullmatch(r"[0-9]{1,12}", value, re.ASCII):
        raise Denied("the signed time is no number of seconds")
    away = int(value) - now // 1_000_000
    if abs(away) > WINDOW_S:
        side = "behind" if away < 0 else "ahead of"
        raise Denied(
            f"the signed time is {abs(away)} s {side} this machine's clock, at most {WINDOW_S} s are taken; "
            "send it anew, or set both clocks"
        )


def _demand(fits: bool) -> None:  # noqa: FBT001 - the only thing that it is about
    if not fits:
        raise Denied("the signature does not fit what was sent")


def _any_equal(wanted: Sequence[bytes], given: Sequence[bytes]) -> bool:
    """Whether any is equal to any; each pair is compared, so that the time says nothing about which."""
    found = [hmac.compare_digest(one, other) for one in wanted for other in given]
    return any(found)


def _hex_mac(secret: str, content: bytes) -> bytes:
    return hmac.digest(secret.encode(), content, "sha256").hex().encode()


def _standard_key(secret: str) -> bytes:
    text = secret.removeprefix(SECRET_PREFIX)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadInput(
            f"a Standard Webhooks secret is {SECRET_PREFIX} and base64; paste it as the sender shows it"
        ) from error


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _signed_by(key: bytes, content: bytes, signature: bytes) -> bool:
    try:
        VerifyKey(key).verify(content, signature)
    except (BadSignatureError, ValueError):
        return False
    return True


def headers_of(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by their names; one that came twice with two values says nothing, so it is left out."""
    found: dict[str, str] = {}
    twice: set[str] = set()
    for name, value in pairs:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        if found.setdefault(key, text) != text:
            twice.add(key)
    return {key: text for key, text in found.items() if key not in twice}
