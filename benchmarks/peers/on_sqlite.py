"""What a peer's SQLite file says of itself, read by a connection of its own. Standard library only."""

import sqlite3
from contextlib import closing
from pathlib import Path

FULL = 2
"""How SQLite numbers the `synchronous` that waits for the disk at every commit."""


def value(file: Path, statement: str) -> int:
    """The one number that the statement returns."""
    with closing(sqlite3.connect(file)) as connection:
        return int(connection.execute(statement).fetchone()[0])


def make_wal(file: Path) -> None:
    """Make the file one with a write-ahead log, which it stays; `synchronous` is FULL unless a library lowers it."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        if connection.execute("PRAGMA synchronous").fetchone()[0] != FULL:
            raise SystemExit("this SQLite does not use synchronous = FULL by default; the figures would not compare")
