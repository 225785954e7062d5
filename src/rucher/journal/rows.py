"""A row of `events` in memory: how a draft becomes one, and how one becomes an event. Pure; both databases use it.

A row is a list in the order of the table's columns; its `seq`, `recorded_at` and `run_no` are the writer's to give. The body
is encoded here, before anything is handed to the writer, so that what cannot be stored is refused to its caller alone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rucher.journal.encoding import compact
from rucher.protocol.errors import BadInput
from rucher.protocol.events import CONTROL_PLANE, Draft, Event, RunPosition, Trust
from rucher.protocol.ids import nested

COLUMNS = (
    "seq", "id", "tenant", "source", "type", "principal", "trust", "addressed_to", "trace_id", "parent_id", "occurred_at",
    "recorded_at", "body", "run_id", "run_seq", "fence", "run_no",
)  # fmt: skip
SEQ, ID, SOURCE, TYPE, TRACE, RECORDED_AT, BODY, RUN_ID, RUN_SEQ, FENCE, RUN_NO = 0, 1, 3, 4, 8, 11, 12, 13, 14, 15, 16
SEALED = slice(0, 16)
"""The columns that are the event. `run_no`, the `seq` of its run's first event, only makes its run's key short."""

MAX_BODY = 1 << 20
"""Bytes of an event's body as JSON; what is larger belongs in a file that the event names."""

Row = list[Any]

_KERNEL = "system:kernel"
_OWNER = int(Trust.OWNER)
_encode = compact(sort_keys=False)


@dataclass(frozen=True, slots=True)
class RunHead:
    """What all events of one run share. `parent_id` is the hop, or the parent run's event, that caused it."""

    run_id: str
    tenant: str
    trace_id: str
    parent_id: str | None


@dataclass(slots=True)
class RunWrite:
    """Events that the owner of a run writes together: the first stands at `seq`, all under `fence`.

    `records` are types and JSON bodies (see `encoded`), `at` the moment in microseconds. What is `beside` them (what the run
    emits, the first events of its children) is committed with them or not at all.
    """

    head: RunHead
    seq: int
    fence: int
    at: int
    records: Sequence[tuple[str, str]]
    beside: Sequence["Draft | RunWrite"] = ()


def encoded(body: Mapping[str, Any], what: str = "an event", most: int = MAX_BODY) -> str:
    """A body as JSON text; raises BadInput for one that JSON or UTF-8 cannot hold, or of more than `most` bytes."""
    try:
        text = _encode(body)
        size = len(text) if text.isascii() else len(text.encode())
    except (ValueError, TypeError, RecursionError) as error:
        raise BadInput(f"the body of {what} cannot be stored: {error}") from error
    if size > most:
        raise BadInput(f"the body of {what} has {size:,} bytes; at most {most:,} are taken")
    return text


def as_archived(row: Row, seq: int) -> Row:
    """What stands for an event that was archived when it comes again: as it came, under its old number.

    The name of its trace went with it. Its own id stands for that, as both lead to the trace.
    """
    known = [seq, *row[1:]]
    known[TRACE] = row[ID]
    return known


def row_of(draft: Draft) -> Row:
    """The row of a draft; raises BadInput as `encoded` does."""
    at = draft.run
    place = (at.run_id, at.seq, at.fence) if at else (None, None, None)
    return [
        0, draft.id, draft.tenant, draft.source, draft.type, draft.principal, int(draft.trust), draft.addressed_to,
        draft.trace_id, draft.parent_id, draft.occurred_at, 0, encoded(draft.body, draft.subject), *place, None,
    ]  # fmt: skip


def rows_of(write: RunWrite) -> list[Row]:
    """The rows of all that a run writes, its own first."""
    head, seq = write.head, write.seq
    rows: list[Row] = []
    for kind, body in write.records:
        rows.append(
            [0, nested(head.run_id, seq), head.tenant, CONTROL_PLANE, kind, _KERNEL, _OWNER, None, head.trace_id,
             head.parent_id, write.at, 0, body, head.run_id, seq, write.fence, None]
        )  # fmt: skip
        seq += 1
    for other in write.beside:
        rows += rows_of(other) if isinstance(other, RunWrite) else [row_of(other)]
    return rows


def event_of(row: Sequence[Any]) -> Event:
    """The event that a row, of either database, holds."""
    return Event(
        seq=row[0], id=row[1], tenant=row[2], source=row[3], type=row[4], principal=row[5], trust=Trust(row[6]),
        addressed_to=row[7], trace_id=row[8], parent_id=row[9], occurred_at=row[10], recorded_at=row[11],
        body=json.loads(row[12]), run=None if row[13] is None else RunPosition(row[13], row[14], row[15]),
    )  # fmt: skip
