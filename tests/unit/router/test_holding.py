"""Laws of what the router learns of people while it goes on: held events are decided anew, and mentions engage."""

from pathlib import Path

import pytest

from rucher.protocol.events import Draft, Trust, control_event
from tests.fakes.clock import settled, until
from tests.unit.router.builders import HEAD, draft
from tests.unit.router.world import World, during

EVE = "user:cli:eve"


def from_eve(text: str, key: str) -> Draft:
    return draft(text, key, principal=EVE, trust=Trust.PUBLIC)


def word(kind: str, principal: str = EVE, key: str = "1", **body: str) -> Draft:
    """What an owner says of a person or a room."""
    about = {"principal": principal, "agent": "", "by": "owner:ana", **body}
    return control_event(
        tenant="home", part="people", kind=kind, key=f"{principal}:{key}", trace_id="t", occurred_at=1, body=about
    )


def ask_first(world: World) -> None:
    world.journal.take(word("group.policy", room="cli:main", policy="ask"))


@pytest.mark.parametrize("word_first", [True, False])
def test_what_an_unknown_person_said_waits_for_a_role_and_is_then_decided_by_the_rules_in_force(
    tmp_path: Path,
    word_first: bool,  # noqa: FBT001 - a table
) -> None:
    world = World(tmp_path)
    ask_first(world)
    drafts = [from_eve("one", "1"), from_eve("two", "2"), draft("mine", "3")]
    if word_first:
        drafts.append(word("role.granted", role="member"))
    drafts.append(from_eve("three", "4"))

    async def story() -> None:
        await until(lambda: len(world.journal.of_type("rules.applied")) == 1)
        await world.journal.append(*drafts)
        if not word_first:
            await until(lambda: len(world.journal.of_type("route.held")) == 3)
            assert world.hops() == [("mine", "default", "agent:scribe")]
            world.path.write_text(HEAD.replace("scribe", "other"))
            await world.journal.append(word("role.granted", role="member"))
        await until(lambda: world.routed() == 4)
        await settled()

    during(world.router(), story)
    to = "agent:scribe" if word_first else "agent:other"
    assert sorted(world.hops()) == sorted(
        [(text, "default", to) for text in ("one", "two", "three")] + [("mine", "default", "agent:scribe")]
    )
    held = world.journal.of_type("route.held")[0]
    first = next(one for one in world.journal.events if one.body.get("text") == "one")
    assert held.body == {
        "event": first.id, "event_seq": first.seq, "rules": held.body["rules"], "principal": EVE, "room": "cli:main",
        "reason": "user:cli:eve is not known here: give them a role, or block them",
    }  # fmt: skip


def test_ten_events_that_wait_and_ten_that_cannot_be_decided_hold_up_nobody(tmp_path: Path) -> None:
    slow = '[[rule]]\nid = "slow"\nmatch = { text = "(a|aa)+$" }\nto = "agent:other"\n'
    world = World(tmp_path, HEAD + slow)
    ask_first(world)

    async def story() -> None:
        stuck = [from_eve(f"held {number}", f"h{number}") for number in range(10)]
        slow_ones = [draft("a" * 4000 + f"b{number}", f"s{number}") for number in range(10)]
        await world.journal.append(*stuck, *slow_ones, draft("mine", "m"))
        await until(lambda: world.routed() == 11)

    during(world.router(), story)
    assert world.hops()[-1] == ("mine", "default", "agent:scribe")
    assert len(world.journal.of_type("route.held")) == len(world.journal.of_type("rule.faulted")) == 10


def test_what_a_person_said_who_is_then_blocked_is_dropped(tmp_path: Path) -> None:
    world = World(tmp_path)
    ask_first(world)

    async def story() -> None:
        await world.journal.append(from_eve("one", "1"), draft("mine", "2"))
        await until(lambda: len(world.journal.of_type("route.held")) == 1)
        await world.journal.append(word("user.blocked"), word("role.granted", "user:cli:other", role="member"))
        await until(lambda: world.routed() == 2)

    during(world.router(), story)
    (gone,) = world.journal.of_type("route.dropped")
    assert gone.body["reason"] == "user:cli:eve is blocked"
    assert world.hops() == [("mine", "default", "agent:scribe")]


def test_a_word_about_a_sender_that_was_given_while_the_router_was_down_is_obeyed_once_it_is_up(tmp_path: Path) -> None:
    world = World(tmp_path)
    ask_first(world)

    async def hold() -> None:
        await world.journal.append(from_eve("one", "1"))
        await until(lambda: len(world.journal.of_type("route.held")) == 1)

    async def let_in() -> None:
        await until(lambda: world.routed() == 1)
        await settled()

    during(world.router(), hold)
    cursor = world.journal.of_type("route.held")[0].body["event_seq"]
    world.journal.take(word("role.granted", role="member"))
    during(world.router(cursor), let_in)
    during(world.router(cursor), let_in)
    assert world.hops() == [("one", "default", "agent:scribe")]


def test_a_mention_engages_its_agent_for_the_next_event_of_the_same_batch_and_after_a_restart(tmp_path: Path) -> None:
    sticky = '[[rule]]\nid = "s"\nmatch = { group = "main" }\nto = "agent:other"\nengage = "mention-sticky"\n'
    world = World(tmp_path, HEAD + sticky)

    async def story() -> None:
        await world.journal.append(draft("before", "1"), draft("@other hi", "2"), draft("after", "3"))
        await until(lambda: world.routed() == 3)

    async def later() -> None:
        await world.journal.append(draft("later", "4"))
        await until(lambda: world.routed() == 4)
        await world.journal.append(
            word("session.reset", agent="other", room="cli:main", thread=""), draft("forgotten", "5")
        )
        await until(lambda: world.routed() == 5)

    during(world.router(), story)
    during(world.router(cursor=3), later)
    assert [text for text, _, _ in world.hops()] == ["@other hi", "after", "later"]
    assert [made.body.get("engaged") for made in world.journal.of_type("hop.made")] == [
        {"agent": "other", "room": "cli:main", "thread": ""}, None, None,
    ]  # fmt: skip
    assert [gone.body["rule"] for gone in world.journal.of_type("route.dropped")] == ["s", "s"]
