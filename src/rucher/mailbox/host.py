"""The host's side of a mailbox: writes inbound.db, reads outbound.db as a file that an attacker wrote.

Used by the sandbox's pool and by whatever rebuilds a session, from any thread, one call at a time. It never opens
outbound.db for writing: SQLite would undo a hot journal, and a forged journal can name another file to delete.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from rucher.mailbox import schema
from rucher.mailbox.errors import MailboxCorrupt, MailboxError
from rucher.mailbox.rows import (
    BadRow,
    InboundRow,
    Kind,
    OutboundRow,
    Reply,
    ResultRow,
    State,
    cancel_key,
    dumped,
    inbound_row,
    outbound_row,
    result_row,
)

_T = TypeVar("_T")
_BUSY_TIMEOUT_S = 2.0
_INBOUND_COLUMNS = "seq, key, kind, created_at, body, state"
_OUTBOUND_COLUMNS = "seq, kind, reply_to, key, created_at, body"


def create(session_dir: Path, session_id: str) -> None:
    """Make the session's folder with both files, the heartbeat and the workspace; what exists already is left as it is.

    A missing inbound.db alone is created empty, for it is a view that the journal fills again. Raises MailboxCorrupt
    when outbound.db alone is missing, for nobody knows then which calls were under way, and for anything in the place
    of a folder or a file; MailboxUnavailable when the machine lacks the means just now.
    """
    try:
        _complete(session_dir, session_id)
    except OSError as error:
        raise schema.refused(str(error.filename or session_dir), error) from error


def _complete(session_dir: Path, session_id: str) -> None:
    session_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    schema.ensure_folder(str(session_dir))
    schema.ensure_folder(str(session_dir / schema.WORKSPACE))
    has_inbound, has_outbound = (os.path.lexists(session_dir / name) for name in (schema.INBOUND, schema.OUTBOUND))
    if has_inbound and not has_outbound:
        raise schema.corrupt(str(session_dir / schema.INBOUND), "its outbound.db is missing")
    # Outbound first: a kill between the two leaves the pair that the next call completes.
    if not has_outbound:
        schema.create_file(str(session_dir), schema.OUTBOUND, session_id)
    if not has_inbound:
        schema.create_file(str(session_dir), schema.INBOUND, session_id)
    for name in (schema.INBOUND + schema.JOURNAL_SUFFIX, schema.OUTBOUND + schema.JOURNAL_SUFFIX, schema.HEARTBEAT):
        schema.ensure_plain(str(session_dir / name))


class HostMailbox:
    """One session's mailbox, seen by the host. Keep one per session and process.

    Making one, and every method, raises MailboxCorrupt when a file is not what it must be, MailboxUnavailable when it is
    locked, the disk is full or descriptors are short, and HotJournal when it needs outbound.db and a runner died inside
    a commit of it. After an error, close it and make another.
    """

    def __init__(self, session_dir: Path) -> None:
        self._guard = threading.Lock()
        self._inbound_path = str(session_dir / schema.INBOUND)
        self._outbound_path = str(session_dir / schema.OUTBOUND)
        self._outbound: sqlite3.Connection | None = None
        self._trusted_schema: int | None = None
        with ExitStack() as opened:
            self._inbound_file = schema.open_plain(self._inbound_path)
            opened.callback(os.close, self._inbound_file)
            self._outbound_file = schema.open_plain(self._outbound_path)
            opened.callback(os.close, self._outbound_file)
            self._inbound = self._open_inbound()
            opened.pop_all()

    def _open_inbound(self) -> sqlite3.Connection:
        connection = schema.connect(self._inbound_path, "rw", _BUSY_TIMEOUT_S)
        try:
            # Taking the write lock undoes a half commit of our own.
            connection.execute("PRAGMA journal_mode = PERSIST")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            self.session_id = schema.verify(connection, self._inbound_path)
            connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            connection.close()
            raise schema.translated(self._inbound_path, error) from error
        except MailboxCorrupt:
            connection.close()
            raise
        if not os.access(self._inbound_path, os.W_OK):
            connection.close()
            raise schema.read_only(self._inbound_path)
        return connection

    def put(self, kind: Kind, key: str, body: Mapping[str, Any], now: int, done: Sequence[int] = ()) -> int:
        """Commit a row for the runner and return its seq; a `key` put before is left as it was and its seq returned.

        One that was given up in the meantime is wanted again. Rows named in `done` are marked as done in the same commit,
        which spares one of their own.
        """

        def write(inbound: sqlite3.Connection) -> int:
            _mark_done(inbound, done)
            found = inbound.execute("SELECT seq FROM inbound WHERE key = ?", (key,)).fetchone()
            if found is not None:
                inbound.execute("UPDATE inbound SET state = 'pending' WHERE key = ? AND state = 'failed'", (key,))
                return int(found[0])
            seq = schema.next_seq(0, max(self._highest_inbound(inbound), self._highest_outbound()))
            row = (seq, key, kind.value, now, dumped(body), State.PENDING.value)
            inbound.execute(f"INSERT INTO inbound({_INBOUND_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", row)  # noqa: S608 - constant
            return seq

        return self._write(write)

    def cancel(self, key: str, now: int) -> int:
        """Ask the runner to stop the call under `key`; returns the seq of the asking."""
        return self.put(Kind.CANCEL, cancel_key(key), {"key": key}, now)

    def mark_done(self, seqs: Sequence[int]) -> None:
        """Note that these inbound rows need nobody any more."""
        self._write(lambda inbound: _mark_done(inbound, seqs))

    def give_up(self, key: str) -> bool:
        """See that no runner takes the row under `key` from now on; False when it was not there for one to take.

        A runner that has read the row already may still act on it: end that one, then ask whether it is `claimed`.
        """

        def write(inbound: sqlite3.Connection) -> bool:
            wanted = inbound.execute("SELECT seq FROM inbound WHERE key = ? AND state = 'pending'", (key,)).fetchone()
            if wanted is not None:
                inbound.execute("UPDATE inbound SET state = 'failed' WHERE seq = ?", wanted)
            return wanted is not None

        return self._write(write)

    def row(self, key: str) -> InboundRow | None:
        """The inbound row under a key."""

        def read(inbound: sqlite3.Connection) -> InboundRow | None:
            found = inbound.execute(f"SELECT {_INBOUND_COLUMNS} FROM inbound WHERE key = ?", (key,)).fetchone()  # noqa: S608 - constant
            return inbound_row(found) if found else None

        return self._read_inbound(read)

    def pending(self, kind: Kind) -> list[InboundRow]:
        """Rows of this kind that are neither done nor failed, in order."""

        def read(inbound: sqlite3.Connection) -> list[InboundRow]:
            query = f"SELECT {_INBOUND_COLUMNS} FROM inbound WHERE kind = ? AND state = 'pending' ORDER BY seq"  # noqa: S608 - constant
            return [inbound_row(raw) for raw in inbound.execute(query, (kind.value,))]

        return self._read_inbound(read)

    def result(self, key: str) -> ResultRow | None:
        """How the call under this key ended, once it has."""
        found = self._outbound_under(key, Reply.RESULT)
        return None if found is None else self._believed(lambda: result_row(found))

    def claimed(self, key: str) -> bool:
        """Whether a runner has begun the call under this key."""
        return self._outbound_under(key, Reply.PROCESSING) is not None

    def demand_readable(self) -> None:
        """Raise what reading outbound.db raises."""
        with self._guard:
            self._highest_outbound()

    def outbound_version(self) -> bytes:
        """Bytes that change with every commit of the runner: cheap enough to ask every few milliseconds."""
        return schema.change_counter(self._outbound_file, self._outbound_path)

    def close(self) -> None:
        """Let go of both files."""
        with self._guard:
            self._inbound.close()
            if self._outbound is not None:
                self._outbound.close()
            os.close(self._inbound_file)
            os.close(self._outbound_file)

    def _write(self, act: Callable[[sqlite3.Connection], _T]) -> _T:
        with self._guard:
            try:
                self._inbound.execute("BEGIN IMMEDIATE")
                value = act(self._inbound)
                self._inbound.execute("COMMIT")
            except sqlite3.Error as error:
                raise schema.translated(self._inbound_path, error) from error
            finally:
                if self._inbound.in_transaction:
                    self._inbound.execute("ROLLBACK")
            return value

    def _read_inbound(self, act: Callable[[sqlite3.Connection], _T]) -> _T:
        with self._guard:
            try:
                return act(self._inbound)
            except sqlite3.Error as error:
                raise schema.translated(self._inbound_path, error) from error
            except BadRow as error:
                raise schema.corrupt(self._inbound_path, str(error)) from error

    def _outbound_under(self, key: str, kind: Reply) -> OutboundRow | None:
        query = f"SELECT {_OUTBOUND_COLUMNS} FROM outbound WHERE key = ? AND kind = ? LIMIT 1"  # noqa: S608 - constant
        with self._guard:
            rows = self._query_outbound(query, (key, kind.value))
        return self._believed(lambda: outbound_row(rows[0])) if rows else None

    def _highest_inbound(self, inbound: sqlite3.Connection) -> int:
        return int(inbound.execute("SELECT coalesce(max(seq), 0) FROM inbound").fetchone()[0])

    def _highest_outbound(self) -> int:
        ((highest,),) = self._query_outbound("SELECT coalesce(max(seq), 0) FROM outbound", ())
        if not isinstance(highest, int) or not 0 <= highest <= schema.MAX_SEQ:
            raise schema.corrupt(self._outbound_path, "a seq is out of range")
        return highest

    def _query_outbound(self, query: str, arguments: tuple[object, ...]) -> list[tuple[object, ...]]:
        """Rows of an agent's file, read in one transaction in which its tables were seen to be the expected ones."""
        try:
            connection = self._outbound = self._outbound or schema.connect(self._outbound_path, "ro", _BUSY_TIMEOUT_S)
            connection.execute("BEGIN")
            try:
                (version,) = connection.execute("PRAGMA schema_version").fetchone()
                if version != self._trusted_schema:
                    self._demand_same_session(schema.verify(connection, self._outbound_path))
                    self._trusted_schema = version
                return connection.execute(query, arguments).fetchall()
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._forget_outbound()
            raise schema.translated(self._outbound_path, error) from error
        except MailboxError:
            self._forget_outbound()
            raise

    def _demand_same_session(self, session_id: str) -> None:
        if session_id != self.session_id:
            raise schema.corrupt(
                self._outbound_path, f"it belongs to session {session_id!r:.60}, not {self.session_id!r}"
            )

    def _forget_outbound(self) -> None:
        # A connection that met an error may hold half-read pages of a file that is being repaired.
        if self._outbound is not None:
            self._outbound.close()
        self._outbound, self._trusted_schema = None, None

    def _believed(self, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except BadRow as error:
            raise schema.corrupt(self._outbound_path, str(error)) from error


def _mark_done(inbound: sqlite3.Connection, seqs: Sequence[int]) -> None:
    inbound.executemany("UPDATE inbound SET state = 'done' WHERE seq = ?", [(seq,) for seq in seqs])
