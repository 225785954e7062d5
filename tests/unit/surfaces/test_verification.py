"""Laws of verification: what its sender's own library signed is taken, and nothing else, whatever single thing was changed."""

import base64
from typing import Any

import pytest

from rucher.protocol.errors import BadInput, Denied
from rucher.protocol.events import Trust
from rucher.surfaces.verification import (
    MOST_TRUST,
    WINDOW_S,
    Delivery,
    Scheme,
    Verified,
    body_key,
    demand_usable,
    headers_of,
    public_key,
    verify,
)
from tests.fakes import senders
from tests.fakes.senders import OTHERS, SECRETS, Sent, by

NOW_S = 1_800_000_000
PAYLOAD = {"type": "invoice.paid", "id": "evt_1", "data": {"object": {"amount": 5}}}
TIMED = (Scheme.STANDARD, Scheme.STRIPE, Scheme.SLACK, Scheme.ED25519)
EVERY = pytest.mark.parametrize("scheme", list(Scheme))
SIGNED = pytest.mark.parametrize("scheme", [scheme for scheme in Scheme if scheme is not Scheme.BEARER])


def checked(scheme: Scheme, sent: Sent, *secrets: str, now_s: float = NOW_S) -> Verified:
    delivery = Delivery(dict(sent.headers), sent.body, int(now_s * 1e6))
    return verify(scheme, secrets or (SECRETS[scheme],), delivery)


def denied(scheme: Scheme, sent: Sent, *secrets: str, now_s: float = NOW_S) -> str:
    with pytest.raises(Denied) as refusal:
        checked(scheme, sent, *secrets, now_s=now_s)
    said = str(refusal.value)
    assert "\n" not in said
    assert not any(secret.removeprefix("whsec_") in said for secret in SECRETS.values())
    return said


@EVERY
def test_what_the_senders_own_library_signed_is_taken(scheme: Scheme) -> None:
    checked(scheme, by(scheme, PAYLOAD, NOW_S))


def test_the_examples_of_the_senders_documentation_are_taken() -> None:
    hello = Sent(
        b"Hello, World!",
        {"x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
    )
    checked(Scheme.GITHUB, hello, "It's a Secret to Everybody")
    standard = Sent(
        b'{"test": 2432232314}',
        {
            "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        },
    )
    checked(Scheme.STANDARD, standard, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", now_s=1614265330)


@SIGNED
@pytest.mark.parametrize("at", [0, -1])
def test_one_changed_byte_of_the_body_is_refused(scheme: Scheme, at: int) -> None:
    sent = by(scheme, PAYLOAD, NOW_S)
    body = bytearray(sent.body)
    body[at] ^= 1
    denied(scheme, sent.saying(bytes(body)))
    denied(scheme, sent.saying(sent.body + b" "))
    denied(scheme, sent.saying(b""))


@EVERY
def test_a_delivery_without_any_one_of_its_signed_headers_is_refused(scheme: Scheme) -> None:
    sent = by(scheme, PAYLOAD, NOW_S)
    free = {"content-type", "x-github-event", "x-github-delivery", "idempotency-key"}
    for name in set(sent.headers) - free:
        assert "is missing" in denied(scheme, sent.but(**{name: None}))
        denied(scheme, sent.but(**{name: ""}))
        denied(scheme, sent.but(**{name: sent.headers[name] + "0"}))
        denied(scheme, sent.but(**{name: "x"}))
        denied(scheme, sent.but(**{name: "é"}))


@EVERY
def test_another_secret_is_refused_and_an_old_one_counts_as_long_as_it_is_kept(scheme: Scheme) -> None:
    sent = by(scheme, PAYLOAD, NOW_S)
    denied(scheme, sent, OTHERS[scheme])
    checked(scheme, sent, OTHERS[scheme], SECRETS[scheme])
    checked(scheme, sent, SECRETS[scheme], OTHERS[scheme])


@EVERY
def test_without_any_secret_nothing_is_taken(scheme: Scheme) -> None:
    with pytest.raises(Denied):
        verify(scheme, (), Delivery(dict(by(scheme, PAYLOAD, NOW_S).headers), by(scheme, PAYLOAD, NOW_S).body, NOW_S))


@pytest.mark.parametrize("scheme", TIMED)
@pytest.mark.parametrize("side", [-1, 1])
def test_a_delivery_counts_for_five_minutes_by_either_clock_and_not_longer(scheme: Scheme, side: int) -> None:
    sent = by(scheme, PAYLOAD, NOW_S)
    checked(scheme, sent, now_s=NOW_S + side * WINDOW_S)
    said = denied(scheme, sent, now_s=NOW_S + side * (WINDOW_S + 1))
    assert f"{WINDOW_S + 1} s {'behind' if side > 0 else 'ahead of'} this machine's clock" in said


@pytest.mark.parametrize("scheme", TIMED)
@pytest.mark.parametrize("at", ["", "now", "-5", "1e9", "18000000000000", "1800000000.5", " 1800000000", "\u0661"])
def test_a_time_that_is_none_is_refused(scheme: Scheme, at: str) -> None:
    sent = by(scheme, PAYLOAD, NOW_S)
    if scheme is Scheme.STRIPE:
        changed = sent.but(stripe_signature=sent.headers["stripe-signature"].replace(str(NOW_S), at))
    else:
        name = "x-slack-request-timestamp" if scheme is Scheme.SLACK else "webhook-timestamp"
        changed = sent.but(**{name: at})
    denied(scheme, changed)


@pytest.mark.parametrize("scheme", TIMED)
def test_a_time_that_was_moved_is_refused_though_it_is_recent(scheme: Scheme) -> None:
    sent = by(scheme, PAYLOAD, NOW_S)
    moved = {name: value.replace(str(NOW_S), str(NOW_S + 1)) for name, value in sent.headers.items()}
    denied(scheme, Sent(sent.body, moved))


@pytest.mark.parametrize("scheme", [Scheme.STANDARD, Scheme.ED25519])
def test_an_id_that_was_changed_is_refused_and_the_signed_one_is_the_key(scheme: Scheme) -> None:
    sent = by(scheme, PAYLOAD, NOW_S)
    assert checked(scheme, sent).key == "msg_1"
    denied(scheme, sent.but(webhook_id="msg_2"))
    denied(scheme, sent.but(webhook_id="m" * 201))


@pytest.mark.parametrize("scheme", [Scheme.STANDARD, Scheme.ED25519])
def test_any_one_of_several_signatures_will_do_and_other_versions_count_for_nothing(scheme: Scheme) -> None:
    sent = by(scheme, PAYLOAD, NOW_S)
    good = sent.headers["webhook-signature"]
    value = good.partition(",")[2]
    other = "v1a" if scheme is Scheme.STANDARD else "v1"
    bad = f"{good.partition(',')[0]},{base64.b64encode(bytes(64)).decode()}"
    checked(scheme, sent.but(webhook_signature=f"{bad} {good}"))
    checked(scheme, sent.but(webhook_signature=f"{other},{value} {bad} {good}"))
    for wrong in (f"{other},{value}", value, f"v2,{value}", f"{bad} " * 40 + good, ",", "v1", "v1,", "v1a,", "v1,%%%"):
        denied(scheme, sent.but(webhook_signature=wrong))


def test_the_older_name_of_the_headers_is_taken_and_the_two_are_never_mixed() -> None:
    sent = senders.standard(PAYLOAD, NOW_S)
    old = {name.replace("webhook-", "svix-"): value for name, value in sent.headers.items()}
    checked(Scheme.STANDARD, Sent(sent.body, old))
    denied(Scheme.STANDARD, Sent(sent.body, {**old, "webhook-id": "msg_1"}))


def test_stripe_may_sign_with_several_secrets_and_with_schemes_we_do_not_know() -> None:
    sent = senders.stripe(PAYLOAD, NOW_S)
    header = sent.headers["stripe-signature"]
    checked(Scheme.STRIPE, sent.but(stripe_signature=header.replace("v1=", "v1=00,v0=11,v1=")))
    denied(Scheme.STRIPE, sent.but(stripe_signature=header.replace("v1=", "v0=")))
    denied(Scheme.STRIPE, sent.but(stripe_signature=f"{header},t={NOW_S}"))


def test_what_githubs_headers_say_unsigned_is_no_key() -> None:
    sent = senders.github(PAYLOAD)
    assert checked(Scheme.GITHUB, sent.but(x_github_delivery="d-2")).key == body_key(sent.body)
    denied(Scheme.GITHUB, sent.but(x_hub_signature_256=sent.headers["x-hub-signature-256"].removeprefix("sha256=")))


def test_a_bearer_names_its_delivery_or_each_one_is_new() -> None:
    assert checked(Scheme.BEARER, senders.bearer(PAYLOAD)).key is None
    assert checked(Scheme.BEARER, senders.bearer(PAYLOAD, '"k-7"')).key == "k-7"
    for key in ("k" * 201, "é", "a\tb"):
        with pytest.raises(BadInput, match="idempotency-key"):
            checked(Scheme.BEARER, senders.bearer(PAYLOAD).but(idempotency_key=key))
    denied(Scheme.BEARER, senders.bearer(PAYLOAD).but(authorization=f"Basic {SECRETS[Scheme.BEARER]}"))
    denied(Scheme.BEARER, senders.bearer(PAYLOAD).but(authorization="Bearer"))


def test_a_header_that_came_twice_with_two_values_says_nothing() -> None:
    pairs = [(b"A", b"1"), (b"a", b"2"), (b"b", b"3"), (b"B", b"3")]
    assert headers_of(pairs) == {"b": "3"}


@pytest.mark.parametrize(
    ("scheme", "secret"),
    [
        (Scheme.GITHUB, "short"),
        (Scheme.GITHUB, "line\nline and more of it"),
        (Scheme.GITHUB, "é" * 20),
        (Scheme.GITHUB, " padded secret of 20 "),
        (Scheme.STANDARD, "whsec_%%%%%%%%%%%%%%%%%%%%"),
        (Scheme.STANDARD, "whsec_aaaaaaaaaaaaaaaa"),
    ],
)
def test_a_secret_that_could_verify_nothing_is_refused_without_being_repeated(scheme: Scheme, secret: str) -> None:
    with pytest.raises(BadInput) as refusal:
        demand_usable(scheme, secret)
    assert secret.strip() not in str(refusal.value)


@pytest.mark.parametrize("scheme", [scheme for scheme in Scheme if scheme is not Scheme.ED25519])
def test_good_secrets_are_good(scheme: Scheme) -> None:
    demand_usable(scheme, SECRETS[scheme])


@pytest.mark.parametrize("text", ["", "whpk_", "whpk_aaaa", "00", "g" * 64, "whpk_%%"])
def test_what_is_no_public_key_is_said(text: str) -> None:
    with pytest.raises(BadInput, match="no Ed25519 public key"):
        public_key(text)
    assert public_key(SECRETS[Scheme.ED25519]) == public_key(bytes(senders.NODE.verify_key).hex())


def test_no_scheme_makes_a_platforms_word_an_owners() -> None:
    facts: dict[Scheme, Any] = dict(MOST_TRUST)
    assert set(facts) == set(Scheme)
    assert [facts[one] for one in (Scheme.GITHUB, Scheme.STRIPE, Scheme.SLACK)] == [Trust.PARTNER] * 3
    assert facts[Scheme.BEARER] == Trust.MEMBER
