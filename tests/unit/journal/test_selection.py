"""Laws of a selection of events, on both databases: what fits is found, in order, whatever its names are made of."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rucher.journal.selection import Wanted, newest, oldest
from rucher.journal.store import Place, open_store
from rucher.protocol.events import Event
from tests.fakes.clock import ManualClock
from tests.fakes.drafts import said
from tests.fakes.postgres import shared

NAMES = [
    ("local", "stripe", "charge.succeeded"), ("local", "stripe", "charge_succeeded"), ("local", "stripe", "ping"),
    ("acme", "stripe", "charge.dispute.created"), ("acme", "str%", "a%b"), ("local", "str_", "a\\b"), ("acme", "cli", "Ping"),
]  # fmt: skip
WANTED = [
    Wanted(),
    Wanted("ev.*.stripe.>"),
    Wanted("ev.acme.>"),
    Wanted("ev.*.stripe.charge.*"),
    Wanted("ev.*.str_.>"),
    Wanted("ev.*.str%.>"),
    Wanted("ev.*.*.a\\b"),
    Wanted("ev.*.*.a%b"),
    Wanted("ev.*.*.ping"),
    Wanted(type="ping"),
    Wanted(type="charge_succeeded"),
    Wanted("ev.local.>", type="ping", since=2000),
    Wanted("ev.*.none.>"),
]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return tmp_path / "rucher.db" if request.param == "sqlite" else shared().new_database()


def test_what_fits_is_found_from_either_end_and_nothing_else(place: Place, tmp_path: Path) -> None:
    async def finding() -> None:
        clock = ManualClock()
        async with open_store(place, clock) as store:
            for number in range(4 * len(NAMES)):
                tenant, source, kind = NAMES[number % len(NAMES)]
                await store.append(replace(said(str(number)), tenant=tenant, source=source, type=kind))
                clock.advance(0.001)
            events = await store.read(0, 1000)
            middle = events[len(events) // 2].recorded_at
            spans = [
                Wanted(since=middle),
                Wanted(until=middle),
                Wanted("ev.*.stripe.>", since=middle, until=middle + 9000),
            ]
            for wanted in [*WANTED, *spans]:
                fitting = [event for event in events if wanted.fits(event)]
                assert numbers(await newest(store, tmp_path, 1000, wanted)) == numbers(fitting)
                assert numbers(await newest(store, tmp_path, 2, wanted)) == numbers(fitting[-2:])
                assert numbers(await newest(store, tmp_path, 1000, wanted, up_to=9)) == [
                    n for n in numbers(fitting) if n <= 9
                ]
                assert numbers(await oldest(store, tmp_path, 1000, wanted)) == numbers(fitting)
                assert (
                    numbers(await oldest(store, tmp_path, 2, wanted, after=9))
                    == [n for n in numbers(fitting) if n > 9][:2]
                )

    asyncio.run(finding())


def numbers(events: Sequence[Event]) -> list[int]:
    return [event.seq for event in events]
