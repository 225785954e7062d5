"""Rows put into a SQLite store as they stand in another one, under their own numbers. Called by the writer, for a copy only."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from rucher.journal.rows import COLUMNS

_INTO = {
    "events": f"INSERT INTO events VALUES ({', '.join('?' * len(COLUMNS))})",  # noqa: S608 - only marks
    "seals": "INSERT INTO seals (last_seq, first_seq, digest, signature, sealed_at) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT DO NOTHING",
    "archives": "INSERT INTO archives (last_seq, first_seq, file, digest, archived_at) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT DO NOTHING",
    "archived_ids": "INSERT INTO archived_ids (id, seq) VALUES (?, ?) ON CONFLICT DO NOTHING",
    "meta": "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
}


def load(db: sqlite3.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert these rows into a table, within the transaction that is open; what stands there already is left, but for meta."""
    db.executemany(_INTO[table], rows)
