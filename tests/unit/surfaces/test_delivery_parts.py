"""Laws of the ledger: each part is proven, failed or uncertain by itself, and a restart goes on where it was."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from rucher.protocol.errors import Permanent, Retryable, TooRich, Uncertain
from rucher.protocol.events import Event, Trust, control_event, message
from rucher.protocol.ports import Part, Proof
from rucher.surfaces.delivery import Delivery, Patience
from tests.fakes.clock import ManualClock
from tests.fakes.journal import MemoryJournal

TEXT = "one two three"


@dataclass(frozen=True)
class Hop:
    id: str = "HOP"
    to: str = "surface:chat"
    state: str = "made"


class Chat:
    """A surface that shows one word in one part, and does as told: `outcomes` and `proofs` are used up one a call."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str, str, list[str]]] = []
        self.outcomes: list[dict[str, Any] | BaseException] = []
        self.proofs: list[Proof] = []
        self.words = 1
        self.silent = False

    def parts(self, event: Event) -> Sequence[Part]:
        words = event.body["text"].split()
        texts = [" ".join(words[at : at + self.words]) for at in range(0, len(words), self.words)]
        return [Part(number, text, "markdown", ("a.png", "b.png")) for number, text in enumerate(texts, 1)]

    async def deliver(self, event: Event, key: str) -> dict[str, Any]:
        if self.silent:
            await asyncio.Event().wait()
        body = event.body
        outcome = self.outcomes.pop(0) if self.outcomes else {"id": key}
        if not isinstance(outcome, BaseException) or isinstance(outcome, KeyboardInterrupt | Uncertain):
            self.shown.append((key, body["text"], body["format"], body["images"]))
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def probe(self, event: Event, key: str) -> Proof:
        assert event.body["text"] in TEXT
        assert key.startswith("HOP")
        return self.proofs.pop(0)

    @property
    def texts(self) -> list[str]:
        return [text for _, text, _, _ in self.shown]


class World:
    """One message to deliver to a chat, and a delivery that can be started anew on the same journal."""

    def __init__(self, text: str = TEXT, patience: Patience | None = None) -> None:
        self.journal = MemoryJournal()
        self.clock = ManualClock()
        self.chat = Chat()
        self.patience = patience
        self.restart()
        said = message(
            tenant="home", source="agent", key="k", principal="agent:a", trust=Trust.AGENT, text=text, group="main",
            occurred_at=1, addressed_to="group:chat:main",
        )  # fmt: skip
        self.event = self.journal.take(said).event

    def restart(self) -> None:
        self.delivery = Delivery(self.journal, self.clock, {"chat": self.chat}, self.patience)

    def accept(self, state: str = "made") -> None:
        asyncio.run(self.delivery.accept(Hop(state=state), self.event))

    def persevere(self, seconds: float) -> float:
        """Accept as the dispatcher does until it ends or so much time has passed; returns the seconds that it took."""
        begun = self.clock.monotonic()
        while self.clock.monotonic() - begun < seconds:
            try:
                self.accept("sending")
            except Retryable as error:
                self.clock.advance(error.retry_after or 30.0)
            else:
                break
        return self.clock.monotonic() - begun

    def word(self, kind: str, **body: Any) -> None:
        """The owner's word."""
        draft = control_event(
            tenant="home", part="owner", kind=kind, key=str(len(self.journal.events)), trace_id=self.event.trace_id,
            occurred_at=self.clock.now(), body={"hop": "HOP", "by": "owner:ana", **body},
        )  # fmt: skip
        self.journal.take(draft)

    def story(self) -> list[tuple[str, int]]:
        return [
            (event.type.removeprefix("delivery."), event.body["part"])
            for event in self.journal.events
            if event.type.startswith("delivery.")
        ]


def test_parts_go_in_order_under_keys_of_their_own_and_each_is_proven() -> None:
    world = World()
    world.accept()
    assert [(key, text) for key, text, _, _ in world.chat.shown] == [
        ("HOP:1", "one"),
        ("HOP:2", "two"),
        ("HOP:3", "three"),
    ]
    steps = [(what, part) for part in (1, 2, 3) for what in ("sending", "delivered")]
    assert world.story() == steps
    assert {event.body["parts"] for event in world.journal.of_type("delivery.delivered")} == {3}


def test_a_message_of_one_part_has_the_hop_s_own_key() -> None:
    world = World("one")
    world.accept()
    assert [key for key, *_ in world.chat.shown] == ["HOP"]


@pytest.mark.parametrize("killed_at", [0, 1, 2])
@pytest.mark.parametrize("proof", [Proof.DONE, Proof.NOT_DONE])
def test_after_a_kill_it_goes_on_at_the_first_part_that_is_not_delivered(killed_at: int, proof: Proof) -> None:
    world = World()
    world.chat.outcomes = [*({} for _ in range(killed_at)), KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        world.accept()
    world.restart()
    world.chat.proofs = [proof]
    world.accept("sending")
    expected = TEXT.split()
    if proof is Proof.NOT_DONE:
        expected.insert(killed_at, expected[killed_at])
    assert world.chat.texts == expected
    assert len(world.journal.of_type("delivery.delivered")) == 3


def test_an_uncertain_part_holds_up_the_rest_until_the_owner_says_what_is_true() -> None:
    for verdict, sent in (("delivered", ["one", "two", "three"]), ("not-delivered", ["one", "two", "two", "three"])):
        world = World()
        world.chat.outcomes, world.chat.proofs = [{}, Uncertain("reset")], [Proof.UNKNOWN]
        world.accept()
        assert world.story()[-1] == ("uncertain", 2)
        assert world.chat.texts == ["one", "two"]
        world.accept("again")
        assert world.chat.texts == ["one", "two"]
        world.word("delivery.resolved", part=2, parts=3, verdict=verdict)
        world.restart()
        world.accept("again")
        assert world.chat.texts == sent


def test_a_part_that_failed_is_sent_again_only_by_the_owner_s_word_and_may_fail_again_visibly() -> None:
    world = World()
    world.chat.outcomes = [{}, Permanent("too long"), Permanent("still too long"), {}, {}]
    world.accept()
    assert world.story()[-1] == ("failed", 2)
    for _ in range(2):
        world.restart()
        world.accept("again")
    assert world.chat.texts == ["one"]
    world.word("hop.retried", number=1)
    world.restart()
    world.accept("again")
    assert [event.body["reason"] for event in world.journal.of_type("delivery.failed")] == [
        "too long",
        "still too long",
    ]
    world.word("hop.retried", number=2)
    world.restart()
    world.accept("again")
    assert world.chat.texts == ["one", "two", "three"]


def test_a_refused_format_falls_back_to_plain_text_once_also_after_a_restart() -> None:
    world = World("one")
    world.chat.outcomes = [TooRich("can't parse entities", "format"), KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        world.accept()
    assert [form for _, _, form, _ in world.chat.shown] == ["plain"]
    world.restart()
    world.chat.proofs = [Proof.NOT_DONE]
    world.accept("sending")
    assert [form for _, _, form, _ in world.chat.shown] == ["plain", "plain"]
    assert world.journal.events[-1].body["left_out"] == ["format"]


def test_a_format_that_is_refused_again_as_plain_text_fails() -> None:
    world = World("one")
    world.chat.outcomes = [TooRich("can't parse", "format"), TooRich("can't parse", "format")]
    world.accept()
    assert world.story() == [("sending", 1), ("deferred", 1), ("sending", 1), ("failed", 1)]


def test_one_bad_image_loses_neither_the_text_nor_the_others() -> None:
    world = World("one")
    world.chat.outcomes = [TooRich("a.png: 404", "a.png")]
    world.accept()
    assert world.chat.shown == [("HOP", "one", "markdown", ["b.png"])]


def test_a_surface_that_is_away_for_seconds_still_gets_it_and_one_away_for_long_fails_after_a_stated_time() -> None:
    world = World("one")
    world.chat.outcomes = [Retryable("connection refused") for _ in range(8)]
    assert world.persevere(600) < 130
    assert world.chat.texts == ["one"]
    gone = World("one")
    gone.chat.outcomes = [Retryable("connection refused") for _ in range(1000)]
    assert 86_400 <= gone.persevere(200_000) <= 86_400 + 900
    assert gone.story()[-1] == ("failed", 1)
    assert gone.journal.events[-1].body["reason"] == "given up after 24 hours: connection refused"
    assert len(gone.journal.of_type("delivery.sending")) < 120


def test_a_day_that_the_daemon_itself_was_down_is_no_reason_to_give_up_at_its_first_attempt() -> None:
    world = World("one")
    world.chat.outcomes = [Retryable("no network")]
    with pytest.raises(Retryable):
        world.accept()
    world.clock.advance(3 * 86_400)
    world.restart()
    world.chat.outcomes = [Retryable("no network yet")]
    world.persevere(600)
    assert world.chat.texts == ["one"]


def test_a_rate_limit_of_hours_is_kept_also_over_a_restart() -> None:
    world = World("one")
    world.chat.outcomes = [Retryable("flood", retry_after=7200)]
    with pytest.raises(Retryable):
        world.accept()
    world.clock.advance(600)
    world.restart()
    with pytest.raises(Retryable) as limit:
        world.accept("sending")
    assert limit.value.retry_after == 6600
    world.clock.advance(6600)
    world.accept("sending")
    assert world.chat.texts == ["one"]


def test_an_attempt_that_is_never_answered_is_settled_by_proof_and_does_not_hang() -> None:
    world = World("one", Patience(attempt_s=0.01))
    world.chat.silent = True
    world.chat.proofs = [Proof.UNKNOWN]
    world.accept()
    assert world.story() == [("sending", 1), ("uncertain", 1)]
    assert "did not answer in time" in world.journal.events[-1].body["reason"]


def test_a_surface_that_cuts_otherwise_after_a_restart_sends_no_word_twice_and_says_so() -> None:
    world = World()
    world.chat.outcomes = [{}, Permanent("no")]
    world.accept()
    world.word("hop.retried", number=1)
    world.chat.words = 2
    world.restart()
    world.accept("again")
    assert world.chat.texts == ["one"]
    assert "now cuts messages otherwise" in world.journal.events[-1].body["reason"]


def test_a_message_of_which_nothing_is_to_be_shown_fails_visibly() -> None:
    world = World(" ")
    world.accept()
    assert world.story() == [("failed", 0)]
