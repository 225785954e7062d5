"""The journal on SQLite: one connection that writes, in the committer's thread, and read-only connections beside it.

Durability: WAL with synchronous=FULL, so that what was acknowledged survives a power cut. Each batch of units is tried
as one plain transaction; when one unit fails, the batch is replayed with a savepoint a unit, so that only that one fails.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from rucher.journal.statements import migrations, named
from rucher.journal.views import VIEWS, changes
from rucher.protocol.errors import BadInput, Corrupt, Fenced, Retryable
from rucher.protocol.events import Draft, Event, RunPosition, Trust, committed
from rucher.protocol.ports import Appended, Clock

MAX_BODY = 1 << 20
"""Bytes of an event's body as JSON; what is larger belongs in a file that the event names."""
WAL_BYTES = 8 << 20
"""The write-ahead log is grown to this once, so that commits do not each pay for a longer file."""
SCHEMA_VERSION = migrations()[-1][0]
SQLITE_VERSION = sqlite3.sqlite_version


@dataclass(frozen=True, slots=True)
class Seal:
    """A signed digest over the events from `first_seq` to `last_seq`, chained to the seal before it."""

    first_seq: int
    last_seq: int
    digest: str
    signature: str
    sealed_at: int


Unit = Sequence[Draft] | Seal
Outcome = tuple[Appended, ...]


class SqliteWriter:
    """The one writing connection of a store. Used by one thread at a time; `head` is the highest committed seq."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._db = open_database(path, "rwc")
        migrate(self._db, path)
        _grow_wal(self._db, path)
        self.head: int = self._db.execute(_QUERIES["event.head"]).fetchone()[0]

    def apply(self, units: Sequence[Unit]) -> Sequence[Outcome | Exception]:
        """Commit the units in order and return what became of each; of a unit that is an error nothing is kept.

        Nearly always every event is new and every run's place is free: then one statement inserts the whole batch. When
        it is refused, for whatever reason, each unit is taken by itself, and its own outcome says why.
        """
        try:
            with self._transaction():
                return self._append_all(units)
        except Exception as error:  # noqa: BLE001 - whatever one unit brings with it must fail that unit only
            if _is_the_stores_own(error):
                return [_named_by_consequence(error)] * len(units)
        try:
            with self._transaction():
                return [self._append_alone(unit) for unit in units]
        except sqlite3.Error as error:
            return [_named_by_consequence(error)] * len(units)

    def _append_all(self, units: Sequence[Unit]) -> list[Outcome]:
        now = self._clock.now()
        rows: list[tuple[object, ...]] = []
        outcomes: list[Outcome] = []
        written: dict[str, tuple[int, int]] = {}
        for unit in units:
            if isinstance(unit, Seal):
                raise _OneByOne
            self._expect_free(unit, written)
            appended = []
            for draft in unit:
                body = _stored(draft)
                self.head += 1
                rows.append(_row(draft, self.head, now, body))
                appended.append(Appended(committed(draft, self.head, now, json.loads(body)), first=True))
            outcomes.append(tuple(appended))
        self._db.executemany(_QUERIES["event.insert_new"], rows)
        folds = (change for outcome in outcomes for each in outcome for change in changes(each.event))
        for statement, alike in groupby(folds, key=itemgetter(0)):
            self._db.executemany(_VIEW_STATEMENTS[statement], [parameters for _, parameters in alike])
        return outcomes

    def _expect_free(self, unit: Sequence[Draft], written: dict[str, tuple[int, int]]) -> None:
        """Check the unit's fences against the store and against what this batch is about to write (`seq`, `fence`)."""
        for draft in unit:
            at = draft.run
            if at is None:
                continue
            before = written.get(at.run_id)
            if before is None:
                self._check_fence(at)
            elif at.seq != before[0] + 1 or (at.fence != before[1] and at.fence != at.seq):
                raise _OneByOne
            written[at.run_id] = (at.seq, at.fence)

    def rebuild(self) -> int:
        """Empty every view and fold it again from the events; returns how many events were folded."""
        try:
            return self._rebuild()
        except sqlite3.Error as error:
            raise _named_by_consequence(error) from error

    def _rebuild(self) -> int:
        with self._transaction():
            for view in VIEWS:
                self._db.execute(f"DELETE FROM {view}")  # noqa: S608 - the names are this package's own
            count = 0
            for row in self._db.execute("SELECT * FROM events ORDER BY seq"):
                self._fold(event_of(row))
                count += 1
            return count

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        head = self.head
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self.head = head
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _append_alone(self, unit: Unit) -> Outcome | Exception:
        head = self.head
        self._db.execute("SAVEPOINT unit")
        try:
            outcome: Outcome | Exception = self._append(unit)
        except Exception as error:
            if _is_the_stores_own(error):
                raise
            self.head = head
            self._db.execute("ROLLBACK TO unit")
            outcome = _named_by_consequence(error)
        self._db.execute("RELEASE unit")
        return outcome

    def _append(self, unit: Unit) -> Outcome:
        if isinstance(unit, Seal):
            seal = (unit.last_seq, unit.first_seq, unit.digest, unit.signature, unit.sealed_at)
            self._db.execute(_QUERIES["seal.insert"], seal)
            return ()
        now = self._clock.now()
        held: set[str] = set()
        appended = []
        for draft in unit:
            if draft.run is not None and draft.run.run_id not in held:
                held.add(draft.run.run_id)
                self._check_fence(draft.run)
            appended.append(self._take(draft, now))
        return tuple(appended)

    def _check_fence(self, at: RunPosition) -> None:
        """The row before a unit's first must carry the unit's fence: a late write of a former owner finds another."""
        if at.seq == 0:
            return
        row = self._db.execute(_QUERIES["run.fence_at"], (at.run_id, at.seq - 1)).fetchone()
        acquiring = at.fence == at.seq
        if row is None or (row["fence"] != at.fence and not acquiring):
            raise Fenced(f"run {at.run_id} was taken over; the write at its position {at.seq} was refused")

    def _take(self, draft: Draft, now: int) -> Appended:
        body = _stored(draft)
        if self._db.execute(_QUERIES["event.insert"], _row(draft, self.head + 1, now, body)).rowcount == 0:
            return Appended(self._taken_before(draft), first=False)
        self.head += 1
        # As a reader will find it: the caller's own objects may change later, and may be tuples where JSON has lists.
        event = committed(draft, self.head, now, json.loads(body))
        self._fold(event)
        return Appended(event, first=True)

    def _taken_before(self, draft: Draft) -> Event:
        """The event that this draft became when it came before; raises Fenced when its place is another's."""
        if draft.run is None:
            return event_of(self._db.execute(_QUERIES["event.by_id"], (draft.id,)).fetchone())
        place = (draft.run.run_id, draft.run.seq)
        event = event_of(self._db.execute(_QUERIES["event.by_place"], place).fetchone())
        if event.id != draft.id:
            raise Fenced(f"another owner wrote position {draft.run.seq} of run {draft.run.run_id}")
        return event

    def _fold(self, event: Event) -> None:
        for statement, parameters in changes(event):
            self._db.execute(_VIEW_STATEMENTS[statement], parameters)


def open_database(path: Path, mode: str) -> sqlite3.Connection:
    """A connection in `mode` (`ro`, `rwc`) with this store's settings; raises BadInput or Corrupt when it is no store."""
    try:
        db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=10,
        )
        db.row_factory = sqlite3.Row
        if mode != "ro":
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA wal_autocheckpoint = 1500")
        db.execute("PRAGMA cache_size = -32000")
        db.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        raise _open_error(path, error) from error
    return db


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the schema to this version, each step once and in one transaction; refuses a schema from a newer Rucher."""
    db.execute("BEGIN IMMEDIATE")
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    db.execute("COMMIT")
    if version > SCHEMA_VERSION:
        raise BadInput(
            f"{path} has schema {version} and this Rucher knows up to {SCHEMA_VERSION}; use the newer Rucher that wrote it"
        )
    for number, script in migrations():
        if number > version:
            db.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")


class SqliteReader:
    """A read-only connection; one a thread."""

    def __init__(self, path: Path) -> None:
        self._version = 0
        self._db = open_database(path, "ro")
        version: int = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version != SCHEMA_VERSION:
            self._db.close()
            raise BadInput(
                f"{path} has schema {version}, this Rucher reads {SCHEMA_VERSION}; start the daemon once with `rucher up`"
            )

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Mapping[str, Any]]:
        """All rows of one named statement of queries.sql."""
        try:
            with closing(self._db.execute(_QUERIES[statement], parameters)) as cursor:
                return cursor.fetchall()
        except sqlite3.DatabaseError as error:
            raise _named_by_consequence(error) from error

    def events(self, statement: str, parameters: Sequence[Any] = ()) -> list[Event]:
        """The rows of a statement over `events`, as events."""
        return [event_of(row) for row in self.rows(statement, parameters)]

    def changed(self) -> bool:
        """Whether anyone committed since this connection was last asked; True the first time."""
        before, self._version = self._version, self.rows("data_version")[0]["data_version"]
        return self._version != before

    def close(self) -> None:
        """Close the connection."""
        self._db.close()


def event_of(row: Mapping[str, Any]) -> Event:
    """The event that a row of `events` holds."""
    return Event(
        seq=row["seq"], id=row["id"], tenant=row["tenant"], source=row["source"], type=row["type"],
        principal=row["principal"], trust=Trust(row["trust"]), addressed_to=row["addressed_to"],
        trace_id=row["trace_id"], parent_id=row["parent_id"], occurred_at=row["occurred_at"],
        recorded_at=row["recorded_at"], body=json.loads(row["body"]),
        run=None if row["run_id"] is None else RunPosition(row["run_id"], row["run_seq"], row["fence"]),
    )  # fmt: skip


class _OneByOne(Exception):
    """The batch cannot be taken as one; it says nothing about any unit."""


def _row(draft: Draft, seq: int, now: int, body: str) -> tuple[object, ...]:
    at = draft.run
    return (
        seq, draft.id, draft.tenant, draft.source, draft.type, draft.principal, int(draft.trust), draft.addressed_to,
        draft.trace_id, draft.parent_id, draft.occurred_at, now, body,
        *((at.run_id, at.seq, at.fence) if at else (None, None, None)),
    )  # fmt: skip


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _stored(draft: Draft) -> str:
    """The body as it is stored; raises BadInput for one that JSON or UTF-8 cannot hold, or that is too large."""
    try:
        body = _encode(draft.body)
        size = len(body) if body.isascii() else len(body.encode())
    except (ValueError, TypeError, RecursionError) as error:
        raise BadInput(f"the body of {draft.subject} cannot be stored: {error}") from error
    if size > MAX_BODY:
        raise BadInput(f"the body of {draft.subject} has {size:,} bytes; at most {MAX_BODY:,} are taken")
    return body


def _is_the_stores_own(error: Exception) -> bool:
    """Whether the error is about the store rather than about the unit that met it."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.IntegrityError | sqlite3.ProgrammingError | sqlite3.DataError
    )


def _grow_wal(db: sqlite3.Connection, path: Path) -> None:
    """Lengthen the write-ahead log with zeros, which end the log for SQLite: its next frames overwrite them in place."""
    db.execute(_QUERIES["meta.put"], ("wal_grown", "yes"))
    log = path.with_name(path.name + "-wal")
    missing = WAL_BYTES - (log.stat().st_size if log.exists() else WAL_BYTES)
    if missing > 0:
        with log.open("ab") as file:
            file.write(bytes(missing))
            file.flush()


def _open_error(path: Path, error: sqlite3.DatabaseError) -> BadInput | Corrupt:
    if isinstance(error, sqlite3.OperationalError):
        return BadInput(
            f"the journal {path} cannot be opened ({error}); check that the folder exists, is yours and has room"
        )
    return Corrupt(f"{path} is not a journal or is damaged ({error}); put a backup of the file in its place")


def _named_by_consequence(error: Exception) -> Exception:
    match error:
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


_QUERIES = named("queries.sql")
_VIEW_STATEMENTS = named("views.sql")
