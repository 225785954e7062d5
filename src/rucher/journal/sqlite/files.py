"""Opening the file: connections with this store's settings, its schema, its write-ahead log grown beforehand, its errors.

Durability: WAL with synchronous=FULL, so that what was acknowledged survives a power cut.
"""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from rucher.journal.statements import SCHEMA_VERSION, migrations, schema_fault
from rucher.protocol.errors import BadInput, Corrupt, Retryable, RucherError

WAL_BYTES = 24 << 20
"""The write-ahead log is grown to this once, so that commits do not each pay for a longer file."""
CHECKPOINT_PAGES = 4000
"""After so many pages (16 MB) the log is written into the file: the more seldom, the fewer pages are written twice."""
SQLITE_VERSION = sqlite3.sqlite_version
WRITING_KIB, READING_KIB = 20_000, 2_000
"""Pages that a connection keeps in memory: the writer comes back to the ends of its indexes, a reader seldom comes back."""
OLDEST_SQLITE = (3, 38, 0)
"""The first with the operators and clauses that the statements use."""

Connect = Callable[[Path, str], sqlite3.Connection]
"""How to connect to a file in a mode, `ro` or `rwc`; tests put a failing disk beneath."""


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """A plain connection that begins no transaction by itself."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False, timeout=10,
        cached_statements=256,
    )  # fmt: skip


def _mode_for(path: Path, mode: str) -> str:
    """How to open it; where nothing can be written, not even what a reader needs, nobody can change it meanwhile."""
    if mode != "ro" or os.access(path.parent, os.W_OK):
        return mode
    log = path.with_name(path.name + "-wal")
    return mode if log.is_file() and log.stat().st_size else "ro&immutable=1"


def open_database(path: Path, mode: str, connecting: Connect = connect) -> sqlite3.Connection:
    """A connection in `mode` (`ro`, `rwc`) with this store's settings; raises BadInput, Corrupt or Retryable."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise BadInput(
            f"this Python carries SQLite {sqlite3.sqlite_version}; Rucher needs {needed} or newer: use a newer Python"
        )
    db: sqlite3.Connection | None = None
    try:
        db = connecting(path, _mode_for(path, mode))
        db.row_factory = sqlite3.Row
        if mode != "ro":
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        db.execute(f"PRAGMA cache_size = -{READING_KIB if mode == 'ro' else WRITING_KIB}")
        db.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        if db is not None:
            db.close()
        raise named_when_opening(path, error) from error
    return db


def schema_of(db: sqlite3.Connection) -> int:
    """The version of the schema that the file has; 0 for a new file."""
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    return version


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the schema to this version, each step once and in one transaction; refuses a schema from a newer Rucher."""
    db.execute("BEGIN IMMEDIATE")
    version = schema_of(db)
    db.execute("COMMIT")
    if version > SCHEMA_VERSION:
        raise BadInput(schema_fault(path, version))
    for number, script in migrations("sqlite"):
        if number > version:
            db.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")


def grow_wal(db: sqlite3.Connection, path: Path) -> None:
    """Lengthen the write-ahead log with zeros, which end the log for SQLite: its next frames overwrite them in place."""
    db.execute("INSERT INTO meta (key, value) VALUES ('wal_grown', 'yes') ON CONFLICT (key) DO NOTHING")
    log = path.with_name(path.name + "-wal")
    missing = WAL_BYTES - (log.stat().st_size if log.exists() else WAL_BYTES)
    if missing > 0:
        with log.open("ab") as file:
            file.write(bytes(missing))
            file.flush()


def is_the_stores_own(error: Exception) -> bool:
    """Whether the error is about the store rather than about the unit that met it."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.IntegrityError | sqlite3.ProgrammingError | sqlite3.DataError
    )


def named_by_consequence(error: Exception) -> Exception:
    """The error as the rest of Rucher knows it."""
    match error:
        case RucherError():
            return error
        case sqlite3.IntegrityError() | sqlite3.ProgrammingError() | sqlite3.DataError():
            return BadInput(f"an event cannot be stored: {error}")
        case ValueError() | TypeError() | OverflowError() | LookupError():
            return BadInput(f"an event cannot be stored: {error!r}")
        case sqlite3.OperationalError():
            return Retryable(
                f"the journal cannot be used just now ({error}); free disk space or see who locks it, then try again"
            )
        case sqlite3.DatabaseError():
            return Corrupt(f"the journal is damaged ({error}); put a backup of the file in its place")
        case _:
            return error


def named_when_opening(path: Path, error: sqlite3.Error | OSError) -> BadInput | Corrupt | Retryable:
    """What an error means that came up before the store was open."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
    if code in _NOT_OURS:
        return BadInput(
            f"the journal {path} cannot be opened ({error}); check that the folder exists, is yours and can be written"
        )
    if code in _NOT_NOW:
        reason = error.strerror if isinstance(error, OSError) else error
        return Retryable(
            f"the journal {path} cannot be opened just now ({reason}); free disk space or see who locks it, then try again"
        )
    return Corrupt(f"{path} is not a journal or is damaged ({error}); put a backup of the file in its place")


_NOT_OURS = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_AUTH}
_NOT_NOW = {
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT,
}  # fmt: skip
