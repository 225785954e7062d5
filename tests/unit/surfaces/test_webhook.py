import asyncio
import base64
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import trustme

from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import Permanent, Retryable
from rucher.protocol.events import Event, Trust, committed, message
from rucher.protocol.ports import Proof
from rucher.surfaces.channels.webhook import WebhookChannel, WebhookPlace
from rucher.surfaces.delivery import Delivery
from rucher.surfaces.posting import LONGEST_WAIT_S, MOST_SHOWN, Target
from tests.fakes.clock import ManualClock, until
from tests.fakes.journal import MemoryJournal
from tests.fakes.receiver import Receiver, Says, receiving
from tests.unit.surfaces.test_delivery import Hop

SECRET = b"0123456789abcdef0123456789abcdef"


def whsec(secret: bytes) -> str:
    return "whsec_" + base64.b64encode(secret).decode()


def event(text: str = "hi", kind: str = "answer") -> Event:
    said = message(
        tenant="home", source="agent", key=text, principal="agent:a", trust=Trust.AGENT, text=text, group="main",
        occurred_at=1, addressed_to="group:crm:main",
    )  # fmt: skip
    return replace(committed(said, 1, 2), type=kind)


class World:
    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.secrets: list[bytes] = [SECRET]

    def channel(self, timeout_s: float = 10.0, ca: str = "", **place: Any) -> WebhookChannel:
        target = Target(self.receiver.url, timeout_s, {"x-team": "bees"}, ca)
        return WebhookChannel(WebhookPlace("crm", target, **place), lambda: self.secrets, SystemClock())

    def send(self, said: Event | None = None, key: str = "K1", **settings: Any) -> dict[str, Any]:
        return asyncio.run(self.channel(**settings).deliver(said or event(), key))


@pytest.fixture
def world() -> Iterator[World]:
    with receiving(Receiver(whsec(SECRET))) as receiver:
        yield World(receiver)


def test_what_is_sent_is_verified_by_the_vendors_library_and_says_who_said_what(world: World) -> None:
    assert world.send(event("é\n🐝")) == {"status": 200, "answer": "thanks"}
    assert not world.receiver.refused
    sent = world.receiver.taken["K1"]
    assert (sent["type"], sent["timestamp"]) == ("answer", "1970-01-01T00:00:00.000001Z")
    data = sent["data"]
    assert (data["from"], data["trust"], data["text"], data["group"]) == ("agent:a", "agent", "é\n🐝", "main")
    assert world.receiver.attempts[0]["x-team"] == "bees"


def test_another_s_secret_is_refused_and_that_is_said(world: World) -> None:
    world.secrets = [b"x" * 32]
    with pytest.raises(Permanent, match=r"answered 400: signature: No matching"):
        world.send()


def test_while_a_secret_is_rotated_both_the_old_and_the_new_one_are_good(world: World) -> None:
    world.secrets = [b"n" * 32, SECRET]
    world.send()
    world.receiver.secret = whsec(b"n" * 32)
    world.send(key="K2")
    assert list(world.receiver.taken) == ["K1", "K2"]


def test_without_a_secret_nothing_is_sent_and_it_waits(world: World) -> None:
    world.secrets = []
    with pytest.raises(Retryable, match="rucher destinations secret crm"):
        world.send()
    assert not world.receiver.attempts


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 413, 415, 422, 301, 302, 307, 308])
def test_a_refusal_for_good_is_told_at_once_and_no_redirect_is_followed(world: World, status: int) -> None:
    world.receiver.says = [Says(status, {"location": f"{world.receiver.url}/elsewhere"}, b"no\nway")]
    with pytest.raises(Permanent, match=f"answered {status}: no way"):
        world.send()
    assert len(world.receiver.attempts) == 1


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 501, 502, 503, 504, 599])
def test_what_may_pass_is_tried_again(world: World, status: int) -> None:
    world.receiver.says = [Says(status)]
    with pytest.raises(Retryable, match=f"answered {status}") as refusal:
        world.send()
    assert refusal.value.retry_after is None


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [("7200", 7200.0), ("0", 0.0), ("9999999", LONGEST_WAIT_S), ("-5", 0.0), ("soon", None), ("nan", None)],
)
def test_a_receiver_that_asks_for_patience_gets_it_up_to_a_day(world: World, asked: str, seconds: float | None) -> None:
    world.receiver.says = [Says(429, {"retry-after": asked})]
    with pytest.raises(Retryable) as refusal:
        world.send()
    assert refusal.value.retry_after == seconds


def test_patience_until_a_date_is_measured_by_the_receiver_s_own_clock(world: World) -> None:
    later = formatdate(time.time() + 3600, usegmt=True)  # noqa: TID251 - what a server writes
    world.receiver.says = [Says(503, {"retry-after": later})]
    with pytest.raises(Retryable) as refusal:
        world.send()
    assert refusal.value.retry_after == pytest.approx(3600, abs=5)


def test_an_answer_lost_after_sending_goes_again_and_the_receiver_counts_it_once(world: World) -> None:
    world.receiver.says = [Says(lose=True)]
    with pytest.raises(Retryable, match="the connection broke"):
        world.send()
    assert len(world.receiver.taken) == 1
    world.send()
    assert len(world.receiver.attempts) == 2
    assert len(world.receiver.taken) == 1
    assert asyncio.run(world.channel().probe(event(), "K1")) is Proof.REPEATABLE


def test_a_receiver_that_hangs_is_left_in_time(world: World) -> None:
    world.receiver.says = [Says(hang=True)]
    with pytest.raises(Retryable, match=r"no answer within 0\.2 s"):
        world.send(timeout_s=0.2)


def test_a_receiver_that_is_away_is_tried_again(world: World) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        world.receiver.url = f"http://127.0.0.1:{nobody.getsockname()[1]}/"
        with pytest.raises(Retryable, match="cannot be reached"):
            world.send()


def test_of_an_answer_only_the_beginning_is_read(world: World) -> None:
    world.receiver.says = [Says(body=b"x" * 50_000_000)]
    assert len(world.send()["answer"]) == MOST_SHOWN


def test_what_the_owner_did_not_ask_for_there_is_refused_before_it_leaves(world: World) -> None:
    with pytest.raises(Permanent, match="takes answer, not message"):
        world.send(event(kind="message"), events=("answer",))
    with pytest.raises(Permanent, match="takes 3 characters of text, this has 4"):
        world.send(event("four"), max_chars=3)
    assert not world.receiver.attempts
    world.send(event(kind="destination.test"), events=("answer",))


@pytest.mark.parametrize("known", [True, False])
def test_a_certificate_is_verified(tmp_path: Path, *, known: bool) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with receiving(Receiver(whsec(SECRET)), context) as receiver:
        world = World(receiver)
        if known:
            assert world.send(ca=str(tmp_path / "ca.pem"))["status"] == 200
        else:
            with pytest.raises(Retryable, match=r"(?i)certificate"):
                world.send()
            assert not receiver.attempts


def test_certificates_that_cannot_be_read_are_named(world: World) -> None:
    world.receiver.url = "https://127.0.0.1:1/"
    with pytest.raises(Retryable, match=r"/nowhere cannot be read .* correct ca in destinations\.toml"):
        world.send(ca="/nowhere")


def test_killed_between_sent_and_receipt_a_webhook_is_sent_again_under_the_same_id_and_counts_once(
    world: World,
) -> None:
    journal = MemoryJournal()
    hop = Hop(to="webhook:crm")
    (said,) = asyncio.run(journal.append(event()))
    world.receiver.says = [Says(hang=True)]

    async def killed() -> None:
        sending = asyncio.ensure_future(
            Delivery(journal, ManualClock(), {"crm": world.channel()}).accept(hop, said.event)
        )
        await until(lambda: bool(world.receiver.attempts), "the first attempt")
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)

    asyncio.run(killed())
    again = Delivery(journal, ManualClock(), {"crm": world.channel()})
    asyncio.run(again.accept(replace(hop, state="sending"), said.event))
    kinds = [each.type for each in journal.events if each.type.startswith("delivery.")]
    assert kinds == ["delivery.sending", "delivery.deferred", "delivery.sending", "delivery.delivered"]
    assert "goes again under the same key" in journal.of_type("delivery.deferred")[0].body["reason"]
    assert {attempt["webhook-id"] for attempt in world.receiver.attempts} == {"HOP"}
