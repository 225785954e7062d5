"""Laws of the roles that are remembered at the door: never older than the last order that its author heard of."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from rucher.daemon import registrystore
from rucher.daemon.registrystore import StoredRegistry
from rucher.journal.store import JournalStore, StoreReader, open_store
from rucher.router.entities import Entities, Order
from tests.fakes.clock import ManualClock, until

ANA = "user:chat:ana"


class Slow(StoreReader):
    """Reads at once and answers when it is let."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = 0

    @override
    async def rows(self, statement: str, *parameters: Any) -> list[Mapping[str, Any]]:
        rows = await self._store.rows(statement, *parameters)
        self.asked += 1
        await self.gate.wait()
        return rows


def tell(folder: Path, story: Callable[[Slow, StoredRegistry, Entities], Awaitable[None]]) -> None:
    async def nothing(_session: str) -> None:
        pass

    async def go() -> None:
        async with open_store(folder / "rucher.db", ManualClock()) as store:
            slow = Slow(store)
            known = StoredRegistry(slow, "ask")
            await story(slow, known, Entities(store, ManualClock(), "local", dict, nothing, known.forget))

    asyncio.run(go())


def test_a_role_is_read_once_and_anew_after_each_order(tmp_path: Path) -> None:
    async def story(slow: Slow, known: StoredRegistry, entities: Entities) -> None:
        assert [await known.role(ANA) for _ in range(3)] == ["", "", ""]
        assert slow.asked == 1
        await entities.grant(Order("owner:o", "1"), ANA, "member")
        assert await known.role(ANA) == "member"
        await entities.block(Order("owner:o", "2"), ANA)
        assert await known.role(ANA) == ""

    tell(tmp_path, story)


def test_what_was_read_before_an_order_is_not_remembered_after_it(tmp_path: Path) -> None:
    async def story(slow: Slow, known: StoredRegistry, entities: Entities) -> None:
        await entities.grant(Order("owner:o", "1"), ANA, "owner")
        slow.gate.clear()
        async with asyncio.TaskGroup() as group:
            early = group.create_task(known.role(ANA))
            await until(lambda: slow.asked == 1)
            await entities.revoke(Order("owner:o", "2"), ANA)
            slow.gate.set()
        assert early.result() == "owner"
        assert await known.role(ANA) == ""

    tell(tmp_path, story)


def test_no_more_roles_are_kept_than_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registrystore, "REMEMBERED", 2)

    async def story(slow: Slow, known: StoredRegistry, entities: Entities) -> None:
        await entities.grant(Order("owner:o", "1"), ANA, "admin")
        for _ in range(2):
            assert [await known.role(who) for who in (ANA, "user:chat:b", "user:chat:c")] == ["admin", "", ""]
        assert slow.asked > 3

    tell(tmp_path, story)
