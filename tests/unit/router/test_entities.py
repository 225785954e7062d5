"""Laws of orders about users, rooms and sessions, on a real store."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rucher.journal.store import JournalStore, open_store
from rucher.protocol.errors import BadInput, Denied
from rucher.protocol.events import control_event
from rucher.protocol.ids import derived
from rucher.router.entities import Entities, Order
from tests.fakes.clock import ManualClock
from tests.fakes.drafts import NOW

ANA, BEN, EVE = "user:chat:ana", "user:chat:ben", "user:chat:eve"
SESSION = derived("session", "s")
KINDS = ("user.", "group.", "role.", "session.reset", "session.restarting")


class House:
    """Entities over a store, and the sandboxes that they ended."""

    def __init__(self, store: JournalStore) -> None:
        self.store = store
        self.ended: list[str] = []
        self.heads: list[int] = []
        """How far the journal was each time that a change was told."""
        self.entities = Entities(store, ManualClock(), "local", lambda: {"scribe", "cook"}, self._end, self._changed)
        self._keys = iter(range(1000))

    async def _end(self, session: str) -> None:
        self.ended.append(session)

    def _changed(self) -> None:
        self.heads.append(self.store.head)

    def order(self, by: str = "owner:ana") -> Order:
        return Order(by, f"key {next(self._keys)}")

    async def happens(self, kind: str, **body: Any) -> None:
        key = f"{kind}{next(self._keys)}"
        await self.store.append(
            control_event(
                tenant="local",
                part="test",
                kind=kind,
                key=key,
                trace_id=derived("trace", key),
                occurred_at=NOW,
                body=body,
            )
        )

    async def seen(self, *principals: str) -> None:
        for principal in principals:
            await self.happens("user.seen", principal=principal, name="", room="chat:main")
        await self.happens("group.seen", room="chat:main")

    async def held(self, principal: str, *events: str) -> None:
        for number, event in enumerate(events, 1):
            body = {
                "event": event,
                "event_seq": number,
                "principal": principal,
                "room": "chat:main",
                "reason": "unknown",
            }
            await self.happens("route.held", **body)

    async def ordered(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Type, author and the rest of every order."""
        events = await self.store.read(0, 1000)
        return [
            (event.type, event.principal, {name: value for name, value in event.body.items() if name != "by"})
            for event in events
            if event.body.get("by") == event.principal and event.type.startswith(KINDS)
        ]

    async def roles(self, principal: str) -> dict[str, str]:
        return {row["agent"]: row["role"] for row in await self.store.rows("roles.of", principal)}

    async def user(self, principal: str) -> dict[str, Any]:
        (row,) = await self.store.rows("user.get", principal)
        return {name: row[name] for name in ("given_name", "blocked")}


def tell(folder: Path, story: Callable[[House], Awaitable[None]]) -> None:
    async def go() -> None:
        async with open_store(folder / "rucher.db", ManualClock()) as store:
            await story(House(store))

    asyncio.run(go())


def test_an_order_is_one_event_of_its_author_and_given_twice_it_is_one_order(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        await house.seen(ANA)
        order = house.order()
        await house.entities.grant(order, ANA, "member")
        assert house.heads == [house.store.head]
        await house.entities.grant(order, ANA, "member")
        assert await house.ordered() == [
            ("role.granted", "owner:ana", {"principal": ANA, "role": "member", "agent": ""})
        ]

    tell(tmp_path, story)


def test_a_role_is_with_all_agents_or_with_one_and_each_is_taken_by_itself(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        await house.entities.grant(house.order(), ANA, "member")
        await house.entities.grant(house.order(), ANA, "admin", "cook")
        await house.entities.grant(house.order(), ANA, "owner")
        assert await house.roles(ANA) == {"": "owner", "cook": "admin"}
        await house.entities.revoke(house.order(), ANA)
        assert await house.roles(ANA) == {"cook": "admin"}
        await house.entities.revoke(house.order(), ANA, "cook")
        assert await house.roles(ANA) == {}

    tell(tmp_path, story)


def test_who_is_admitted_is_member_and_it_is_said_how_many_messages_go_on(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        await house.seen(ANA, BEN)
        await house.held(ANA, "E1", "E2")
        assert await house.entities.admit(house.order(), ANA) == 2
        assert await house.roles(ANA) == {"": "member"}
        assert await house.entities.admit(house.order(), BEN) == 0

    tell(tmp_path, story)


def test_who_is_blocked_loses_all_roles_and_must_be_unblocked_before_he_gets_one(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        await house.entities.grant(house.order(), EVE, "member", "cook")
        await house.held(EVE, "E1")
        assert await house.entities.block(house.order(), EVE) == 1
        assert (await house.roles(EVE), (await house.user(EVE))["blocked"]) == ({}, 1)
        with pytest.raises(BadInput, match="is blocked; say `rucher users unblock"):
            await house.entities.grant(house.order(), EVE, "member")
        await house.entities.unblock(house.order(), EVE)
        await house.entities.grant(house.order(), EVE, "member")
        assert (await house.roles(EVE), (await house.user(EVE))["blocked"]) == ({"": "member"}, 0)

    tell(tmp_path, story)


def test_names_and_policies_are_set_and_taken_away(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        await house.seen(ANA)
        for name in ("Ana from next door", ""):
            await house.entities.name_user(house.order(), ANA, name)
            await house.entities.name_group(house.order(), "chat:main", name)
            (room,) = await house.store.rows("room.get", "chat:main")
            assert (await house.user(ANA))["given_name"] == room["given_name"] == name
        for policy, stored in (("strict", "strict"), ("public", "public"), ("default", "")):
            await house.entities.policy(house.order(), "chat:new", policy)
            (room,) = await house.store.rows("room.get", "chat:new")
            assert (room["policy"], room["first_seen_at"]) == (stored, None)

    tell(tmp_path, story)


def test_a_reset_and_a_restart_name_the_session_s_place_and_a_restart_ends_its_sandbox(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        await house.happens("session.opened", session=SESSION, agent="cook", group="chat:main", thread="t")
        await house.entities.reset(house.order(), SESSION)
        assert house.ended == []
        await house.entities.restart(house.order(), SESSION)
        assert house.ended == [SESSION]
        place = {"session": SESSION, "agent": "cook", "room": "chat:main", "thread": "t"}
        assert await house.ordered() == [
            ("session.reset", "owner:ana", place), ("session.restarting", "owner:ana", {"session": SESSION}),
        ]  # fmt: skip

    tell(tmp_path, story)


Attempt = Callable[[Entities, Order], Awaitable[Any]]
WRONG: dict[str, tuple[Attempt, str]] = {
    "no principal": (lambda to, order: to.grant(order, "ana", "member"), "write user:SURFACE:NAME"),
    "an owner's": (lambda to, order: to.block(order, "owner:ana"), "write user:SURFACE:NAME"),
    "a control character": (lambda to, order: to.grant(order, "user:chat:a\x1b[2J", "member"), "no user of a surface"),
    "too long": (lambda to, order: to.block(order, "user:chat:" + "a" * 200), "no user of a surface"),
    "no role": (lambda to, order: to.grant(order, ANA, "king"), "'king' is no role; grant one of owner, admin, member"),
    "no agent": (lambda to, order: to.grant(order, ANA, "member", "cok"), "no agent 'cok'; did you mean cook?"),
    "twice": (lambda to, order: to.grant(order, ANA, "admin"), "is admin already"),
    "admitted": (lambda to, order: to.admit(order, ANA), "is admin already"),
    "a stranger": (lambda to, order: to.admit(order, "user:chat:anna"), "did you mean user:chat:ana"),
    "nothing to take": (lambda to, order: to.revoke(order, BEN), "has no role; see `rucher users show user:chat:ben`"),
    "not there": (lambda to, order: to.revoke(order, ANA, "cook"), "has no role with agent cook"),
    "not blocked": (lambda to, order: to.unblock(order, ANA), "is not blocked"),
    "blocked": (lambda to, order: to.block(order, EVE), "is blocked already"),
    "a long name": (lambda to, order: to.name_user(order, ANA, "n" * 201), "at most 200 characters"),
    "a bad name": (lambda to, order: to.name_group(order, "chat:main", "a\nb"), "cannot be shown"),
    "no such group": (lambda to, order: to.name_group(order, "chat:mian", "x"), "did you mean chat:main?"),
    "no group": (lambda to, order: to.policy(order, "main", "ask"), "write SURFACE:GROUP"),
    "no policy": (lambda to, order: to.policy(order, "chat:main", "open"), "say one of strict, ask, public or default"),
    "no session": (lambda to, order: to.reset(order, "S"), "no session 'S'; see `rucher sessions list`"),
    "none to restart": (lambda to, order: to.restart(order, "S"), "no session 'S'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_done_is_refused_in_one_line_and_nothing_is_appended(tmp_path: Path, what: str) -> None:
    attempt, reason = WRONG[what]

    async def story(house: House) -> None:
        await house.seen(ANA, BEN)
        await house.entities.grant(house.order(), ANA, "admin")
        await house.entities.block(house.order(), EVE)
        before = house.store.head
        with pytest.raises(BadInput) as refusal:
            await attempt(house.entities, house.order())
        assert reason in str(refusal.value)
        assert "\n" not in str(refusal.value)
        assert (house.store.head, house.ended) == (before, [])

    tell(tmp_path, story)


def test_an_admin_admits_and_blocks_and_touches_neither_policies_nor_his_equals(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        await house.seen(ANA, BEN, EVE)
        await house.happens("session.opened", session=SESSION, agent="cook", group="chat:main", thread="")
        await house.entities.grant(house.order(), ANA, "admin")
        await house.entities.admit(house.order(ANA), BEN)
        await house.entities.block(house.order(ANA), EVE)
        before = house.store.head
        refused: list[Callable[[Order], Awaitable[Any]]] = [
            lambda order: house.entities.grant(order, BEN, "admin"),
            lambda order: house.entities.grant(order, ANA, "member"),
            lambda order: house.entities.block(order, ANA),
            lambda order: house.entities.policy(order, "chat:main", "public"),
            lambda order: house.entities.reset(order, SESSION),
        ]
        for attempt in refused:
            with pytest.raises(Denied, match="user:chat:ana may not do this: only an owner"):
                await attempt(house.order(ANA))
        with pytest.raises(Denied, match="only owners and admins"):
            await house.entities.unblock(house.order(BEN), EVE)
        assert house.store.head == before

    tell(tmp_path, story)
