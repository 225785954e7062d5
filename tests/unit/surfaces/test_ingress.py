import asyncio
from typing import Any

import pytest

from rucher.protocol.errors import BadInput, Retryable
from rucher.protocol.events import CONTROL_PLANE, Trust
from rucher.protocol.ids import is_id
from rucher.protocol.ports import Appended
from rucher.surfaces.ingress import MOST_TEXT_BYTES, IncomingMessage, Ingress
from tests.fakes.clock import ManualClock
from tests.fakes.journal import MemoryJournal


class Counting:
    """The port Entropy, giving other bytes each time."""

    def __init__(self) -> None:
        self._given = 0

    def bytes(self, count: int) -> bytes:
        self._given += 1
        return self._given.to_bytes(count, "big")


class Door:
    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.agents = {"scribe", "librarian"}
        self.ingress = Ingress(self.journal, ManualClock(), Counting(), "home", lambda: self.agents)

    def say(self, text: str = "hello", **changes: Any) -> Appended:
        fields: dict[str, Any] = {
            "source": "cli",
            "principal": "owner:ana",
            "trust": Trust.OWNER,
            "text": text,
            **changes,
        }
        return asyncio.run(self.ingress.accept(IncomingMessage(**fields)))


def test_a_message_is_in_the_journal_with_what_the_surface_stamped_before_its_sender_hears_of_it() -> None:
    door = Door()
    said = door.say("hello", group="kitchen", thread="t1", addressed_to="agent:scribe", key="k1")
    assert said.first
    assert door.journal.events == [said.event]
    event = said.event
    assert (event.subject, event.principal, event.trust) == ("ev.home.cli.message", "owner:ana", Trust.OWNER)
    assert event.body == {"text": "hello", "group": "kitchen", "thread": "t1"}
    assert event.addressed_to == "agent:scribe"
    assert is_id(event.trace_id)


def test_the_same_key_is_one_event_and_no_key_is_a_new_one_each_time() -> None:
    door = Door()
    first, again, other = door.say(key="k"), door.say("other text", key="k"), door.say(key="K")
    assert (again.event, again.first) == (first.event, False)
    assert other.event.id != first.event.id
    assert door.say().event.id != door.say().event.id


def test_nothing_is_said_to_have_arrived_while_the_journal_cannot_write() -> None:
    door = Door()
    door.journal.full = True
    with pytest.raises(Retryable):
        door.say()
    assert not door.journal.events


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"text": ""}, "no text"),
        ({"text": " \n\t"}, "no text"),
        ({"text": "x" * (MOST_TEXT_BYTES + 1)}, "262145 bytes"),
        ({"text": "é" * (MOST_TEXT_BYTES // 2 + 1)}, "262146 bytes"),
        ({"text": "a\ud800"}, "not valid Unicode at character 1"),
        ({"key": ""}, "the key has 0 characters"),
        ({"key": "k" * 201}, "the key has 201 characters"),
        ({"key": "\udfff"}, "not valid Unicode"),
        ({"principal": ""}, "the principal has 0 characters"),
        ({"group": ""}, "cannot be a group"),
        ({"group": "../../etc"}, "cannot be a group"),
        ({"group": "Main"}, "cannot be a group"),
        ({"group": "main\n"}, "cannot be a group"),
        ({"group": "g" * 201}, "cannot be a group"),
        ({"thread": ".hidden"}, "cannot be a thread"),
        ({"source": CONTROL_PLANE}, "cannot be the source"),
        ({"source": "a b"}, "cannot be the source"),
        ({"addressed_to": "scribe"}, "write agent:NAME"),
        ({"addressed_to": "group:cli"}, "write agent:NAME"),
        ({"addressed_to": "group:cli:a:b"}, "write agent:NAME"),
        ({"addressed_to": "agent:scribbe"}, "there is no agent 'scribbe'; did you mean scribe?"),
        ({"addressed_to": "agent:x"}, "there are librarian, scribe"),
        ({"addressed_to": "agent:scribe", "principal": "agent:scribe"}, "cannot address itself"),
        ({"addressed_to": "group:cli:main", "principal": "group:cli:main"}, "cannot address itself"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line_and_nothing_is_appended(
    changes: dict[str, Any], reason: str
) -> None:
    door = Door()
    with pytest.raises(BadInput) as refusal:
        door.say(**changes)
    assert reason in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500
    assert not door.journal.events


@pytest.mark.parametrize("source", [CONTROL_PLANE])
def test_nobody_outside_can_speak_as_the_control_plane(source: str) -> None:
    with pytest.raises(BadInput, match="cannot be the source"):
        Door().say(source=source)


def test_the_largest_message_and_an_answer_to_a_group_are_taken() -> None:
    door = Door()
    assert door.say("x" * MOST_TEXT_BYTES).first
    assert door.say(addressed_to="group:cli:main", principal="agent:scribe", trust=Trust.AGENT).first


def test_an_agent_made_a_moment_ago_can_be_addressed() -> None:
    door = Door()
    door.agents = set()
    with pytest.raises(BadInput, match="none yet"):
        door.say(addressed_to="agent:new")
    door.agents = {"new"}
    assert door.say(addressed_to="agent:new").first
