"""What PostgreSQL refuses, prefers or locks: each fault is its own unit's, and what the server's is may be tried again."""

import asyncio
import random
import string
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from rucher.journal.postgres import schema
from rucher.journal.postgres.adapter import PostgresAdapter, open_postgres
from rucher.journal.postgres.link import Address
from rucher.journal.rows import ID, row_of
from rucher.journal.units import Archive, Command, Rows, Seal, Unit
from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import BadInput, Retryable
from rucher.protocol.events import control_event
from tests.fakes.clock import until
from tests.fakes.drafts import NOW, TRACE, said
from tests.fakes.postgres import shared

PARTITIONS = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'events'::regclass ORDER BY 1"
OLD = "events_2001_01"


async def opened(url: str) -> PostgresAdapter:
    return await open_postgres(url, SystemClock(), write=True)


def on_a_store(act: Callable[[PostgresAdapter, str], Awaitable[None]]) -> None:
    """Do it with a store, and with its URL."""
    url = shared().new_database()

    async def go() -> None:
        store = await opened(url)
        try:
            await act(store, url)
        finally:
            await store.close()

    asyncio.run(go())


async def ask(url: str, statement: str) -> str:
    return await asyncio.to_thread(shared().sql, statement, url.split("/")[-1].partition("?")[0])


def signal(topic: str) -> Rows:
    body = {"topic": topic, "outcome": {}}
    return Rows([row_of(control_event(tenant="local", part="test", kind="signal.sent", key=topic, trace_id=TRACE,
                                      occurred_at=NOW, body=body))])  # fmt: skip


async def failing_for(url: str, key: str, code: str, times: int) -> str:
    """Have the server fail so many times with this SQLSTATE at the message with this key; returns the event's id."""
    event_id = str(row_of(said(key))[ID])
    await ask(url, "CREATE SEQUENCE failed; GRANT ALL ON SEQUENCE failed TO PUBLIC")
    await ask(
        url,
        f"""CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.id = '{event_id}' AND nextval('failed') <= {times} THEN
                RAISE EXCEPTION 'as told' USING ERRCODE = '{code}';
            END IF;
            RETURN NEW;
        END $$""",
    )
    await ask(url, "CREATE TRIGGER fails BEFORE INSERT ON event_ids FOR EACH ROW EXECUTE FUNCTION fail()")
    return event_id


async def commit_all(store: PostgresAdapter, *units: Unit) -> list[object]:
    return [
        type(each) if isinstance(each, Exception) else each
        for each in await asyncio.gather(*map(store.commit, units), return_exceptions=True)
    ]


def test_a_text_too_long_for_an_index_is_refused_and_hits_nobody_else() -> None:
    long = "".join(random.Random(1).choices(string.ascii_letters, k=9000))

    async def act(store: PostgresAdapter, _url: str) -> None:
        units = [Rows([row_of(said("a"))]), signal(long), Rows([row_of(said("b"))]), signal("short")]
        assert await commit_all(store, *units) == [{}, BadInput, {}, {}]
        assert [row["seq"] for row in await store.rows("event.after", (0, 100))] == [1, 2, 3]
        assert await commit_all(store, signal(long)) == [BadInput]

    on_a_store(act)


@pytest.mark.parametrize("code", ["54001", "22023", "23514", "20000", "P0004"])
def test_what_the_server_says_of_one_unit_is_that_units_fault_alone(code: str) -> None:
    async def act(store: PostgresAdapter, url: str) -> None:
        await failing_for(url, "b", code, times=1000)
        assert await commit_all(store, *(Rows([row_of(said(key))]) for key in "abc")) == [{}, BadInput, {}]

    on_a_store(act)


@pytest.mark.parametrize("code", ["53100", "57014", "58030", "40001", "55P03"])
def test_what_is_the_servers_own_trouble_is_nobodys_fault_and_nothing_is_written(code: str) -> None:
    async def act(store: PostgresAdapter, url: str) -> None:
        await failing_for(url, "b", code, times=2)
        units = [Rows([row_of(said(key))]) for key in "abc"]
        assert await commit_all(store, *units) == [Retryable] * 3
        assert not await store.rows("event.after", (0, 100))
        assert await commit_all(store, *units) == [{}] * 3

    on_a_store(act)


def test_what_passes_is_tried_once_more_before_anybody_is_told() -> None:
    async def act(store: PostgresAdapter, url: str) -> None:
        await failing_for(url, "b", "40P01", times=1)
        assert await commit_all(store, *(Rows([row_of(said(key))]) for key in "abc")) == [{}] * 3

    on_a_store(act)


def test_many_write_and_open_at_once_whatever_isolation_the_database_prefers() -> None:
    url = shared().new_database()
    database = url.split("/")[-1].partition("?")[0]
    shared().sql(f"ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'")

    async def write(name: str) -> None:
        store = await opened(url)
        for number in range(30):
            await store.commit(Rows([row_of(said(f"{name}:{number}"))]))
            await store.commit(Command("worker.join", {"worker": name, "host": "h", "role": "all", "at": 1}))
        await store.close()

    async def go() -> None:
        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(write(name))
        address = Address(url)
        for connect in (address.read, address.write, address.listen):
            db = await connect()
            assert await db.fetchval("SHOW transaction_isolation") == "read committed"
            db.terminate()

    asyncio.run(go())


class Watched:
    """A connection that calls `before_drop` at the worst moment: when a partition is about to go."""

    def __init__(self, db: asyncpg.Connection, before_drop: Callable[[], Awaitable[None]]) -> None:
        self._db = db
        self._before_drop = before_drop

    def __getattr__(self, name: str) -> object:
        return getattr(self._db, name)

    async def execute(self, sql: str) -> None:
        if sql.startswith("DROP"):
            await self._before_drop()
        await self._db.execute(sql)


def test_a_partition_is_dropped_beneath_a_reader_that_neither_fails_nor_sees_anything() -> None:
    async def act(store: PostgresAdapter, url: str) -> None:
        await store.commit(Rows([row_of(said("a"))]))
        db, reader = await Address(url).write(), await Address(url).read()
        await schema.make_partition(db, (2001, 1))
        reading: list[asyncio.Task[list[asyncpg.Record]]] = []

        async def read() -> None:
            query = reader.fetch("SELECT * FROM events ORDER BY seq")
            reading.append(asyncio.ensure_future(query))
            waits = f"SELECT count(*) FROM pg_locks WHERE pid = {reader.get_server_pid()} AND NOT granted"  # noqa: S608

            async def is_held_up() -> bool:
                return await ask(url, waits) == "1"

            await until(is_held_up)

        await schema.drop_empty_partitions(Watched(db, read), SystemClock().now())
        assert [row["seq"] for row in await reading[0]] == [1]
        assert OLD not in await ask(url, PARTITIONS)
        db.terminate()
        reader.terminate()

    on_a_store(act)


def test_a_partition_that_is_being_read_is_left_for_another_time() -> None:
    async def act(_store: PostgresAdapter, url: str) -> None:
        db, reader = await Address(url).write(), await Address(url).read()
        await schema.make_partition(db, (2001, 1))
        async with reader.transaction():
            await reader.fetch("SELECT * FROM events")
            await schema.drop_empty_partitions(db, SystemClock().now())
            assert OLD in await ask(url, PARTITIONS)
        await schema.drop_empty_partitions(db, SystemClock().now())
        assert OLD not in await ask(url, PARTITIONS)
        db.terminate()
        reader.terminate()

    on_a_store(act)


def test_an_archive_is_committed_also_when_no_partition_can_be_dropped_and_the_next_one_drops_it() -> None:
    async def act(store: PostgresAdapter, url: str) -> None:
        await store.commit(Rows([row_of(said("a")), row_of(said("b"))]))
        db = await Address(url).write()
        await schema.make_partition(db, (2001, 1))
        db.terminate()
        for seq, tidies in ((1, False), (2, True)):
            await ask(url, f"ALTER TABLE {OLD} OWNER TO {'rucher' if tidies else 'postgres'}")
            await store.commit(Seal(seq, seq, "digest", "signature", 5))
            await store.commit(Archive(seq, seq, f"file {seq}", "digest", 6))
            assert (OLD in await ask(url, PARTITIONS)) is not tidies
        assert [row["last_seq"] for row in await store.rows("archives.all", ())] == [1, 2]

    on_a_store(act)
