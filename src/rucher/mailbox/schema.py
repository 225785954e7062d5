"""The tables of both mailbox files, and what a reader demands of a file before it believes a row of it.

Called by the host side and the runner side. It never repairs a file: what does not fit is MailboxCorrupt.
"""

import errno
import os
import sqlite3
import stat
from functools import cache

from rucher.mailbox.errors import HotJournal, MailboxCorrupt, MailboxError, MailboxUnavailable

PROTOCOL = "1"
"""Version of the mailbox protocol, kept in each file's meta table."""

MAX_SEQ = 2**53
"""No seq lies above it, so that every language's numbers hold one and the next one always exists."""

MAX_BODY = 1024 * 1024
"""Bytes of the largest body that the host writes."""

MAX_REPLY = 512 * 1024
"""Bytes of the largest body that the host believes: twice that fits into no event of the journal."""

MAX_INSTRUCTIONS = 50_000_000
"""SQLite instructions after which a read of an agent's file is taken for an attack."""

INBOUND, OUTBOUND, HEARTBEAT, WORKSPACE = "inbound.db", "outbound.db", ".heartbeat", "workspace"
JOURNAL_SUFFIX = "-journal"

_META = """CREATE TABLE meta(
  key TEXT NOT NULL PRIMARY KEY CHECK(typeof(key) = 'text'),
  value TEXT NOT NULL CHECK(typeof(value) = 'text')
)"""

_INBOUND = (
    _META,
    """CREATE TABLE inbound(
  seq INTEGER PRIMARY KEY CHECK(seq > 0 AND seq % 2 = 0),
  key TEXT NOT NULL UNIQUE CHECK(typeof(key) = 'text'),
  kind TEXT NOT NULL CHECK(kind IN ('message', 'tool_call', 'cancel')),
  created_at INTEGER NOT NULL CHECK(typeof(created_at) = 'integer'),
  body TEXT NOT NULL CHECK(typeof(body) = 'text' AND json_valid(body)),
  state TEXT NOT NULL DEFAULT 'pending' CHECK(state IN ('pending', 'done', 'failed'))
)""",
    "CREATE INDEX inbound_pending ON inbound(kind, seq) WHERE state = 'pending'",
)

_OUTBOUND = (
    _META,
    """CREATE TABLE outbound(
  seq INTEGER PRIMARY KEY CHECK(seq > 0 AND seq % 2 = 1),
  kind TEXT NOT NULL CHECK(kind IN ('processing', 'progress', 'result')),
  reply_to INTEGER NOT NULL CHECK(reply_to > 0 AND reply_to % 2 = 0),
  key TEXT NOT NULL CHECK(typeof(key) = 'text'),
  created_at INTEGER NOT NULL CHECK(typeof(created_at) = 'integer'),
  body TEXT NOT NULL CHECK(typeof(body) = 'text')
)""",
    "CREATE UNIQUE INDEX outbound_once ON outbound(key, kind) WHERE kind IN ('processing', 'result')",
)

STATEMENTS = {INBOUND: _INBOUND, OUTBOUND: _OUTBOUND}

_HEADER = b"SQLite format 3\x00"
_CHANGE_COUNTER = slice(24, 28)
_CURE = {
    INBOUND: "stop the daemon, remove this file and start again: it is filled from the journal",
    OUTBOUND: "stop the daemon, move this file and inbound.db away and start again: what the journal has is not lost",
}
_TEMPORARY = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_NOMEM", "SQLITE_PROTOCOL", "SQLITE_IOERR")
_PASSING = {
    errno.ENOSPC: "free the disk",
    errno.EDQUOT: "free the disk",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "raise the machine's limit on open files",
    errno.ENOMEM: "free some memory",
    errno.EIO: "look after the disk",
    errno.EAGAIN: "wait a little",
    errno.EBUSY: "end who holds it",
}


def corrupt(path: str, reason: str) -> MailboxCorrupt:
    """The error that stops this one session, with what to do about the file."""
    return MailboxCorrupt(f"{path}: {reason}; {_CURE[os.path.basename(path)]}")


def read_only(path: str) -> MailboxCorrupt:
    """The error of a file that its own writer may not write."""
    return MailboxCorrupt(f"{path}: this file is read-only; make it and its folder writable to who runs Rucher")


def translated(path: str, error: sqlite3.Error) -> MailboxError:
    """SQLite's error in the mailbox's words."""
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    if name == "SQLITE_READONLY_ROLLBACK":
        return HotJournal(f"{path}: its writer died inside a commit; a new writer must undo that first")
    if name.startswith("SQLITE_READONLY"):
        return read_only(path)
    if name.startswith(_TEMPORARY) and name != "SQLITE_IOERR_SHORT_READ":
        return MailboxUnavailable(
            f"{path}: cannot be used now ({error}); free the disk or end who locks it, then retry"
        )
    if name.startswith("SQLITE_CANTOPEN") and (passing := _passing_reason(path)):
        return passing
    return corrupt(path, f"cannot be used ({error}, {name})")


def refused(path: str, error: OSError) -> MailboxError:
    """The operating system's error in the mailbox's words: whether it passes by itself, or a person must mend the path."""
    reason = f"cannot be used ({error.strerror})"
    if cure := _PASSING.get(error.errno or 0):
        return MailboxUnavailable(f"{path}: {reason}; {cure}, then retry")
    if os.path.basename(path) in _CURE:
        return corrupt(path, reason)
    return MailboxCorrupt(f"{path}: {reason}; see that it is no link, and that who runs Rucher can write it")


def _passing_reason(path: str) -> MailboxError | None:
    # SQLite does not say why it could not open a file. The file itself is not opened: closing it would drop its locks.
    try:
        os.close(os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        return refused(path, error)
    return None


@cache
def _expected(file: str) -> tuple[tuple[object, ...], ...]:
    with_tables = sqlite3.connect(":memory:")
    try:
        for statement in STATEMENTS[file]:
            with_tables.execute(statement)
        return _shape(with_tables)
    finally:
        with_tables.close()


def _shape(connection: sqlite3.Connection) -> tuple[tuple[object, ...], ...]:
    return tuple(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name LIMIT 20"))


def verify(connection: sqlite3.Connection, path: str) -> str:
    """Demand exactly the expected tables and protocol version; return the session's id. Run it inside a transaction."""
    if _shape(connection) != _expected(os.path.basename(path)):
        raise corrupt(path, "its tables are not those of a mailbox")
    meta = dict(connection.execute("SELECT key, value FROM meta LIMIT 20"))
    if meta.get("protocol") != PROTOCOL:
        raise corrupt(path, f"it speaks mailbox protocol {meta.get('protocol')!r}, and this Rucher speaks {PROTOCOL}")
    session = meta.get("session")
    if not isinstance(session, str):
        raise corrupt(path, "it does not name its session")
    return session


def connect(path: str, mode: str, busy_timeout_s: float) -> sqlite3.Connection:
    """Open an existing mailbox file, `mode` "ro" or "rw", for use from any one thread at a time."""
    # By hand, because urllib.parse would add a megabyte to each runner.
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    uri = f"file:{quoted}?mode={mode}"
    try:
        connection = sqlite3.connect(
            uri, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise translated(path, error) from error
    try:
        _harden(connection, path, mode)
    except sqlite3.Error as error:
        connection.close()
        raise translated(path, error) from error
    return connection


def _harden(connection: sqlite3.Connection, path: str, mode: str) -> None:
    if os.path.basename(path) == OUTBOUND:
        # So that no function runs because an agent named it in its tables. It would forbid inbound.db's json_valid.
        connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA mmap_size = 0")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BODY * 4)
    if mode == "ro":
        connection.execute("PRAGMA query_only = ON")
        connection.set_progress_handler(lambda: 1, MAX_INSTRUCTIONS)


def open_plain(path: str) -> int:
    """A read-only descriptor of a mailbox file, which must be a regular file in rollback-journal format.

    Keep it open as long as any connection of this process to the same file: POSIX drops all of a process's locks on a
    file when any one of its descriptors closes.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise refused(path, error) from error
    try:
        _demand_rollback_format(descriptor, path)
    except OSError as error:
        os.close(descriptor)
        raise refused(path, error) from error
    except MailboxCorrupt:
        os.close(descriptor)
        raise
    return descriptor


def _demand_rollback_format(descriptor: int, path: str) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise corrupt(path, "it is not a regular file")
    header = os.pread(descriptor, 100, 0)
    # Bytes 18 and 19 say "write-ahead log": a reader would then create files beside it and read those.
    if header[:16] != _HEADER or header[18:20] != b"\x01\x01":
        raise corrupt(path, "it is not a SQLite file with a rollback journal")


def change_counter(descriptor: int, path: str) -> bytes:
    """Bytes that differ after every commit to the file: one system call, where a query costs locks.

    File times will not do: two commits within one tick of the kernel's clock share theirs.
    """
    try:
        return os.pread(descriptor, 100, 0)[_CHANGE_COUNTER]
    except OSError as error:
        raise refused(path, error) from error


def create_file(directory: str, file: str, session_id: str) -> None:
    """Write an empty mailbox file and its empty journal; a kill in between leaves no half-made file under its name.

    Raises OSError as it comes, and SQLite's errors in the mailbox's words.
    """
    path = os.path.join(directory, file)
    draft = path + ".new"
    for leftover in (draft, draft + JOURNAL_SUFFIX):
        if os.path.lexists(leftover):
            os.unlink(leftover)
    try:
        _write_empty(draft, file, session_id)
    except sqlite3.Error as error:
        raise translated(path, error) from error
    # What a journal of an earlier file of this name holds must not be taken for this one's.
    ensure_plain(path + JOURNAL_SUFFIX, os.O_TRUNC)
    os.rename(draft, path)
    sync_directory(directory)


def _write_empty(draft: str, file: str, session_id: str) -> None:
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        for statement in STATEMENTS[file]:
            connection.execute(statement)
        meta = (("protocol", PROTOCOL), ("session", session_id))
        connection.executemany("INSERT INTO meta(key, value) VALUES (?, ?)", meta)
        connection.execute("COMMIT")
    finally:
        connection.close()


def ensure_plain(path: str, flags: int = 0) -> None:
    """Have a file that a runner can write but not create: a journal, or the heartbeat. Raises OSError for a link."""
    # Without O_NONBLOCK, opening a named pipe would wait for its other end.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | flags, 0o600)
    os.close(descriptor)


def ensure_folder(path: str) -> None:
    """Have a folder that is no link; raises OSError with what is there instead."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None


def sync_directory(directory: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def next_seq(own_parity: int, highest: int) -> int:
    """The smallest number of one's own parity (0 host, 1 runner) above every seq of both files."""
    following = highest + 1
    return following if following % 2 == own_parity else following + 1
