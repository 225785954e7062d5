"""Rows put into a PostgreSQL store as they stand in another one, under their own numbers. Called by the adapter, for a copy."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from rucher.journal.postgres.schema import make_partition, month_of
from rucher.journal.rows import COLUMNS, FENCE, ID, RECORDED_AT, RUN_ID, RUN_NO, RUN_SEQ, SEQ

_INTO = {
    "seals": "INSERT INTO seals (last_seq, first_seq, digest, signature, sealed_at) VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT DO NOTHING",
    "archives": "INSERT INTO archives (last_seq, first_seq, file, digest, archived_at) VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT DO NOTHING",
    "archived_ids": "INSERT INTO event_ids (id, seq) VALUES ($1, $2) ON CONFLICT DO NOTHING",
    "meta": "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
}
_NUMBER = "INSERT INTO run_numbers (run_id, run_no) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_HEAD = """UPDATE journal_head SET revision = revision + 1, seq = greatest(
    (SELECT coalesce(max(seq), 0) FROM events), (SELECT coalesce(max(last_seq), 0) FROM archives))"""


async def load(db: asyncpg.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert these rows into a table, all or none; what stands there already is left, but for meta."""
    if table == "events":
        for month in sorted({month_of(row[RECORDED_AT]) for row in rows}):
            await make_partition(db, month)
    async with db.transaction():
        if table == "events":
            await _events(db, rows)
        else:
            await db.executemany(_INTO[table], rows)
        await db.execute(_HEAD)


async def _events(db: asyncpg.Connection, rows: Sequence[Sequence[Any]]) -> None:
    """The events, and what must be unique over all partitions."""
    of_runs = [row for row in rows if row[RUN_ID] is not None]
    ids = [(row[ID], row[SEQ]) for row in rows if row[RUN_ID] is None or row[RUN_SEQ] == 0]
    places = [(row[RUN_NO], row[RUN_SEQ], row[FENCE], row[SEQ]) for row in of_runs]
    await db.copy_records_to_table("events", records=rows, columns=COLUMNS)
    await db.copy_records_to_table("event_ids", records=ids, columns=("id", "seq"))
    await db.copy_records_to_table("run_places", records=places, columns=("run_no", "run_seq", "fence", "seq"))
    await db.executemany(_NUMBER, sorted({(row[RUN_ID], row[RUN_NO]) for row in of_runs}))
