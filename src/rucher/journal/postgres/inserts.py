"""The one statement by which rows are committed, and the values that it is given. Pure.

It takes this process's row of `journal_writers` (unless its epoch has passed: then it changes nothing), then the head of the
journal, numbers the rows from there, and folds them into the views. By itself it is a whole transaction: one message to the
server and one answer. The function that folds waits for the head, so it sees all that was committed before.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from rucher.journal.rows import COLUMNS, FENCE, RECORDED_AT, RUN_ID, RUN_NO, RUN_SEQ, SEQ, Row
from rucher.protocol.errors import Fenced

SIZES = (0, 1, 2, 4, 8, 16, 24, 32)
"""Rows that a statement of single values takes; more rows are given as arrays, which cost more to begin with."""

_TYPES = {
    "trust": "bigint",
    "occurred_at": "bigint",
    "body": "json",
    "run_seq": "bigint",
    "fence": "bigint",
    "run_no": "bigint",
}
_GIVEN = tuple(name for name in COLUMNS if name not in {"seq", "recorded_at"})
_PLACES = tuple(at for at, name in enumerate(COLUMNS) if name in _GIVEN)
_EMPTY = [None] * len(_GIVEN)
_FIRST = 7
"""The place of the first value of a row among the statement's parameters."""


class Shape(NamedTuple):
    """What a statement takes."""

    size: int | None
    """So many rows; None for any number of them, as arrays."""
    named: bool
    """Whether there may be rows whose id or run is new; without, all are later ones of runs that have begun."""
    table: str
    """The month's partition: a statement that finds it by itself takes longer than the row."""


def shape_for(rows: Sequence[Row], table: str) -> Shape:
    """The statement that takes these rows into this table."""
    size = next((size for size in SIZES if size >= len(rows)), None)
    return Shape(size, not all(row[RUN_SEQ] for row in rows), table)


@cache
def statement(shape: Shape) -> str:
    """The statement: $1 writer, $2 epoch, $3 nonce, $4 number of rows, $5 what `folds_of` says, then what `values` returns."""
    return f"""
WITH mark AS (
    UPDATE journal_writers SET nonce = $3 WHERE writer = $1 AND epoch = $2 RETURNING writer
), head AS (
    UPDATE journal_head SET seq = journal_head.seq + $4, revision = revision + 1 FROM mark
    RETURNING journal_head.seq - $4 AS before, revision
){_inserts(shape)}
SELECT before, revision, rucher_fold(before, $5) FROM head"""  # noqa: S608 - only marks and the names of our own columns


def _inserts(shape: Shape) -> str:
    if shape.size == 0:
        return ""
    columns = ", ".join("$6" if name == "recorded_at" else name for name in COLUMNS)
    plain = ", ".join(name for name in _GIVEN if name != "run_no")
    return f""", fresh AS (
    SELECT before + n AS seq, {plain}, CASE WHEN run_no < 0 THEN before - run_no ELSE run_no END AS run_no
    FROM head, {_source(shape.size)} WHERE n <= $4
){_NAMES if shape.named else ""}, places AS (
    INSERT INTO run_places (run_no, run_seq, fence, seq) SELECT run_no, run_seq, fence, seq FROM fresh WHERE run_id IS NOT NULL
), kept AS (
    INSERT INTO {shape.table} ({", ".join(COLUMNS)}) SELECT {columns} FROM fresh
)"""  # noqa: S608 - as above


_NAMES = """, ids AS (
    INSERT INTO event_ids (id, seq) SELECT id, seq FROM fresh WHERE run_id IS NULL OR run_seq = 0
), numbers AS (
    INSERT INTO run_numbers (run_id, run_no) SELECT run_id, run_no FROM fresh WHERE run_seq = 0
)"""


def _source(size: int | None) -> str:
    names = ", ".join(_GIVEN)
    types = [_TYPES.get(name, "text") for name in _GIVEN]
    if size is None:
        arrays = ", ".join(f"${_FIRST + at}::{kind}[]" for at, kind in enumerate(types))
        return f"unnest({arrays}) WITH ORDINALITY AS given ({names}, n)"
    rows = (
        ", ".join(f"${_FIRST + row * len(types) + at}::{kind}" for at, kind in enumerate(types)) for row in range(size)
    )
    values = ", ".join(f"({row}, {number})" for number, row in enumerate(rows, 1))
    return f"(VALUES {values}) AS given ({names}, n)"


def values(rows: Sequence[Row], shape: Shape, recorded_at: int) -> list[Any]:
    """The moment and the rows' values, for the statement of this shape.

    The number of a run that begins here is not known yet: minus the place of its first row among these rows stands for it.
    """
    size = shape.size
    if size == 0:
        return []
    given = [[row[at] for at in _PLACES] for row in rows]
    if size is None:
        return [recorded_at, *(list(column) for column in zip(*given, strict=True))]
    given += [_EMPTY] * (size - len(rows))
    return [recorded_at, *(value for row in given for value in row)]


def give_places(rows: Sequence[Row], recorded_at: int) -> None:
    """Write into the rows their moment, and for the numbers that they do not have yet: minus their places among these rows."""
    for place, row in enumerate(rows, 1):
        row[SEQ], row[RECORDED_AT] = -place, recorded_at


def give_numbers(rows: Sequence[Row], before: int, recorded_at: int) -> None:
    """Write into the rows what the statement gave them in the table, where `before` was the head."""
    for seq, row in enumerate(rows, before + 1):
        row[SEQ], row[RECORDED_AT] = seq, recorded_at
        if row[RUN_NO] is not None and row[RUN_NO] < 0:
            row[RUN_NO] = before - row[RUN_NO]


Tail = tuple[int, int, int]
"""Of a run: its last place, the fence that this was written under, and the run's number (see `values`)."""
NO_RUN: Tail = (-1, -1, 0)


def runs_of(rows: Sequence[Row], *, begun: bool) -> set[str]:
    """The runs that these rows belong to; with `begun`, only those that had a row before."""
    born = {row[RUN_ID] for row in rows if row[RUN_SEQ] == 0} if begun else set()
    return {row[RUN_ID] for row in rows if row[RUN_ID] is not None} - born


def follow(rows: Sequence[Row], tails: dict[str, Tail]) -> None:
    """Move the tails along these rows and number the runs; raises Fenced when a row does not follow its run's last one.

    A row follows when it stands at the next place, under the fence of the last one or as an acquisition of its own.
    """
    for number, row in enumerate(rows, 1):
        run_id = row[RUN_ID]
        if run_id is None:
            continue
        seq, fence = row[RUN_SEQ], row[FENCE]
        last = tails.get(run_id, NO_RUN)
        if seq != last[0] + 1 or (fence != last[1] and fence != seq):
            raise Fenced(f"run {run_id} was taken over; the write at its place {seq} was refused")
        row[RUN_NO] = -number if seq == 0 else last[2]
        tails[run_id] = (seq, fence, row[RUN_NO])


def ends_of(rows: Sequence[Row]) -> dict[str, Tail]:
    """The last place of each run among numbered rows."""
    return {row[RUN_ID]: (row[RUN_SEQ], row[FENCE], row[RUN_NO]) for row in rows if row[RUN_ID] is not None}
