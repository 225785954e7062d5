import asyncio
from typing import Any

import pytest
from typing_extensions import override

from rucher.protocol.errors import BadInput, Retryable
from rucher.protocol.events import CONTROL_PLANE, Draft, Trust
from rucher.protocol.ids import is_id
from rucher.protocol.ports import Appended
from rucher.surfaces import ingress
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


class Known:
    """The port Roles over a table."""

    def __init__(self) -> None:
        self.roles: dict[str, str] = {}

    async def role(self, principal: str) -> str:
        return self.roles.get(principal, "")


class Counted(MemoryJournal):
    """Knows how many drafts each unit had."""

    def __init__(self) -> None:
        super().__init__()
        self.units: list[int] = []

    @override
    async def append(self, *drafts: Draft) -> tuple[Appended, ...]:
        self.units.append(len(drafts))
        return await super().append(*drafts)


class Door:
    def __init__(self) -> None:
        self.journal = Counted()
        self.clock = ManualClock()
        self.agents = {"scribe", "librarian"}
        self.known = Known()
        self.ingress = Ingress(self.journal, self.clock, Counting(), "home", lambda: self.agents, self.known)

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
    assert door.journal.events[0] == said.event
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
        ({"principal": "user:slack:ana"}, "no user of cli"),
        ({"principal": "user:cli"}, "no user of cli"),
        ({"name": "n" * 201}, "name is longer than 200 bytes"),
        ({"name": "\ud800"}, "not valid Unicode"),
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


def heard(door: Door, kind: str) -> list[dict[str, Any]]:
    return [dict(event.body) for event in door.journal.of_type(kind)]


ANA = "user:cli:ana"
DAY_S = 86_400


@pytest.mark.parametrize(
    ("role", "vouched", "stamped"),
    [
        ("owner", Trust.OWNER, Trust.OWNER),
        ("owner", Trust.MEMBER, Trust.MEMBER),
        ("admin", Trust.OWNER, Trust.MEMBER),
        ("member", Trust.OWNER, Trust.MEMBER),
        ("member", Trust.PUBLIC, Trust.PUBLIC),
        ("", Trust.OWNER, Trust.PUBLIC),
    ],
)
def test_a_user_is_trusted_as_far_as_his_role_goes_and_no_further_than_his_surface_vouches(
    role: str, vouched: Trust, stamped: Trust
) -> None:
    door = Door()
    door.known.roles[ANA] = role
    assert door.say(principal=ANA, trust=vouched).event.trust is stamped


def test_a_role_counts_from_the_next_message_on() -> None:
    door = Door()
    assert door.say(principal=ANA).event.trust is Trust.PUBLIC
    door.known.roles[ANA] = "member"
    assert door.say(principal=ANA).event.trust is Trust.MEMBER
    door.known.roles.clear()
    assert door.say(principal=ANA).event.trust is Trust.PUBLIC


def test_whoever_is_no_user_of_a_surface_keeps_the_trust_that_came_with_him() -> None:
    assert Door().say(principal="owner:ana", trust=Trust.OWNER).event.trust is Trust.OWNER


def test_users_and_rooms_are_discovered_by_their_first_message_in_its_own_commit() -> None:
    door = Door()
    door.say(principal=ANA, group="kitchen", name="Ana M.")
    assert [event.type for event in door.journal.events] == ["message", "group.seen", "user.seen"]
    assert heard(door, "user.seen") == [{"principal": ANA, "name": "Ana M.", "room": "cli:kitchen"}]
    assert heard(door, "group.seen") == [{"room": "cli:kitchen"}]
    door.say(principal=ANA, group="kitchen")
    door.say(group="kitchen")
    assert len(heard(door, "user.seen") + heard(door, "group.seen")) == 2
    door.say(principal=ANA, group="garden")
    assert [seen["room"] for seen in heard(door, "group.seen")] == ["cli:kitchen", "cli:garden"]
    assert len(heard(door, "user.seen")) == 1


def test_a_restart_discovers_nobody_a_second_time_on_the_same_day_and_everybody_again_on_the_next() -> None:
    door = Door()
    door.say(principal=ANA)
    door.ingress = Ingress(door.journal, door.clock, Counting(), "home", lambda: door.agents, door.known)
    door.say(principal=ANA, key="after a restart")
    assert len(heard(door, "user.seen")) == 1
    door.clock.advance(DAY_S)
    door.say(principal=ANA, key="a day later")
    assert len(heard(door, "user.seen")) == len(heard(door, "group.seen")) == 2


def test_nobody_is_forgotten_when_the_journal_was_full_at_the_first_message() -> None:
    door = Door()
    door.journal.full = True
    with pytest.raises(Retryable):
        door.say(principal=ANA)
    door.journal.full = False
    door.say(principal=ANA)
    assert len(heard(door, "user.seen")) == 1


def test_what_was_noted_today_costs_later_messages_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress, "REMEMBERED", 4)
    door = Door()
    door.say(principal=ANA)
    door.say(principal=ANA)
    assert door.journal.units == [3, 1]
    for number in range(4):
        door.say(principal=f"user:cli:{number}")
    door.journal.units.clear()
    door.say(principal=ANA)
    door.say(principal=ANA)
    assert door.journal.units == [2, 1], "of too many, some are forgotten, said again and known again"
    assert len(heard(door, "user.seen")) == 5
