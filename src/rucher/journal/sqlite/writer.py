"""The one writing connection, in the committer's thread.

Each batch is tried as one plain transaction, which nearly always succeeds; when anything in it fails, the batch is replayed
with a savepoint a unit, so that only the unit at fault fails; `units.py` says in which order. A run's fence is checked against
the last place that this writer gave to the run, or else against the row before it; the unique key of a run's places does the
rest.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from rucher.journal.rows import FENCE, ID, RECORDED_AT, RUN_ID, RUN_NO, RUN_SEQ, SEQ, Row, as_archived
from rucher.journal.segments import read_segment
from rucher.journal.sqlite.files import (
    Connect,
    connect,
    grow_wal,
    is_the_stores_own,
    migrate,
    named_by_consequence,
    named_when_opening,
    open_database,
)
from rucher.journal.sqlite.loading import load
from rucher.journal.statements import named, view_tables
from rucher.journal.units import Answer, Archive, Command, Earlier, Rows, Seal, Unit, rows_first
from rucher.journal.views import MUST_CHANGE, VIEWS, changes
from rucher.protocol.errors import BadInput, Corrupt, Exhausted, Fenced
from rucher.protocol.ports import Clock

Outcome = Earlier | Answer
Places = dict[str, tuple[int, int, int | None]]
"""By run: the last place, the fence it was written under, and the run's number (None while its first event is unwritten)."""
TAILS_KEPT = 4096
"""Runs whose last place is remembered; the rows tell it of all others."""

_COLUMNS = 17
_MOST_ROWS = 64
"""Rows that one INSERT takes. It is one step of SQLite's machine, during which Python's lock is free for the event loop."""
_ONE = f"({', '.join('?' * _COLUMNS)})"
_INSERT = [f"INSERT INTO events VALUES {', '.join([_ONE] * size)}" for size in range(_MOST_ROWS + 1)]  # noqa: S608 - only marks
_VIEW_STATEMENTS = named("views.sql")
_COMMANDS = named("commands.sql")
_ARCHIVING = named("archive.sql")


class SqliteWriter:
    """Used by one thread at a time; `head` is the highest committed seq."""

    def __init__(self, path: Path, clock: Clock, connecting: Connect = connect, archive: Path | None = None) -> None:
        """`archive` is the folder of the segments, by default the one beside the file. Raises BadInput, Corrupt, Retryable."""
        self._clock = clock
        self._archive = archive or path.with_name("archive")
        self._tails: Places = {}
        self._db = open_database(path, "rwc", connecting)
        try:
            migrate(self._db, path)
            self._make_views()
            grow_wal(self._db, path)
            self.head: int = self._db.execute(_HEAD).fetchone()[0]
        except (sqlite3.Error, OSError) as error:
            self._db.close()
            raise named_when_opening(path, error) from error
        except BaseException:
            self._db.close()
            raise

    def apply(self, units: Sequence[Unit]) -> Sequence[Outcome | Exception]:
        """Commit the units and return what became of each; of a unit that is an error nothing is kept."""
        try:
            if _one_statement_does(units):
                outcomes: Sequence[Outcome | Exception] = self._append_all(units)
            else:
                with self._transaction():
                    outcomes = self._append_all(units)
            self._remember(units)
        except Exception as error:  # noqa: BLE001 - whatever one unit brings with it must fail that unit only
            if is_the_stores_own(error):
                return [named_by_consequence(error)] * len(units)
        else:
            return outcomes
        self._tails.clear()
        try:
            with self._transaction():
                done = {at: self._append_alone(units[at]) for at in rows_first(units)}
            return [done[at] for at in range(len(units))]
        except sqlite3.Error as error:
            return [named_by_consequence(error)] * len(units)

    def _append_all(self, units: Sequence[Unit]) -> list[Outcome | Exception]:
        places: Places = {}
        rows: list[Row] = []
        for unit in units:
            if isinstance(unit, Rows):
                self._expect_free(unit.rows, places)
                rows += unit.rows
        if rows:
            self._expect_new(rows)
            self._insert(rows)
            self._fold([row for unit in units if isinstance(unit, Rows) and unit.folds for row in unit.rows])
        return [{} if isinstance(unit, Rows) else self._other(unit) for unit in units]

    def _expect_new(self, rows: Sequence[Row]) -> None:
        """Check that none of these was archived; the key of the table knows those that were not."""
        ids = [row[ID] for row in rows if row[RUN_ID] is None or row[RUN_SEQ] == 0]
        if ids and self._db.execute(_ANY_ARCHIVED, (json.dumps(ids),)).fetchone():
            raise _OneByOne

    def _expect_free(self, rows: Sequence[Row], places: Places) -> None:
        """Check the fences of these rows, and note in `places` what they are about to take."""
        for row in rows:
            run_id = row[RUN_ID]
            if run_id is None:
                continue
            seq, fence = row[RUN_SEQ], row[FENCE]
            last = places.get(run_id) or self._tails.get(run_id) or self._last(row)
            if seq != last[0] + 1 or (fence != last[1] and fence != seq):
                raise _OneByOne
            row[RUN_NO] = last[2]
            places[run_id] = (seq, fence, last[2])

    def _insert(self, rows: Sequence[Row]) -> None:
        now, seq = self._clock.now(), self.head
        born: dict[str, int] = {}
        for row in rows:
            seq += 1
            row[SEQ], row[RECORDED_AT] = seq, now
            if row[RUN_SEQ] == 0:
                born[row[RUN_ID]] = seq
            if row[RUN_NO] is None and row[RUN_ID] is not None:
                row[RUN_NO] = born[row[RUN_ID]]
        for at in range(0, len(rows), _MOST_ROWS):
            some = rows[at : at + _MOST_ROWS]
            self._db.execute(_INSERT[len(some)], list(chain.from_iterable(some)))
        self.head = seq

    def _fold(self, rows: Sequence[Row]) -> None:
        folds = [change for row in rows for change in changes(row)]
        for statement, alike in groupby(folds, key=itemgetter(0)):
            parameters = [each for _, each in alike]
            changed = self._db.executemany(_VIEW_STATEMENTS[statement], parameters).rowcount
            if statement in MUST_CHANGE and changed < len(parameters):
                raise Exhausted("the budget does not cover it; nothing was done")

    def _other(self, unit: Seal | Archive | Command) -> Outcome:
        match unit:
            case Seal():
                seal = (unit.last_seq, unit.first_seq, unit.digest, unit.signature, unit.sealed_at)
                self._db.execute(_SEAL, seal)
            case Archive():
                self._let_go(unit)
            case Command(statement, parameters):
                return self._db.execute(_COMMANDS[statement], parameters).fetchall()
        return ()

    def _let_go(self, unit: Archive) -> None:
        """Note the archive, keep the ids of its events, and delete these and the seals over them but the last."""
        given = asdict(unit)
        if not self._db.execute(_ARCHIVING["archive.follows"], given).fetchone():
            raise BadInput(f"the events of {unit.file} are not the next to be archived; nothing was done")
        self._db.execute(_ARCHIVING["archive.note"], given)
        self._db.execute(_ARCHIVING["archive.ids"], given)
        count = self._db.execute(_ARCHIVING["archive.events"], given).rowcount
        if count != unit.last_seq - unit.first_seq + 1:
            raise Corrupt(f"the journal does not hold the events of {unit.file}; see `rucher journal verify`")
        self._db.execute(_ARCHIVING["archive.seals"], given)

    def _append_alone(self, unit: Unit) -> Outcome | Exception:
        head = self.head
        self._db.execute("SAVEPOINT unit")
        try:
            outcome: Outcome | Exception = self._append(unit.rows) if isinstance(unit, Rows) else self._other(unit)
        except Exception as error:
            if is_the_stores_own(error):
                raise
            self.head = head
            self._db.execute("ROLLBACK TO unit")
            outcome = named_by_consequence(error)
        self._db.execute("RELEASE unit")
        return outcome

    def _append(self, rows: Sequence[Row]) -> Earlier:
        earlier: dict[int, Row] = {}
        for row in rows:
            row[RUN_NO] = None
        for number, row in enumerate(rows):
            if row[RUN_ID] is None:
                before = self._db.execute(_BY_ID, (row[ID],)).fetchone() or self._archived(row)
                if before is not None:
                    earlier[number] = list(before)
                    continue
            else:
                self._demand_place(row)
            self._insert([row])
            self._fold([row])
        return earlier

    def _archived(self, row: Row) -> Row | None:
        """The row itself, under its old number, when its event was archived: a late second delivery changes nothing."""
        found = self._db.execute("SELECT seq FROM archived_ids WHERE id = ?", (row[ID],)).fetchone()
        return as_archived(row, found[0]) if found else None

    def _demand_place(self, row: Row) -> None:
        """Raise Fenced unless this row is the next of its run, by the hand that wrote the last: a late write finds another."""
        run_id, seq, fence = row[RUN_ID], row[RUN_SEQ], row[FENCE]
        last = self._last(row)
        if seq != last[0] + 1 or (fence != last[1] and fence != seq) or (seq == 0 and self._archived(row)):
            raise Fenced(f"run {run_id} was taken over; the write at its place {seq} was refused")
        row[RUN_NO] = last[2]

    def _last(self, row: Row) -> tuple[int, int, int | None]:
        """The last place of the row's run, by the journal; (-1, -1, None) for a run that has none."""
        found = self._db.execute(_LAST_PLACE, (row[RUN_ID],)).fetchone()
        return (found[0], found[1], found[2]) if found else (-1, -1, None)

    def _remember(self, units: Sequence[Unit]) -> None:
        if len(self._tails) > TAILS_KEPT:
            self._tails.clear()
        for unit in units:
            for row in unit.rows if isinstance(unit, Rows) else ():
                if row[RUN_ID] is not None:
                    self._tails[row[RUN_ID]] = (row[RUN_SEQ], row[FENCE], row[RUN_NO])

    def _make_views(self) -> None:
        """Make and fold the views anew when their definition is another than the one they were made by."""
        statements, mark = view_tables()
        found = self._db.execute("SELECT value FROM meta WHERE key = 'views'").fetchone()
        if found is not None and found[0] == mark:
            return
        with self._transaction():
            for view in VIEWS:
                self._db.execute(f"DROP TABLE IF EXISTS {view}")
            for statement in statements:
                self._db.execute(statement)
            self._fold_all()
            self._db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('views', ?)", (mark,))

    def rebuild(self) -> int:
        """Empty every view and fold it again from the events; returns how many events were folded."""
        try:
            with self._transaction():
                for view in VIEWS:
                    self._db.execute(f"DELETE FROM {view}")  # noqa: S608 - the names are this package's own
                return self._fold_all()
        except sqlite3.Error as error:
            raise named_by_consequence(error) from error

    def _fold_all(self) -> int:
        """Fold what was archived, then what is here; raises Corrupt for a segment that is missing or damaged."""
        count = 0
        for row in self._all_rows():
            self._fold([row])
            count += 1
        return count

    def _all_rows(self) -> Iterator[Row]:
        for (file,) in self._db.execute("SELECT file FROM archives ORDER BY last_seq").fetchall():
            yield from map(list, read_segment(self._archive / file).rows)
        yield from self._db.execute("SELECT * FROM events ORDER BY seq")

    def load(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows of another store under their own numbers, all or none; raises BadInput, Retryable."""
        try:
            with self._transaction():
                load(self._db, table, rows)
                self.head = self._db.execute(_HEAD).fetchone()[0]
        except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
            raise named_by_consequence(error) from error

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        head = getattr(self, "head", 0)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self.head = head
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


def _one_statement_does(units: Sequence[Unit]) -> bool:
    """Whether the batch is some steps of runs that change no view: then their INSERT is the whole transaction.

    Other events are looked for in the archive first, and no other process may archive between that look and the INSERT.
    """
    rows = [row for unit in units if isinstance(unit, Rows) and not unit.folds for row in unit.rows]
    return (
        len(rows) <= _MOST_ROWS
        and all(row[RUN_SEQ] for row in rows)
        and all(isinstance(unit, Rows) and not unit.folds for unit in units)
    )


class _OneByOne(Exception):
    """The batch cannot be taken as one; it says nothing about any unit."""


_HEAD = """SELECT max((SELECT coalesce(max(seq), 0) FROM events), (SELECT coalesce(max(last_seq), 0) FROM archives))"""
_BY_ID = "SELECT * FROM events WHERE id = ? AND (run_id IS NULL OR run_seq = 0)"
_LAST_PLACE = """SELECT run_seq, fence, run_no FROM events WHERE run_no = (SELECT seq FROM runs WHERE run_id = ?)
ORDER BY run_seq DESC LIMIT 1"""
_ANY_ARCHIVED = "SELECT 1 FROM archived_ids WHERE id IN (SELECT value FROM json_each(?)) LIMIT 1"
_SEAL = "INSERT INTO seals (last_seq, first_seq, digest, signature, sealed_at) VALUES (?, ?, ?, ?, ?)"
