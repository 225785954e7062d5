"""What `rucher sources` says about each scheme: where its secret comes from, and what to paste where."""

import base64

from rucher.protocol.ports import Entropy
from rucher.surfaces.verification import SECRET_PREFIX, Scheme

THEIRS = {Scheme.STRIPE: "Stripe", Scheme.SLACK: "Slack"}
"""Who makes the secret itself, so that one made here would verify nothing."""
PLACES = {
    Scheme.STANDARD: "Give the sender the address and the secret; it signs by Standard Webhooks (v1).",
    Scheme.GITHUB: (
        "On GitHub: Settings, Webhooks, Add webhook. Payload URL is the address, Content type is application/json, "
        "Secret is the secret."
    ),
    Scheme.STRIPE: "At Stripe: Developers, Webhooks, Add destination. The endpoint URL is the address.",
    Scheme.SLACK: (
        "At Slack: your app, Event Subscriptions. The Request URL is the address; so it is for slash commands and "
        "interactivity."
    ),
    Scheme.BEARER: (
        "Try it: curl -H 'Authorization: Bearer THE-SECRET' -H 'Content-Type: application/json' "
        '-d \'{{"text": "hello"}}\' {address}'
    ),
    Scheme.ED25519: "The sender signs with the private half of its key, by Standard Webhooks (v1a).",
}
_BYTES = 32


def made_secret(scheme: Scheme, entropy: Entropy) -> str:
    """A new secret, in the form that the scheme's senders take."""
    raw = entropy.bytes(_BYTES)
    return SECRET_PREFIX + base64.b64encode(raw).decode() if scheme is Scheme.STANDARD else raw.hex()
