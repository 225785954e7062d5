"""What every journal does, whatever it is stored in."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rucher.journal.store import open_store
from rucher.protocol.ports import Journal
from tests.fakes.clock import ManualClock
from tests.fakes.drafts import said
from tests.fakes.journal import MemoryJournal

Opener = Callable[[], AbstractAsyncContextManager[Journal]]


@asynccontextmanager
async def in_memory() -> AsyncIterator[Journal]:
    yield MemoryJournal()


@pytest.fixture(params=["sqlite", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    if request.param == "memory":
        return in_memory
    return lambda: open_store(tmp_path / "rucher.db", ManualClock())


def test_the_same_delivery_twice_is_one_event(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as journal:
            (first,) = await journal.append(said("k", "one"))
            (again,) = await journal.append(said("k", "two"))
            assert (first.first, again.first) == (True, False)
            assert again.event == first.event
            assert len(await journal.read(0, 10)) == 1

    asyncio.run(check())


def test_events_are_numbered_without_gaps_in_the_order_of_their_unit(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as journal:
            await journal.append(said("a"), said("b"))
            await journal.append(said("a"), said("c"))
            assert [event.seq for event in await journal.read(0, 10)] == [1, 2, 3]
            assert [event.seq for event in await journal.read(1, 1)] == [2]

    asyncio.run(check())


def test_a_reader_gets_only_the_subjects_it_asks_for(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as journal:
            await journal.append(said("a"), said("b"))
            assert len(await journal.read(0, 10, "ev.local.cli.*")) == 2
            assert len(await journal.read(0, 10, "ev.local.mail.>")) == 0
            assert len(await journal.read(0, 1, "ev.local.>")) == 1

    asyncio.run(check())


def test_a_trace_holds_its_events_and_no_others(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as journal:
            (mine,) = await journal.append(said("a"))
            await journal.append(said("b"))
            assert list(await journal.trace(mine.event.trace_id)) == [mine.event]
            assert await journal.event(mine.event.id) == mine.event
            assert await journal.event("0" * 26) is None

    asyncio.run(check())


def test_growth_wakes_whoever_waits_for_it(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as journal:
            waiting = asyncio.ensure_future(journal.grown(0))
            await asyncio.sleep(0)
            assert not waiting.done()
            await journal.append(said("a"))
            await asyncio.wait_for(waiting, 5)
            await asyncio.wait_for(journal.grown(0), 5)

    asyncio.run(check())


@given(deliveries=st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=4), max_size=12))
def test_any_deliveries_by_any_number_of_writers_leave_each_key_once(deliveries: list[list[int]]) -> None:
    async def check(journal: Journal) -> None:
        async with asyncio.TaskGroup() as group:
            for keys in deliveries:
                group.create_task(journal.append(*(said(str(key)) for key in keys)))
        events = await journal.read(0, 1000)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert len(events) == len({key for keys in deliveries for key in keys}) == len({event.id for event in events})

    async def against(make: Opener) -> None:
        async with make() as journal:
            await check(journal)

    import tempfile  # noqa: PLC0415 - Hypothesis and tmp_path do not mix: each example needs a folder of its own

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(against(lambda: open_store(Path(folder) / "rucher.db", ManualClock())))
    asyncio.run(against(in_memory))
