"""What every journal does, whatever it is stored in."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rucher.journal.store import open_store
from rucher.protocol.ports import Journal
from tests.conformance.conftest import STORES, new_place
from tests.fakes.clock import ManualClock
from tests.fakes.drafts import said
from tests.fakes.journal import MemoryJournal
from tests.fakes.kernel import MEMORY

Opener = Callable[[], AbstractAsyncContextManager[Journal]]


@asynccontextmanager
async def in_memory() -> AsyncIterator[Journal]:
    yield MemoryJournal()


@pytest.fixture(params=[*STORES, "memory"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    if request.param == "memory":
        return in_memory
    place = new_place(request.param, tmp_path)
    return lambda: open_store(place, ManualClock())


def test_the_same_delivery_twice_is_one_event(journal: Opener) -> None:
    async def check() -> None:
        async with journal() as at:
            (first,) = await at.append(said("k", "one"))
            (again,) = await at.append(said("k", "two"))
            assert (first.first, again.first) == (True, False)
            assert again.event == first.event
            assert len(await at.read(0, 10)) == 1

    asyncio.run(check())


def test_events_are_numbered_without_gaps_in_the_order_of_their_unit(journal: Opener) -> None:
    async def check() -> None:
        async with journal() as at:
            await at.append(said("a"), said("b"))
            await at.append(said("a"), said("c"))
            assert [event.seq for event in await at.read(0, 10)] == [1, 2, 3]
            assert [event.seq for event in await at.read(1, 1)] == [2]

    asyncio.run(check())


def test_one_unit_that_names_an_event_twice_keeps_it_once(journal: Opener) -> None:
    async def check() -> None:
        async with journal() as at:
            first, again, other = await at.append(said("a", "one"), said("a", "two"), said("b"))
            assert [each.first for each in (first, again, other)] == [True, False, True]
            assert again.event == first.event
            assert [event.seq for event in await at.read(0, 10)] == [1, 2]

    asyncio.run(check())


def test_a_reader_gets_only_the_subjects_it_asks_for(journal: Opener) -> None:
    async def check() -> None:
        async with journal() as at:
            await at.append(said("a"), said("b"))
            assert len(await at.read(0, 10, "ev.local.cli.*")) == 2
            assert len(await at.read(0, 10, "ev.local.mail.>")) == 0
            assert len(await at.read(0, 1, "ev.local.>")) == 1

    asyncio.run(check())


def test_a_trace_holds_its_events_and_no_others(journal: Opener) -> None:
    async def check() -> None:
        async with journal() as at:
            (mine,) = await at.append(said("a"))
            await at.append(said("b"))
            assert list(await at.trace(mine.event.trace_id)) == [mine.event]
            assert await at.event(mine.event.id) == mine.event
            assert await at.event("0" * 26) is None

    asyncio.run(check())


def test_growth_wakes_whoever_waits_for_it(journal: Opener) -> None:
    async def check() -> None:
        async with journal() as at:
            waiting = asyncio.ensure_future(at.grown(0))
            await asyncio.sleep(0)
            assert not waiting.done()
            await at.append(said("a"))
            await asyncio.wait_for(waiting, 5)
            await asyncio.wait_for(at.grown(0), 5)

    asyncio.run(check())


deliveries_made = st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=4), max_size=12)


async def deliver(opener: Opener, deliveries: list[list[int]]) -> None:
    """Hand all of it in at once: afterwards each key is there once."""
    async with opener() as at:
        async with asyncio.TaskGroup() as group:
            for keys in deliveries:
                group.create_task(at.append(*(said(str(key)) for key in keys)))
        events = await at.read(0, 1000)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert len(events) == len({key for keys in deliveries for key in keys}) == len({event.id for event in events})


@settings(max_examples=25)
@given(deliveries=deliveries_made)
def test_any_deliveries_by_any_number_of_writers_leave_each_key_once(deliveries: list[list[int]]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        asyncio.run(deliver(lambda: open_store(Path(folder) / "rucher.db", ManualClock()), deliveries))
    asyncio.run(deliver(in_memory, deliveries))


@settings(max_examples=6)
@given(deliveries=deliveries_made)
def test_the_same_holds_on_postgresql(deliveries: list[list[int]]) -> None:
    place = new_place("postgres", Path())
    asyncio.run(deliver(lambda: open_store(place, ManualClock()), deliveries))
