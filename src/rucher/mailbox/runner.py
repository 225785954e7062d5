"""The runner's side of a mailbox: reads inbound.db, writes outbound.db. One per sandbox, used under one lock.

Called by the runners in the sandbox, where the session's folder is read-only but for the files that are the runner's.
It must never need to create, rename or delete a file there.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from rucher.mailbox import schema
from rucher.mailbox.errors import MailboxUnavailable
from rucher.mailbox.rows import BadRow, Call, Outcome, Reply, call, cancel_key, dumped, inbound_row, storable

_T = TypeVar("_T")
_BUSY_TIMEOUT_S = 10.0
_INSERT = """INSERT INTO outbound(seq, kind, reply_to, key, created_at, body) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT(key, kind) WHERE kind IN ('processing', 'result') DO NOTHING"""


class RunnerMailbox:
    """One session's mailbox, seen by its runner. `now` gives microseconds since the epoch.

    Making one raises MailboxUnavailable while another runner of this session lives, MailboxCorrupt for files that are
    not a mailbox.
    """

    def __init__(self, session_dir: str, now: Callable[[], int]) -> None:
        self._now = now
        self._guard = threading.Lock()
        self._inbound_path = os.path.join(session_dir, schema.INBOUND)
        self._outbound_path = os.path.join(session_dir, schema.OUTBOUND)
        self._heartbeat_path = os.path.join(session_dir, schema.HEARTBEAT)
        with ExitStack() as opened:
            self._heartbeat = self._sole_runner(self._heartbeat_path)
            opened.callback(os.close, self._heartbeat)
            self._inbound_file = schema.open_plain(self._inbound_path)
            opened.callback(os.close, self._inbound_file)
            self._inbound = schema.connect(self._inbound_path, "ro", _BUSY_TIMEOUT_S)
            opened.callback(self._inbound.close)
            self._outbound = schema.connect(self._outbound_path, "rw", _BUSY_TIMEOUT_S)
            opened.pop_all()

    def _sole_runner(self, path: str) -> int:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise schema.refused(path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise MailboxUnavailable(f"{path}: another runner of this session lives; end it first") from error
        return descriptor

    def recover(self) -> None:
        """Undo what a runner before this one left half-committed, and check both files."""
        session = self._outbound_act(self._undo_half_commit)
        if self._inbound_act(lambda inbound: schema.verify(inbound, self._inbound_path)) != session:
            raise schema.corrupt(self._outbound_path, "it belongs to another session than inbound.db")

    def _undo_half_commit(self, outbound: sqlite3.Connection) -> str:
        # Only this order can finish a hot journal in a folder where no file can be deleted: the exclusive mode keeps
        # SQLite from removing the journal, the persistent one makes it overwrite the journal's header instead.
        outbound.execute("PRAGMA locking_mode = EXCLUSIVE")
        outbound.execute("PRAGMA journal_mode = PERSIST")
        outbound.execute("PRAGMA locking_mode = NORMAL")
        outbound.execute("PRAGMA synchronous = FULL")
        return schema.verify(outbound, self._outbound_path)

    def beat(self) -> None:
        """Show that this runner lives."""
        try:
            os.utime(self._heartbeat)
        except OSError as error:
            raise schema.refused(self._heartbeat_path, error) from error

    def inbound_version(self) -> bytes:
        """Bytes that change with every commit of the host."""
        return schema.change_counter(self._inbound_file, self._inbound_path)

    def open_calls(self) -> list[Call]:
        """Tool calls without a result that the host still wants, in order.

        Raises MailboxUnavailable (HotJournal) while the host is dead inside a commit: it undoes that when it is back.
        """
        with self._guard:
            raw = self._inbound_rows(
                "SELECT seq, key, kind, created_at, body, state FROM inbound"
                " WHERE kind = 'tool_call' AND state = 'pending' ORDER BY seq"
            )
            replies = {key: self._replies(key) for _, key, *_ in raw}
        try:
            return [
                call(inbound_row(row), claimed=Reply.PROCESSING.value in replies[row[1]])
                for row in raw
                if Reply.RESULT.value not in replies[row[1]]
            ]
        except BadRow as error:
            raise schema.corrupt(self._inbound_path, str(error)) from error

    def cancelled(self, key: str) -> bool:
        """Whether the host has asked to stop the call under this key."""
        with self._guard:
            found = self._inbound_rows(
                "SELECT 1 FROM inbound WHERE (key = ? AND kind = 'cancel') OR (key = ? AND state = 'failed') LIMIT 1",
                (cancel_key(key), key),
            )
        return bool(found)

    def claim(self, calls: Sequence[Call]) -> None:
        """Commit that these calls are about to run; a claim of a runner before this one stays as it is."""
        self._write([(Reply.PROCESSING, one, "{}") for one in calls])

    def finish(self, one: Call, outcome: Outcome, text: str, *, truncated: bool = False) -> None:
        """Commit how a call ended; the first result of a key is the one that stays."""
        body = dumped({"outcome": outcome.value, "text": storable(text), "truncated": truncated})
        self._write([(Reply.RESULT, one, body)])

    def close(self) -> None:
        """Let go of both files and of the right to be the session's runner."""
        with self._guard:
            self._inbound.close()
            self._outbound.close()
            os.close(self._inbound_file)
            os.close(self._heartbeat)

    def _replies(self, key: object) -> set[str]:
        query = "SELECT kind FROM outbound WHERE key = ? AND kind IN ('processing', 'result')"
        return {
            str(kind) for (kind,) in self._outbound_act(lambda outbound: outbound.execute(query, (key,)).fetchall())
        }

    def _write(self, replies: Sequence[tuple[Reply, Call, str]]) -> None:
        def write(outbound: sqlite3.Connection) -> None:
            outbound.execute("BEGIN IMMEDIATE")
            (highest,) = outbound.execute("SELECT coalesce(max(seq), 0) FROM outbound").fetchone()
            ((highest_inbound,),) = self._inbound_rows("SELECT coalesce(max(seq), 0) FROM inbound")
            seq = schema.next_seq(1, max(highest, highest_inbound))
            for kind, one, body in replies:
                row = (seq, kind.value, one.seq, one.key, self._now(), body)
                seq += 2 * outbound.execute(_INSERT, row).rowcount
            outbound.execute("COMMIT")

        with self._guard:
            try:
                self._outbound_act(write)
            finally:
                if self._outbound.in_transaction:
                    self._outbound.execute("ROLLBACK")

    def _outbound_act(self, act: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            return act(self._outbound)
        except sqlite3.Error as error:
            raise schema.translated(self._outbound_path, error) from error

    def _inbound_act(self, act: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            return act(self._inbound)
        except sqlite3.Error as error:
            raise schema.translated(self._inbound_path, error) from error

    def _inbound_rows(self, query: str, arguments: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        return self._inbound_act(lambda inbound: inbound.execute(query, arguments).fetchall())
