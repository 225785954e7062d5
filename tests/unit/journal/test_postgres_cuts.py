"""A server that dies, and connections that are cut at the worst moment: nothing is lost, nothing is there twice."""

import asyncio
from collections.abc import Callable, Iterator
from urllib.parse import quote

import asyncpg
import pytest

from rucher.journal.postgres import inserts, queue, writer
from rucher.journal.postgres.adapter import PostgresAdapter, open_postgres
from rucher.journal.postgres.link import Address
from rucher.journal.postgres.schema import month_of, partition_of
from rucher.journal.rows import ID, SEQ, Row, row_of
from rucher.journal.units import Command, Rows, Unit
from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import Corrupt, Retryable, Uncertain
from rucher.protocol.events import control_event
from rucher.protocol.ids import derived
from tests.fakes.clock import until
from tests.fakes.cutter import Cut, Cutter
from tests.fakes.drafts import NOW, run_event, said
from tests.fakes.postgres import ROLE, Server, Standby, shared


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


def plain() -> list[Unit]:
    return [Rows([row_of(said("a"))]), Rows([row_of(run_event("r", 0, 0)), row_of(run_event("r", 1, 1))])]


def of_a_run() -> list[Unit]:
    return [Rows([row_of(run_event("known", 1, 1)), row_of(run_event("known", 2, 1))])]


def folded() -> list[Unit]:
    body = {"session": "s1", "agent": "bee", "group": "main", "thread": ""}
    opened = control_event(
        tenant="local",
        part="test",
        kind="session.opened",
        key="s",
        trace_id=derived("trace", "s"),
        occurred_at=NOW,
        body=body,
    )
    return [Rows([row_of(opened)]), Rows([row_of(said("b"))])]


def commanded() -> list[Unit]:
    return [Command("worker.beat", {"worker": "w"}), Rows([row_of(said("c"))])]


def in_parts() -> list[Unit]:
    return [Rows([row_of(said("first")), row_of(said("d"))]), Rows([row_of(said("e"))]), *commanded()]


async def stored(store: PostgresAdapter) -> list[Row]:
    return [[*row] for row in await store.rows("event.after", (0, 100_000))]


@pytest.mark.parametrize("units", [plain, of_a_run, folded, commanded, in_parts])
@pytest.mark.parametrize("cut", list(Cut))
def test_a_batch_whose_commit_is_cut_lands_once_and_is_answered_as_if_nothing_had_happened(
    cut: Cut, units: Callable[[], list[Unit]]
) -> None:
    database = shared().new_database().split("/")[-1].partition("?")[0]

    async def go() -> None:
        with Cutter(shared().port) as cutter:
            store = await open_postgres(shared().url(database, tcp=True, port=cutter.port), SystemClock(), write=True)
            await store.commit(Command("worker.join", {"worker": "w", "host": "h", "role": "all", "at": 1}))
            await store.commit(Rows([row_of(said("first")), row_of(run_event("known", 0, 0))]))
            before = await stored(store)
            batch = units()
            cutter.cut_at_commit(cut, writing="UPDATE journal_head")
            outcomes = await asyncio.gather(*map(store.commit, batch))
            assert cutter.cuts == 1
            await asyncio.to_thread(cutter.release)
            fresh = [
                row
                for unit, outcome in zip(batch, outcomes, strict=True)
                if isinstance(unit, Rows)
                for at, row in enumerate(unit.rows)
                if at not in outcome
            ]
            assert await stored(store) == before + fresh
            assert [row[SEQ] for row in fresh] == list(range(len(before) + 1, len(before) + len(fresh) + 1))
            beats = [row["beats"] for row in await store.rows("workers.all", ())]
            assert beats == [sum(isinstance(unit, Command) for unit in batch)]
            await store.commit(Rows([row_of(run_event("known", 3 if units is of_a_run else 1, 1))]))
            await store.close()

    asyncio.run(go())


def test_a_batch_of_a_former_epoch_changes_nothing_when_it_arrives_at_last() -> None:
    url = shared().new_database()

    async def go() -> None:
        store = await open_postgres(url, SystemClock(), write=True)
        await store.commit(Rows([row_of(said("a"))]))
        db = await asyncpg.connect(url)
        number, epoch, nonce = await db.fetchrow("SELECT writer, epoch, nonce FROM journal_writers")
        late = [row_of(said("b"))]
        now = SystemClock().now()
        shape = inserts.shape_for(late, partition_of(month_of(now)))
        sent = [number, epoch, nonce + 1, 1, None, *inserts.values(late, shape, now)]
        await db.execute("UPDATE journal_writers SET epoch = epoch + 1")
        assert await db.fetchrow(inserts.statement(shape), *sent) is None
        assert len(await stored(store)) == await db.fetchval("SELECT seq FROM journal_head") == 1
        sent[1] = epoch + 1
        assert await db.fetchrow(inserts.statement(shape), *sent) == (1, 2, None)
        await db.close()
        await store.close()

    asyncio.run(go())


@pytest.mark.parametrize("end", ["restart", "immediate restart", "kill"])
def test_writers_go_on_over_the_death_of_the_server_and_nothing_is_lost_or_doubled(server: Server, end: str) -> None:
    acknowledged: list[Row] = []

    async def write(store: PostgresAdapter, name: str) -> None:
        for number in range(150):
            unit = Rows([row_of(said(f"{name}:{number}")), row_of(run_event(name, number, 0))])
            await store.commit(unit)
            acknowledged.extend(unit.rows)

    def die() -> None:
        if end == "kill":
            server.kill()
            server.start()
        else:
            server.restart("immediate" if end == "immediate restart" else "fast")

    async def go() -> None:
        store = await open_postgres(server.new_database(), SystemClock(), write=True)
        async with asyncio.TaskGroup() as group:
            for writer_no in range(8):
                group.create_task(write(store, f"w{writer_no}"))
            for deaths in (1, 2):
                await until(lambda: len(acknowledged) > 200 * deaths)  # noqa: B023 - awaited in this turn of the loop
                await asyncio.to_thread(die)
        rows = await stored(store)
        await store.close()
        assert sorted(rows) == sorted(acknowledged)
        assert [row[SEQ] for row in rows] == list(range(1, 8 * 300 + 1))

    asyncio.run(go())


def test_while_the_server_stays_away_what_was_not_sent_fails_and_later_all_goes_on(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "AWAY_S", 0.3)

    async def go() -> None:
        store = await open_postgres(server.new_database(), SystemClock(), write=True)
        await store.commit(Rows([row_of(said("a"))]))
        await asyncio.to_thread(server.stop)
        for key in "bc":
            with pytest.raises(Retryable, match="nothing was written"):
                await store.commit(Rows([row_of(said(key))]))
        with pytest.raises(Retryable, match="cannot be used just now"):
            await stored(store)
        await asyncio.to_thread(server.start)
        unit = Rows([row_of(said("b"))])
        await store.commit(unit)
        assert [row[ID] for row in await stored(store)] == [row_of(said(key))[ID] for key in "ab"]
        await store.close()

    asyncio.run(go())


def test_what_is_on_its_way_when_the_store_is_closed_without_a_server_is_uncertain(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "_CLOSING_S", 0.3)
    database = server.new_database().split("/")[-1].partition("?")[0]

    async def go() -> None:
        with Cutter(server.port) as cutter:
            store = await open_postgres(server.url(database, tcp=True, port=cutter.port), SystemClock(), write=True)
            cutter.cut_at_commit(Cut.LATE, writing="UPDATE journal_head")
            cutter.refusing = True
            sent = asyncio.ensure_future(store.commit(Rows([row_of(said("a"))])))
            await until(lambda: cutter.cuts == 1)
            waiting = asyncio.ensure_future(store.commit(Rows([row_of(said("b"))])))
            await asyncio.sleep(0)
            await store.close()
            with pytest.raises(Uncertain):
                await sent
            with pytest.raises(Retryable):
                await waiting

    asyncio.run(go())


def test_a_promoted_standby_takes_over_with_everything_that_was_acknowledged(server: Server) -> None:
    database = server.new_database().split("/")[-1].partition("?")[0]

    async def go(standby: Standby) -> None:
        hosts = quote(f"{server.folder},{standby.folder}", safe="")
        url = f"postgresql://{ROLE}@/{database}?host={hosts}&port={server.port},{standby.port}&target_session_attrs=primary"
        store = await open_postgres(url, SystemClock(), write=True)
        acknowledged: list[Row] = []

        async def write(name: str) -> None:
            for number in range(100):
                unit = Rows([row_of(said(f"{name}:{number}"))])
                await store.commit(unit)
                acknowledged.extend(unit.rows)

        async with asyncio.TaskGroup() as group:
            for name in "abcd":
                group.create_task(write(name))
            await until(lambda: len(acknowledged) > 100)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(standby.promote)
        assert sorted(await stored(store)) == sorted(acknowledged)
        assert [row[SEQ] for row in await stored(store)] == list(range(1, 401))
        await store.close()

    with Standby(server) as standby:
        asyncio.run(go(standby))


def test_a_database_that_lost_what_it_had_confirmed_is_not_written_again() -> None:
    url = shared().new_database()
    database = url.split("/")[-1].partition("?")[0]

    async def go() -> None:
        store = await open_postgres(url, SystemClock(), write=True)
        await store.commit(Rows([row_of(said("a"))]))
        shared().sql("UPDATE journal_head SET seq = 0", database)
        shared().sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'rucher writer%'"
        )
        for _ in range(2):
            with pytest.raises(Corrupt, match="lost events"):
                await store.commit(Rows([row_of(said("b"))]))
        await store.close()

    asyncio.run(go())


def test_a_writer_is_durable_whatever_the_database_prefers_and_holds_nobody_up_when_it_stands_still() -> None:
    url = shared().new_database()
    database = url.split("/")[-1].partition("?")[0]
    shared().sql(f"ALTER DATABASE {database} SET synchronous_commit = off")

    async def go() -> None:
        store = await open_postgres(url, SystemClock(), write=True)
        still = await Address(url).write()
        assert await still.fetchval("SHOW synchronous_commit") == "on"
        assert await still.fetchval("SHOW idle_in_transaction_session_timeout") == "10s"
        await still.execute("SET idle_in_transaction_session_timeout = '300ms'")
        await still.execute("BEGIN; SELECT 1 FROM journal_head FOR UPDATE")
        async with asyncio.timeout(5):
            await store.commit(Rows([row_of(said("a"))]))
        still.terminate()
        await store.close()

    asyncio.run(go())
