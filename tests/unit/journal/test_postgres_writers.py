"""Who writes a database: rows of `journal_writers` that come and go, while nothing that lives ever loses its own for good."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rucher.journal.postgres import writer
from rucher.journal.postgres.adapter import PostgresAdapter, open_postgres
from rucher.journal.rows import ID, row_of
from rucher.journal.units import Rows
from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import Corrupt, Uncertain
from tests.fakes.clock import until
from tests.fakes.cutter import Cut, Cutter
from tests.fakes.drafts import said
from tests.fakes.postgres import shared

FORGET = "DELETE FROM journal_writers"
LATER = "SELECT setval('journal_writers_writer_seq', 5000)"
CONNECTED = """SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'rucher writer %'"""
END = CONNECTED.replace("pid", "pg_terminate_backend(pid)", 1)
Ask = Callable[[str], Awaitable[str]]


def on_a_database(act: Callable[[str, Ask], Awaitable[None]]) -> None:
    """Do it with the URL of a new database, and with a way to ask that one as its superuser."""
    url = shared().new_database()

    async def ask(statement: str) -> str:
        return await asyncio.to_thread(shared().sql, statement, name_of(url))

    async def go() -> None:
        await act(url, ask)

    asyncio.run(go())


def name_of(url: str) -> str:
    return url.split("/")[-1].partition("?")[0]


async def opened(url: str) -> PostgresAdapter:
    return await open_postgres(url, SystemClock(), write=True)


async def tell(store: PostgresAdapter, key: str) -> None:
    await store.commit(Rows([row_of(said(key))]))


async def ids(store: PostgresAdapter) -> list[str]:
    return [row["id"] for row in await store.rows("event.after", (0, 100))]


def ids_of(keys: str) -> list[str]:
    return [row_of(said(key))[ID] for key in keys]


def test_a_store_that_is_closed_leaves_no_row_behind() -> None:
    async def act(url: str, ask: Ask) -> None:
        first, second = await opened(url), await opened(url)
        await tell(second, "a")
        await second.close()
        assert await ask("SELECT writer FROM journal_writers") == "1"
        await first.close()
        assert not await ask("SELECT writer FROM journal_writers")

    on_a_database(act)


def test_later_starts_sweep_the_rows_of_the_killed_and_leave_a_living_writer_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "_REMEMBERED", 3)

    async def act(url: str, ask: Ask) -> None:
        daemon = await opened(url)
        await tell(daemon, "a")
        for _ in range(3):  # each of them killed before it could close
            await ask("INSERT INTO journal_writers (epoch, nonce) VALUES (1, 1)")
        for _ in range(4):
            await (await opened(url)).close()
        assert await ask("SELECT writer FROM journal_writers ORDER BY writer") == "1"
        await tell(daemon, "b")
        assert await ids(daemon) == ids_of("ab")
        await daemon.close()

    on_a_database(act)


@pytest.mark.parametrize("connected", [True, False])
def test_whoever_was_swept_although_it_lives_registers_anew_and_goes_on(*, connected: bool) -> None:
    async def act(url: str, ask: Ask) -> None:
        daemon = await opened(url)
        await tell(daemon, "a")
        if not connected:
            await ask(END)

            async def is_gone() -> bool:
                return not await ask(CONNECTED)

            await until(is_gone)
        await ask(FORGET)
        await ask(LATER)
        await tell(daemon, "b")
        await asyncio.gather(*(tell(daemon, key) for key in "cd"))
        assert await ids(daemon) == ids_of("abcd")
        assert await ask("SELECT writer FROM journal_writers") == "1"
        await daemon.close()

    on_a_database(act)


@pytest.mark.parametrize("cut", [Cut.AFTER, Cut.LATE])
@pytest.mark.parametrize("twice", [False, True])
def test_what_was_on_its_way_when_its_writer_was_forgotten_is_uncertain_and_comes_to_nothing_later(
    cut: Cut, *, twice: bool
) -> None:
    """Also when the answer to registering anew is lost in turn."""

    async def act(url: str, ask: Ask) -> None:
        with Cutter(shared().port) as cutter:
            store = await opened(shared().url(name_of(url), tcp=True, port=cutter.port))
            await tell(store, "a")
            cutter.cut_at_commit(cut, writing="UPDATE journal_head")
            cutter.refusing = True
            sent = asyncio.ensure_future(tell(store, "b"))
            await until(lambda: cutter.cuts == 1)
            await ask(FORGET)
            await ask(LATER)
            if twice:
                cutter.cut_at_commit(Cut.AFTER, writing="OVERRIDING")
            cutter.refusing = False
            with pytest.raises(Uncertain, match="forgot this process"):
                await sent
            assert cutter.cuts == 1 + twice
            await asyncio.to_thread(cutter.release)
            cutter.cut_at_commit(Cut.BEFORE, writing="UPDATE journal_head")
            await tell(store, "c")
            assert cutter.cuts == 2 + twice
            assert await ids(store) == ids_of("abc" if cut is Cut.AFTER else "ac")
            await store.close()

    on_a_database(act)


def test_a_database_where_too_few_registered_since_is_another_one() -> None:
    async def act(url: str, ask: Ask) -> None:
        store = await opened(url)
        await tell(store, "a")
        await ask(FORGET)
        with pytest.raises(Corrupt, match="another database"):
            await tell(store, "b")
        await store.close()

    on_a_database(act)
