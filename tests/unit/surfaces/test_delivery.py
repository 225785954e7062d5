import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from rucher.protocol.errors import BadInput, Permanent, Retryable, Uncertain
from rucher.protocol.events import Event, Trust, message
from rucher.protocol.ports import Proof
from rucher.surfaces.delivery import Delivery
from tests.fakes.clock import ManualClock
from tests.fakes.journal import MemoryJournal


@dataclass(frozen=True)
class Hop:
    id: str = "HOP"
    to: str = "surface:cli"
    state: str = "made"


def nothing() -> None:
    pass


class Platform:
    """A deliverer that does as told: `outcomes` and `proofs` are used up one a call; an exception is raised."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.probed = 0
        self.on_send = nothing
        self.outcomes: list[dict[str, Any] | BaseException] = []
        self.proofs: list[Proof | BaseException] = []

    async def deliver(self, event: Event, key: str) -> dict[str, Any]:
        assert event.body["text"] == "hi"
        self.sent.append(key)
        self.on_send()
        outcome = self.outcomes.pop(0) if self.outcomes else {"message_id": 7}
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def probe(self, event: Event, key: str) -> Proof:
        assert (event.body["text"], key) == ("hi", "HOP")
        self.probed += 1
        proof = self.proofs.pop(0)
        if isinstance(proof, BaseException):
            raise proof
        return proof


class World:
    """One message to deliver, a platform, and a delivery that can be started anew on the same journal."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.clock = ManualClock()
        self.platform = Platform()
        self.restart()
        said = message(
            tenant="home", source="agent", key="k", principal="agent:a", trust=Trust.AGENT, text="hi", group="main",
            occurred_at=1, addressed_to="group:cli:main",
        )  # fmt: skip
        (appended,) = asyncio.run(self.journal.append(said))
        self.event = appended.event

    def restart(self) -> None:
        self.delivery = Delivery(self.journal, self.clock, {"cli": self.platform})

    def accept(self, state: str = "made", to: str = "surface:cli") -> None:
        asyncio.run(self.delivery.accept(Hop(state=state, to=to), self.event))

    def fill_the_disk(self) -> None:
        self.journal.full = True

    def story(self) -> list[str]:
        return [
            event.type.removeprefix("delivery.") for event in self.journal.events if event.type.startswith("delivery.")
        ]

    def last(self) -> dict[str, Any]:
        return dict(self.journal.events[-1].body)


def killed_while_sending(world: World) -> None:
    world.platform.outcomes = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        world.accept()
    assert world.story() == ["sending"]
    world.restart()


def test_an_attempt_is_recorded_before_it_is_made_and_its_receipt_after() -> None:
    world = World()
    world.accept()
    assert world.story() == ["sending", "delivered"]
    sending, delivered = world.journal.events[-2:]
    assert sending.body == {"hop": "HOP", "part": 1, "parts": 1, "surface": "cli", "attempt": 1}
    assert delivered.body == {"hop": "HOP", "part": 1, "parts": 1, "receipt": {"message_id": 7}}
    assert {sending.parent_id, delivered.parent_id} == {"HOP"}
    assert {sending.trace_id, delivered.trace_id} == {world.event.trace_id}
    assert world.platform.sent == ["HOP"]


@pytest.mark.parametrize(
    ("proof", "story", "sent"),
    [
        (Proof.DONE, ["sending", "delivered"], 1),
        (Proof.NOT_DONE, ["sending", "deferred", "sending", "delivered"], 2),
        (Proof.UNKNOWN, ["sending", "uncertain"], 1),
        (Permanent("no history here"), ["sending", "uncertain"], 1),
        (RuntimeError("bug"), ["sending", "uncertain"], 1),
    ],
)
def test_killed_between_sent_and_receipt_nothing_is_sent_again_without_proof(
    proof: Proof | BaseException, story: list[str], sent: int
) -> None:
    world = World()
    killed_while_sending(world)
    world.platform.proofs = [proof]
    world.accept("sending")
    assert world.story() == story
    assert len(world.platform.sent) == sent


def test_a_surface_that_cannot_say_just_now_is_asked_again_before_anything_is_sent() -> None:
    world = World()
    killed_while_sending(world)
    world.platform.proofs = [Retryable("offline"), Proof.DONE]
    with pytest.raises(Retryable):
        world.accept("sending")
    world.accept("sending")
    assert world.story() == ["sending", "delivered"]
    assert "the surface shows it" in world.last()["proof"]
    assert len(world.platform.sent) == 1


@pytest.mark.parametrize("failure", [Uncertain("connection reset"), ConnectionResetError("reset"), TypeError("a bug")])
@pytest.mark.parametrize("proof", [Proof.DONE, Proof.UNKNOWN])
def test_an_answer_that_never_came_is_settled_by_proof_or_is_uncertain(failure: Exception, proof: Proof) -> None:
    world = World()
    world.platform.outcomes, world.platform.proofs = [failure], [proof]
    world.accept()
    assert world.story() == ["sending", "delivered" if proof is Proof.DONE else "uncertain"]
    assert len(world.platform.sent) == 1


def test_an_answer_that_never_came_of_a_message_that_surely_did_not_leave_is_sent_again() -> None:
    world = World()
    world.platform.outcomes, world.platform.proofs = [Uncertain("reset")], [Proof.NOT_DONE]
    with pytest.raises(Retryable):
        world.accept()
    world.accept()
    assert world.story() == ["sending", "deferred", "sending", "delivered"]


@pytest.mark.parametrize("error", [Permanent("chat gone"), BadInput("too long")])
def test_a_permanent_refusal_fails_at_once_and_visibly(error: Exception) -> None:
    world = World()
    world.platform.outcomes = [error]
    world.accept()
    assert world.story() == ["sending", "failed"]
    assert world.last()["reason"] == str(error)


def test_a_surface_that_is_not_configured_fails_visibly_and_is_never_delivered() -> None:
    world = World()
    world.accept(to="surface:mail")
    assert world.story() == ["failed"]
    assert world.last()["reason"] == "the surface mail is not configured on this instance"


def test_a_surface_that_wants_it_at_once_again_and_again_is_asked_ever_more_seldom() -> None:
    world = World()
    world.platform.outcomes = [Retryable("busy", retry_after=0)] * 4
    waits = []
    for _ in range(4):
        with pytest.raises(Retryable) as busy:
            world.accept()
        waits.append(busy.value.retry_after or 0)
        world.clock.advance(waits[-1] + 0.001)
    assert waits == sorted(waits)
    assert waits[0] > 0
    assert waits[-1] > waits[0]


def test_a_rate_limit_keeps_its_retry_time_and_each_attempt_is_numbered() -> None:
    world = World()
    world.platform.outcomes = [Retryable("rate limit", retry_after=300), Retryable("rate limit")]
    with pytest.raises(Retryable) as limit:
        world.accept()
    assert limit.value.retry_after == 300
    with pytest.raises(Retryable, match="no other attempt"):
        world.accept()
    world.clock.advance(300)
    with pytest.raises(Retryable):
        world.accept()
    world.accept()
    assert world.story() == ["sending", "deferred", "sending", "deferred", "sending", "delivered"]
    assert [event.body["attempt"] for event in world.journal.of_type("delivery.sending")] == [1, 2, 3]
    assert world.platform.probed == 0


def test_killed_while_waiting_for_a_rate_limit_it_is_sent_again_without_asking_as_it_surely_did_not_leave() -> None:
    world = World()
    world.platform.outcomes = [Retryable("rate limit")]
    with pytest.raises(Retryable):
        world.accept()
    world.restart()
    world.accept("sending")
    assert world.story() == ["sending", "deferred", "sending", "delivered"]
    assert world.platform.probed == 0


def test_a_full_disk_before_sending_means_nothing_is_sent() -> None:
    world = World()
    world.journal.full = True
    with pytest.raises(Retryable):
        world.accept()
    assert not world.platform.sent


def test_a_full_disk_after_sending_means_the_receipt_is_kept_and_nothing_is_sent_again() -> None:
    world = World()

    world.platform.on_send = world.fill_the_disk
    for _ in range(3):
        with pytest.raises(Retryable):
            world.accept()
    world.journal.full = False
    world.accept()
    assert world.story() == ["sending", "delivered"]
    assert world.last()["receipt"] == {"message_id": 7}
    assert (len(world.platform.sent), world.platform.probed) == (1, 0)


def test_a_hop_wrongly_taken_for_fresh_is_not_sent_again_blindly() -> None:
    world = World()
    killed_while_sending(world)
    world.platform.proofs = [Proof.UNKNOWN]
    with pytest.raises(Retryable, match="recorded before"):
        world.accept("made")
    world.accept("made")
    assert world.story() == ["sending", "uncertain"]
    assert len(world.platform.sent) == 1


@pytest.mark.parametrize("receipt", [{"raw": b"x"}, {"nan": float("nan")}, {"big": "x" * 5000}])
def test_a_receipt_that_cannot_be_recorded_does_not_undo_the_delivery(receipt: dict[str, Any]) -> None:
    world = World()
    world.platform.outcomes = [receipt]
    world.accept()
    assert world.story() == ["sending", "delivered"]
    assert list(world.last()["receipt"]) == ["left_out"]


def test_nothing_is_remembered_of_hops_that_have_ended() -> None:
    world = World()
    world.accept()
    assert not world.delivery._works  # noqa: SLF001 - the law is about memory
