"""The tail in memory never tells anything else than the journal on disk."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rucher.journal.rows import event_of, row_of
from rucher.journal.store import JournalStore, StoreReader, open_store
from rucher.journal.tail import KEPT, Tail
from rucher.journal.units import Adapter, Listener
from rucher.protocol.errors import Retryable
from tests.fakes.clock import ManualClock
from tests.fakes.drafts import said

ROWS = [[seq, *row_of(said(str(seq)))[1:]] for seq in range(1, 2 * KEPT)]
EVENTS = [event_of(row) for row in ROWS]


@given(written=st.integers(0, len(EVENTS)), after=st.integers(0, len(EVENTS)), limit=st.integers(1, 700))
def test_it_answers_like_the_whole_journal_or_says_that_it_cannot(written: int, after: int, limit: int) -> None:
    tail = Tail(0)
    tail.extend(ROWS[:written])
    found = tail.after(after, limit)
    if found is None:
        assert written - after > KEPT
    else:
        assert list(found) == EVENTS[:written][after : after + limit]


@given(written=st.integers(0, 20), heard=st.integers(0, 40), answered=st.integers(0, 40), later=st.integers(0, 5))
def test_the_head_never_goes_back_when_others_are_heard_of_before_the_answer(
    written: int, heard: int, answered: int, later: int
) -> None:
    tail = Tail(0)
    tail.extend(ROWS[:written])
    tail.skip_to(heard)
    tail.extend(ROWS[written:answered])
    head = max(written, heard, answered)
    assert tail.head == head
    tail.extend(ROWS[head : head + later])
    assert tail.head == head + later
    for after in range(head + later):
        assert tail.after(after, 99) in (None, EVENTS[after : head + later])


def test_an_event_from_memory_equals_the_same_event_from_disk(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_store(tmp_path / "rucher.db", ManualClock()) as store:
            given = said("a")
            await store.append(said("a"), said("b"), given)
            from_memory = await store.read(0, 10)
            from_disk = await StoreReader.read(store, 0, 10)
            assert list(from_memory) == list(from_disk)
            assert len(from_disk) == 2
            assert await store.event(given.id) == await StoreReader.event(store, given.id)

    asyncio.run(check())


class AwayOnce:
    """A store that another process wrote 13 into; it cannot be asked the first time."""

    head = 10
    away = True

    def listen(self, _listener: Listener) -> None:
        pass

    async def rows(self, _statement: str, _parameters: Sequence[Any]) -> list[Mapping[str, Any]]:
        if self.away:
            self.away = False
            raise Retryable("the server is away")
        return [{"seq": 13}]


def test_what_was_announced_is_seen_though_the_store_could_not_be_asked_at_once() -> None:
    async def check() -> None:
        store = JournalStore(cast("Adapter", AwayOnce()))
        store.rung()
        with pytest.raises(Retryable):
            await store.grown(10)
        await asyncio.wait_for(store.grown(10), 5)
        assert store.head == 13

    asyncio.run(check())


def test_growth_is_seen_when_a_unit_ends_with_something_known(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_store(tmp_path / "rucher.db", ManualClock()) as store:
            await store.append(said("known"))
            await store.append(said("new"), said("known"))
            await asyncio.wait_for(store.grown(1), 5)
            assert store.head == 2

    asyncio.run(check())
