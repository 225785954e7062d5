"""Laws about senders: who is blocked, who is unknown, and what their room's policy makes of that."""

import pytest

from rucher.protocol.events import Event, Trust
from rucher.router.decide import Decision, Dropped, Held
from rucher.router.registry import Registry
from rucher.router.rules import Route
from tests.unit.router.builders import decided, dropped, event, routes, rules

EVE = "user:cli:eve"
TO_DEFAULT = (Route("default", "agent:scribe"),)


def said(principal: str = EVE) -> Event:
    return event(principal=principal, trust=Trust.PUBLIC)


def test_what_a_blocked_person_says_goes_nowhere_whatever_their_role() -> None:
    registry = Registry(blocked={EVE}, roles={EVE: {"": "owner"}})
    assert dropped(said(), rules(), registry) == "user:cli:eve is blocked"


@pytest.mark.parametrize("by_room", [True, False])
def test_an_unknown_sender_is_let_in_held_or_dropped_by_the_room_s_policy(by_room: bool) -> None:  # noqa: FBT001 - a table
    def under(policy: str) -> Decision:
        given = Registry(policies={"cli:main": policy}) if by_room else Registry(default_policy=policy)
        return decided(said(), rules(), given)

    assert under("public").routes == TO_DEFAULT
    assert isinstance(under("ask").end, Held)
    strict = under("strict").end
    assert isinstance(strict, Dropped)
    assert "known people only" in strict.reason


def test_a_room_s_own_policy_goes_before_the_default_one() -> None:
    registry = Registry(policies={"cli:main": "public"}, default_policy="strict")
    assert routes(said(), rules(), registry) == TO_DEFAULT


@pytest.mark.parametrize("principal", ["owner:ana", "partner:x", "system:timer", "someone"])
def test_who_is_no_user_of_a_surface_is_never_unknown(principal: str) -> None:
    assert routes(said(principal), rules(), Registry(default_policy="strict")) == TO_DEFAULT


def test_any_role_makes_a_sender_known() -> None:
    registry = Registry(roles={EVE: {"other": "member"}}, default_policy="ask")
    assert routes(said(), rules(), registry) == TO_DEFAULT
