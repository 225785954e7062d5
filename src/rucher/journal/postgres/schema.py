"""The tables: migrations that run once under a lock, a partition for each month, the views made anew when they changed.

Called when a store is opened, and by the writer when a month begins.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import asyncpg

from rucher.journal.postgres.folds import fold, function, function_body
from rucher.journal.postgres.link import Address
from rucher.journal.rows import Row
from rucher.journal.segments import read_segment
from rucher.journal.statements import SCHEMA_VERSION, migrations, schema_fault, tables_for_postgres, view_tables
from rucher.journal.views import VIEWS
from rucher.protocol.errors import BadInput

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('rucher ' || current_schema(), 0))"
_FOLDED_AT_ONCE = 1000
_LOCK_WAIT_MS = 300
"""How long dropping a partition may wait for readers to end: so long all others wait behind it."""
DECEMBER = 12


async def migrate(db: asyncpg.Connection, address: Address) -> None:
    """Bring the schema to this version, each step once; refuses a schema from a newer Rucher, and tables of others."""
    async with db.transaction():
        await db.execute(_LOCK)
        version = await schema_of(db)
        if version > SCHEMA_VERSION:
            raise BadInput(schema_fault(address, version))
        for number, script in migrations("postgres"):
            if number > version:
                await _migrate_to(db, number, script, address)


async def _migrate_to(db: asyncpg.Connection, number: int, script: str, address: Address) -> None:
    try:
        await db.execute(script)
    except (asyncpg.DuplicateTableError, asyncpg.DuplicateFunctionError) as error:
        raise BadInput(
            f"{address} holds tables of something else ({error}); give Rucher a database of its own: make one with `createdb`"
        ) from error
    await _note(db, "schema", str(number))


async def schema_of(db: asyncpg.Connection) -> int:
    """The version of the schema that the database has; 0 when it has none."""
    if await db.fetchval("SELECT to_regclass('journal_head') IS NULL OR to_regclass('meta') IS NULL"):
        return 0
    return int(await db.fetchval("SELECT value FROM meta WHERE key = 'schema'") or 0)


async def facts(url: str) -> tuple[int, int]:
    """The version of the schema and the size in bytes of the database at `url`; raises BadInput, Retryable."""
    address = Address(url)
    db = await address.read()
    try:
        return await schema_of(db), int(await db.fetchval("SELECT pg_database_size(current_database())"))
    except Exception as error:
        raise address.named_by_consequence(error) from error
    finally:
        db.terminate()


async def demand_schema(db: asyncpg.Connection, address: Address) -> None:
    """Raise BadInput when the database has another schema than this Rucher reads."""
    version = await schema_of(db)
    if version == 0:
        raise BadInput(f"there is no journal at {address} yet; start the daemon with `rucher up`")
    if version != SCHEMA_VERSION:
        raise BadInput(schema_fault(address, version))


async def make_views(db: asyncpg.Connection, archive: Path | None) -> None:
    """Make and fold the views anew when their definition is another than the one they were made by.

    The function that folds is made anew when it is another: whoever commits next, in any process, folds by it.
    """
    statements, mark = view_tables()
    async with db.transaction():
        await db.execute(_LOCK)
        if await db.fetchval(_FUNCTION_BODY) != function_body():
            await db.execute(_HOLD_COMMITS)
            await db.execute(function())
        if await db.fetchval("SELECT value FROM meta WHERE key = 'views'") == mark:
            return
        await db.execute(_HOLD_COMMITS)
        await db.execute(f"DROP TABLE IF EXISTS {', '.join(VIEWS)}")
        await db.execute(";\n".join(tables_for_postgres(statement) for statement in statements))
        await _fold_all(db, archive)
        await _note(db, "views", mark)


async def rebuild(db: asyncpg.Connection, archive: Path | None) -> int:
    """Empty every view and fold it again from the events; returns how many events were folded. Commits wait meanwhile."""
    async with db.transaction():
        await db.execute(_HOLD_COMMITS)
        for view in VIEWS:
            await db.execute(f"DELETE FROM {view}")  # noqa: S608 - the names are this package's own
        return await _fold_all(db, archive)


async def _fold_all(db: asyncpg.Connection, archive: Path | None) -> int:
    """Fold what was archived, then what is here; raises Corrupt for a segment that is missing or damaged."""
    count = 0
    async for rows in _archived(db, archive):
        await fold(db, rows)
        count += len(rows)
    cursor = await db.cursor("SELECT * FROM events ORDER BY seq")
    while rows := await cursor.fetch(_FOLDED_AT_ONCE):
        await fold(db, rows)
        count += len(rows)
    return count


async def _archived(db: asyncpg.Connection, archive: Path | None) -> AsyncIterator[Sequence[Row]]:
    for segment in await db.fetch("SELECT file FROM archives ORDER BY last_seq"):
        if archive is None:
            raise BadInput(
                "events of this store were archived, and views cannot be folded without the archive's folder"
            )
        rows = (await asyncio.to_thread(read_segment, archive / segment["file"])).rows
        while batch := await asyncio.to_thread(lambda: [list(row) for row in islice(rows, _FOLDED_AT_ONCE)]):  # noqa: B023
            yield batch


async def drop_empty_partitions(db: asyncpg.Connection, now_us: int) -> None:
    """Drop the partitions of past months that hold no event any more; one that is in use is left for another time."""
    this_month = partition_of(month_of(now_us))
    for (name,) in await db.fetch(_PARTITIONS):
        if name < this_month and await _is_empty(db, name):
            try:
                async with db.transaction():
                    await db.execute(f"SET LOCAL lock_timeout = '{_LOCK_WAIT_MS}ms'")
                    # In the order in which readers take them, who find the parent first; DROP by itself takes the parent last.
                    await db.execute(f"LOCK TABLE ONLY events, {name} IN ACCESS EXCLUSIVE MODE")
                    if await _is_empty(db, name):
                        await db.execute(f"DROP TABLE {name}")
            except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
                continue


async def _is_empty(db: asyncpg.Connection, partition: str) -> bool:
    return not await db.fetchval(f"SELECT EXISTS (SELECT 1 FROM {partition})")  # noqa: S608 - a partition's name


def month_of(at_us: int) -> tuple[int, int]:
    """The year and month of a moment, UTC."""
    at = datetime.fromtimestamp(at_us // 1_000_000, UTC)
    return at.year, at.month


def after(month: tuple[int, int]) -> tuple[int, int]:
    """The next month."""
    year, number = month
    return (year + number // DECEMBER, number % DECEMBER + 1)


def partition_of(month: tuple[int, int]) -> str:
    """The name of the table that holds this month's events."""
    return "events_{:04}_{:02}".format(*month)


async def make_partition(db: asyncpg.Connection, month: tuple[int, int]) -> None:
    """Make the partition of this month where it is missing, and the next month's, so that its first commit need not wait."""
    async with db.transaction():
        await db.execute(_LOCK)
        for each in (month, after(month)):
            start, end = _start_us(each), _start_us(after(each))
            await db.execute(
                f"CREATE TABLE IF NOT EXISTS {partition_of(each)} PARTITION OF events "
                f"FOR VALUES FROM ({start}) TO ({end})"
            )


def _start_us(month: tuple[int, int]) -> int:
    return int(datetime(*month, 1, tzinfo=UTC).timestamp()) * 1_000_000


async def _note(db: asyncpg.Connection, key: str, value: str) -> None:
    await db.execute(
        "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        key,
        value,
    )


_PARTITIONS = """SELECT inhrelid::regclass::text FROM pg_inherits
WHERE inhparent = 'events'::regclass AND inhrelid::regclass::text ~ '^events_[0-9]{4}_[0-9]{2}$' ORDER BY 1"""
_FUNCTION_BODY = "SELECT prosrc FROM pg_proc WHERE oid = to_regprocedure('rucher_fold(bigint, jsonb)')"
_HOLD_COMMITS = "SELECT seq FROM journal_head FOR UPDATE"
