"""Laws of what the router knows of people: folded from events alone, and the same however it is read."""

import asyncio
from typing import Any

from rucher.protocol.events import Draft, control_event
from rucher.router.registry import Engagement, Registry
from tests.fakes.journal import MemoryJournal
from tests.fakes.registry import FoldedRegistry

EVE = "user:cli:eve"


def told(kind: str, **body: Any) -> Draft:
    key = f"{kind}:{body}"
    return control_event(tenant="home", part="x", kind=kind, key=key, trace_id="t", occurred_at=1, body=body)


def folded(*drafts: Draft) -> Registry:
    journal = MemoryJournal()
    asyncio.run(journal.append(*drafts))
    return asyncio.run(FoldedRegistry(journal, "ask").load())


def granted(role: str, agent: str = "") -> Draft:
    return told("role.granted", principal=EVE, role=role, agent=agent, by="owner:ana")


def test_roles_are_held_by_agent_and_go_as_they_came() -> None:
    both = folded(granted("member"), granted("owner", "cos"))
    assert (both.role(EVE, "cos"), both.role(EVE, "scribe"), both.role("user:cli:x", "cos")) == ("owner", "member", "")
    gone = folded(granted("member", "cos"), told("role.revoked", principal=EVE, agent="cos", by="owner:ana"))
    assert not gone.knows(EVE)
    assert both.knows(EVE)


def test_who_is_blocked_loses_their_roles_and_who_gets_one_is_no_longer_blocked() -> None:
    blocked = told("user.blocked", principal=EVE, by="owner:ana")
    registry = folded(granted("admin"), blocked)
    assert (registry.knows(EVE), registry.blocked) == (False, {EVE})
    assert folded(blocked, granted("member")).blocked == set()
    assert folded(blocked, told("user.unblocked", principal=EVE, by="owner:ana")).blocked == set()


def test_a_room_without_a_policy_has_the_default_one() -> None:
    own = told("group.policy", room="cli:main", policy="strict", by="owner:ana")
    assert folded(own).policy("cli:main") == "strict"
    assert folded(own).policy("cli:other") == "ask"
    assert folded(own, told("group.policy", room="cli:main", policy="", by="owner:ana")).policy("cli:main") == "ask"


def test_an_engagement_lasts_until_the_session_is_reset() -> None:
    here = {"agent": "cos", "room": "cli:main", "thread": ""}
    engaged = told("hop.made", engaged=here, event="e")
    assert folded(engaged).engaged == {Engagement("cos", "cli:main", "")}
    assert folded(engaged, told("session.reset", session="s", by="owner:ana", **here)).engaged == set()


def test_an_event_is_held_until_it_is_routed() -> None:
    journal = MemoryJournal()
    held = [
        told("route.held", event=name, principal=who, room="r", reason="")
        for name, who in (("1", EVE), ("2", "x"), ("3", EVE))
    ]
    asyncio.run(journal.append(*held))
    people = FoldedRegistry(journal)
    assert asyncio.run(people.held(EVE)) == ["1", "3"]
    asyncio.run(journal.append(told("hop.made", event="1"), told("route.dropped", event="2", reason="")))
    assert asyncio.run(people.held(EVE)) == ["3"]
    assert asyncio.run(people.held("x")) == []
