"""Whatever was signed is taken, and whatever differs from it in any byte is not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rucher.protocol.errors import Denied
from rucher.surfaces.verification import WINDOW_S, Delivery, Scheme, verify
from tests.fakes.senders import SECRETS, Sent, by

NOW_S = 1_800_000_000
SIGNED = [scheme for scheme in Scheme if scheme is not Scheme.BEARER]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def taken(scheme: Scheme, sent: Sent, now_s: int = NOW_S) -> bool:
    try:
        verify(scheme, (SECRETS[scheme],), Delivery(dict(sent.headers), sent.body, now_s * 1_000_000))
    except Denied:
        return False
    return True


@pytest.mark.parametrize("scheme", list(Scheme))
@given(payload=JSON, skew=st.integers(-2 * WINDOW_S, 2 * WINDOW_S))
def test_what_was_signed_counts_within_its_window_and_only_there(scheme: Scheme, payload: Any, skew: int) -> None:
    timed = scheme in (Scheme.STANDARD, Scheme.STRIPE, Scheme.SLACK, Scheme.ED25519)
    assert taken(scheme, by(scheme, payload, NOW_S), NOW_S + skew) is (not timed or abs(skew) <= WINDOW_S)


@pytest.mark.parametrize("scheme", SIGNED)
@given(payload=JSON, where=st.integers(0), change=st.integers(1, 255))
def test_a_body_that_differs_in_any_byte_is_refused(scheme: Scheme, payload: Any, where: int, change: int) -> None:
    sent = by(scheme, payload, NOW_S)
    body = bytearray(sent.body)
    body[where % len(body)] ^= change
    assert not taken(scheme, sent.saying(bytes(body)))


@pytest.mark.parametrize("scheme", list(Scheme))
@given(headers=st.dictionaries(st.sampled_from(sorted({
    "webhook-id", "webhook-timestamp", "webhook-signature", "stripe-signature", "x-slack-signature",
    "x-slack-request-timestamp", "x-hub-signature-256", "authorization", "idempotency-key", "svix-id",
})), st.text(st.characters(max_codepoint=255))), body=st.binary(max_size=50))  # fmt: skip
def test_whatever_a_stranger_writes_into_the_headers_is_a_refusal_and_no_fault(
    scheme: Scheme, headers: dict[str, str], body: bytes
) -> None:
    assert not taken(scheme, Sent(body, headers))
