"""Laws of the door, over a real socket and a real store: what is signed is committed once, all else is one line and nothing."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import Retryable
from rucher.protocol.events import Trust
from rucher.protocol.ports import Appended
from rucher.surfaces.ingress import IncomingEvent
from rucher.surfaces.verification import Scheme
from tests.fakes import senders
from tests.fakes.doorway import ALL, Doorway, detail, doorway
from tests.fakes.senders import OTHERS, Sent, by

PAYLOAD = {"type": "invoice.paid", "id": "evt_1", "data": {"object": {"amount": 5}}}
EVERY = pytest.mark.parametrize("scheme", list(Scheme))


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Doorway]:
    with doorway(tmp_path) as opened:
        yield opened


def now() -> int:
    return SystemClock().now() // 1_000_000


def sent(scheme: Scheme, payload: Any = PAYLOAD) -> Sent:
    return by(scheme, payload, now())


def test_a_signed_delivery_is_committed_before_its_sender_hears_of_it(here: Doorway) -> None:
    for number, scheme in enumerate(Scheme):
        response = here.post(scheme.value, sent(scheme))
        assert response.status_code == 202, response.text
        event = here.appended()[number]
        told = response.json()
        assert (told["event_id"], told["trace_id"], told["duplicate"]) == (event.id, event.trace_id, False)
        assert (event.source, event.principal, event.trust) == (scheme.value, f"partner:{scheme.value}", Trust.PARTNER)
        assert event.body["payload"] == PAYLOAD
        assert (event.body["group"], event.body["thread"]) == ("main", "")
        assert event.type == ("push" if scheme is Scheme.GITHUB else "invoice.paid")
        assert here.counts(scheme.value)["accepted"] == 1


@EVERY
def test_the_same_delivery_again_is_the_same_event_and_says_so(here: Doorway, scheme: Scheme) -> None:
    delivery = sent(scheme)
    first = here.post(scheme.value, delivery).json()
    for _ in range(3):
        again = here.post(scheme.value, delivery)
        assert (again.status_code, again.json()) == (200, {**first, "duplicate": True})
    assert len(here.appended()) == 1
    assert here.counts(scheme.value)["duplicate"] == 3


@EVERY
def test_a_later_attempt_at_the_same_delivery_with_a_new_time_is_the_same_event(here: Doorway, scheme: Scheme) -> None:
    first = here.post(scheme.value, by(scheme, PAYLOAD, now())).json()
    again = here.post(scheme.value, by(scheme, PAYLOAD, now() + 5)).json()
    assert (again["event_id"], again["duplicate"]) == (first["event_id"], True)


def test_a_delivery_that_comes_many_times_at_once_is_one_event(here: Doorway) -> None:
    delivery = sent(Scheme.STANDARD)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: here.post("standard", delivery), range(24)))
    assert sorted(answer.status_code for answer in answers) == [200] * 23 + [202]
    assert len({answer.json()["event_id"] for answer in answers}) == 1
    assert len(here.appended()) == 1


def test_an_answer_that_was_lost_is_asked_for_again_and_nothing_is_handled_twice(here: Doorway) -> None:
    delivery = sent(Scheme.GITHUB)
    head = "".join(f"{name}: {value}\r\n" for name, value in delivery.headers.items())
    request = f"POST /ingress/github HTTP/1.1\r\nhost: x\r\ncontent-length: {len(delivery.body)}\r\n{head}\r\n".encode()
    here.raw(request, delivery.body, read=False)
    response = here.post("github", delivery)
    assert response.status_code in (200, 202)
    assert len(here.appended()) == 1


@EVERY
def test_a_wrong_signature_is_401_and_nothing_is_appended_but_counted(here: Doorway, scheme: Scheme) -> None:
    good = sent(scheme)
    named = {"authorization": "Bearer wrong0wrong0wrong0wrong"} if scheme is Scheme.BEARER else {}
    wrong = good.saying(good.body.replace(b"5", b"6")).but(**named)
    assert "nothing was taken" in here.refused(scheme.value, wrong, 401)
    assert here.counts(scheme.value) == {"accepted": 0, "duplicate": 0, "refused": {"signature": 1}}


@pytest.mark.parametrize("scheme", [Scheme.STANDARD, Scheme.STRIPE, Scheme.SLACK, Scheme.ED25519])
@pytest.mark.parametrize("skew", [-400, 400])
def test_a_clock_that_is_far_off_is_said_with_what_to_do(here: Doorway, scheme: Scheme, skew: int) -> None:
    said = here.refused(scheme.value, by(scheme, PAYLOAD, now() + skew), 401)
    assert "set both clocks" in said


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": "\\ud800"}', "not JSON"),
        (b'{"a": 1} trailing', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
    ],
)
def test_a_body_that_cannot_be_read_is_400_and_names_the_place(here: Doorway, body: bytes, says: str) -> None:
    authorized = senders.bearer({}).saying(body)
    assert says in here.refused("bearer", authorized, 400)


def test_a_number_that_no_machine_holds_is_422(here: Doorway) -> None:
    assert "cannot be stored" in here.refused("bearer", senders.bearer({}).saying(b'{"a": 1e999}'), 422)


def test_what_json_can_hold_is_taken(here: Doorway) -> None:
    payload: Any = {
        "a": "\x00 é \U0001f41d",
        "n": 12345678901234567890123,
        "f": 0.1,
        "deep": [[[[[[]]]]]],
        "none": None,
    }
    others: list[Any] = [[], "text", 5, None, {}]
    for one in (payload, *others):
        assert here.post("bearer", senders.bearer(one)).status_code == 202
    assert here.appended()[0].body["payload"]["n"] == 12345678901234567890123


@pytest.mark.parametrize(
    "kind",
    [None, "text/html", "application/xml", "application/json; charset=latin-1", "application/x-www-form-urlencoded"],
)
def test_another_content_type_is_415(here: Doorway, kind: str | None) -> None:
    assert "send application/json" in here.refused("bearer", senders.bearer(PAYLOAD).but(content_type=kind), 415)


def test_an_unknown_source_is_404_and_another_method_405(here: Doorway) -> None:
    for name in ("nobody", "", "bearer/", "../bearer", "Bearer", "%62earers"):
        response = httpx2.post(f"{here.url}/ingress/{name}", content=b"{}", trust_env=False)
        assert response.status_code == 404 or (name == "../bearer" and response.text == "inside")
    response = httpx2.get(f"{here.url}/ingress/bearer", trust_env=False)
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert "by POST" in detail(response)
    assert here.counts("unknown")["refused"] == {"no_source": 5}
    assert httpx2.get(f"{here.url}/api/v1/health", trust_env=False).text == "inside"


def test_fifty_megabytes_are_refused_by_their_length_and_not_read(here: Doorway) -> None:
    head = b"POST /ingress/bearer HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 52428800\r\n\r\n"
    answer = here.raw(head)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()
    assert here.refused("bearer", senders.bearer("x" * 50_000_000), 413) == (
        "a delivery of this source may have up to 524,288 bytes; send less"
    )


def test_a_body_without_a_length_is_refused_at_the_first_byte_too_many(here: Doorway) -> None:
    head = b"POST /ingress/bearer HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    part = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    answer = here.raw(head, *[part] * 8, b"1\r\nx\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert here.counts("bearer")["refused"] == {"too_large": 1}
    assert here.entrance.tallies is not None


def test_a_chunked_body_within_its_size_is_taken(here: Doorway) -> None:
    good = senders.bearer(PAYLOAD)

    def pieces() -> Iterator[bytes]:
        for byte in good.body:
            yield bytes([byte])

    response = httpx2.post(
        f"{here.url}/ingress/bearer", content=pieces(), headers=dict(good.headers), timeout=30, trust_env=False
    )
    assert response.status_code == 202


def test_a_source_without_a_usable_secret_takes_nothing_and_does_not_say_where_it_would_be(here: Doorway) -> None:
    path = here.instance.secrets / "sources" / "github"
    secret = path.read_bytes()
    for spoil in (
        path.unlink,
        lambda: path.write_bytes(b""),
        lambda: path.write_bytes(b"short"),
        lambda: path.chmod(0o644),
    ):
        spoil()
        said = here.refused("github", sent(Scheme.GITHUB), 503)
        assert str(here.instance.root) not in said
        path.touch(0o600)
        path.write_bytes(secret)
        path.chmod(0o600)
    assert here.post("github", sent(Scheme.GITHUB)).status_code == 202


def test_a_store_that_cannot_write_is_503_with_a_time_and_the_delivery_is_taken_later(here: Doorway) -> None:
    async def full(_incoming: IncomingEvent) -> Appended:
        raise Retryable("/secret/place: the disk is full", 7.2)

    delivery = sent(Scheme.STRIPE)
    here.before = full
    response = here.post("stripe", delivery)
    assert (response.status_code, response.headers["retry-after"]) == (503, "8")
    assert "/secret/place" not in detail(response)
    assert not here.appended()
    here.before = None
    assert here.post("stripe", delivery).status_code == 202


def test_a_source_that_sends_faster_than_its_rate_is_told_when_to_come_again(tmp_path: Path) -> None:
    text = ALL.replace('name = "bearer"\n', 'name = "bearer"\nrate = "3/min"\n')
    with doorway(tmp_path, text) as here:
        for _ in range(20):
            here.post("bearer", senders.bearer(PAYLOAD, secret=OTHERS[Scheme.BEARER]))
        answers = [here.post("bearer", senders.bearer(PAYLOAD, f"k{number}")) for number in range(5)]
        assert [answer.status_code for answer in answers] == [202, 202, 202, 429, 429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 20
        assert len(here.appended()) == 3
        assert here.post("github", sent(Scheme.GITHUB)).status_code == 202


def test_slack_hears_its_challenge_only_after_it_was_verified(here: Doorway) -> None:
    challenge = {"type": "url_verification", "challenge": "3eZbrw1aB10FEMAGAZd4FyFQ", "token": "old"}
    response = here.post("slack", senders.slack(challenge, now()))
    assert (response.status_code, response.json()) == (200, {"challenge": "3eZbrw1aB10FEMAGAZd4FyFQ"})
    wrong = senders.slack(challenge, now(), OTHERS[Scheme.SLACK])
    here.refused("slack", wrong, 401)
    assert not here.appended()


def test_a_command_in_slack_is_an_event_and_nothing_is_shown_there(here: Doorway) -> None:
    command = {"command": "/deploy", "text": "the site", "trigger_id": "13345224609.1", "user_name": "ana"}
    response = here.post("slack", senders.slack(command, now(), form=True))
    assert (response.status_code, response.content) == (200, b"")
    (event,) = here.appended()
    assert (event.type, event.body["text"]) == ("command", "/deploy the site")
    assert event.body["payload"]["user_name"] == "ana"


def test_a_changed_sources_file_counts_at_once_and_a_bad_one_leaves_the_old_sources(here: Doorway) -> None:
    file = here.instance.sources
    good = file.read_text()
    file.write_text(good + '[[source]]\nname = "late"\nscheme = "bearer"\ntrust = "owner"\n')
    assert here.post("late", senders.bearer(PAYLOAD)).status_code == 404
    assert here.post("bearer", senders.bearer(PAYLOAD)).status_code == 202
    file.write_text(good + '[[source]]\nname = "late"\nscheme = "bearer"\n')
    assert here.post("late", senders.bearer(PAYLOAD)).status_code == 503
    file.write_text("")
    assert here.post("bearer", senders.bearer(PAYLOAD)).status_code == 404

    def told() -> list[tuple[str, Any]]:
        kinds = ("sources.applied", "sources.refused")
        return [(event.type, event.body) for event in here.read() if event.type in kinds]

    deadline = time.monotonic() + 20
    while len(told()) < 4:
        assert time.monotonic() < deadline, told()
        time.sleep(0.02)
    assert [kind for kind, _ in told()] == [f"sources.{word}" for word in ("applied", "refused", "applied", "applied")]
    assert "sources.toml:" in told()[1][1]["reason"]
    assert told()[3][1]["sources"] == []


def test_a_refusal_never_repeats_the_payload_or_breaks_its_line(here: Doorway) -> None:
    cloud = {"specversion": "1.0", "type": "x", "data": {}, "addressedto": "agent:\n\x1b[2J"}
    said = here.refused("ed25519", senders.ed25519(cloud, now()), 422)
    assert "may not address" in said
    assert said.isprintable()
    assert json.dumps(said)
