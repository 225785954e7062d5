"""Copies a whole store into an empty one, SQLite or PostgreSQL, and proves that the copy is the same.

Called by `rucher store copy`, while nothing else uses either of them. The source is only read. A copy that was interrupted
says so in the target, which no daemon takes until it is finished; the next call goes on where it stopped.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from nacl.signing import VerifyKey

from rucher.journal.rows import COLUMNS, SEQ
from rucher.journal.seals import verify
from rucher.journal.store import UNFINISHED, JournalStore, StoreReader
from rucher.journal.units import DAEMON
from rucher.protocol.errors import BadInput

BATCH = 5000
Progress = Callable[[int, int, str], None]
"""Told how many are done, how many there are, and what is being done."""

_OWN = frozenset({"schema", "views", "wal_grown", DAEMON, UNFINISHED})
"""Keys of `meta` that are about one database rather than about the journal in it."""
_WHOLE = {
    "event.count": "the events",
    "event.head": "the head",
    "archives.all": "the archives",
    "seals.all": "the seals",
}
_BEFORE: Mapping[str, tuple[Any, ...]] = {
    "cursors": ("",), "hops": ("",), "deliveries": ("", -1), "sessions": ("",), "runs": ("",), "waits": ("", "", -1),
    "signals": ("",), "budgets": ("", ""), "steers": (0,), "artifacts": ("",), "archived_ids": ("",),
}  # fmt: skip
"""Tables that are read in pages, with what stands before their first key; the columns of its key are a table's first."""


async def copy(source: StoreReader, target: JournalStore, instance: str, on_progress: Progress) -> None:
    """Bring everything but views and who works into `target`; raises BadInput when it is not empty.

    It stays marked as unfinished; see `differences` and `finish`. `instance` is whose store the source is.
    """
    await _begin(source, target, instance)
    await target.load("archives", await _table(source, "archives.all"))
    async for page in _pages(source, "archived_ids"):
        await target.load("archived_ids", page)
    head = await source.head_seq()
    done = await target.head_seq()
    while rows := await source.stored("event.after", done, BATCH):
        try:
            await target.load("events", rows)
        except BadInput as error:
            raise BadInput(f"the events from {rows[0][SEQ]} to {rows[-1][SEQ]} cannot be copied: {error}") from error
        done = rows[-1][SEQ]
        on_progress(done, head, "events copied")
    await target.load("seals", await _table(source, "seals.all"))


async def differences(
    source: StoreReader, target: JournalStore, public: VerifyKey, seal_head: Path, archive: Path, on_progress: Progress
) -> list[str]:
    """Fold the copy's views, and say what is not the same in it, one line each; nothing when it is proven.

    Compared are counts, every event, the seals as they hold there, and every row of every view.
    """
    found = [different async for different in _different_tables(source, target)]
    if different := await _different_event(source, target, on_progress):
        found.append(different)
    proven = await verify(target, public, seal_head, archive)
    if proven.fault:
        found.append(f"the seals do not hold in the copy: {proven.fault}")
    if found:
        return found
    head = await source.head_seq()
    on_progress(0, head, "events folded into views")
    await target.rebuild()
    on_progress(head, head, "events folded into views")
    views = [await _different_row(source, target, table) for table in _BEFORE]
    return [different for different in views if different]


async def finish(source: StoreReader, target: JournalStore, instance: str) -> None:
    """Let the copy be used from now on."""
    meta = [list(row) for row in await source.rows("meta.all") if row["key"] not in _OWN]
    await target.load("meta", [*meta, ["instance", instance], [UNFINISHED, ""]])


async def _begin(source: StoreReader, target: JournalStore, instance: str) -> None:
    begun, head = await target.meta(UNFINISHED), await target.head_seq()
    if not begun and (head or await target.meta("instance")):
        raise BadInput(f"the store to copy into is in use: it holds {head} events; give an empty one")
    if begun and (begun != instance or await _rows_at(source, head) != await _rows_at(target, head)):
        raise BadInput("the store to copy into holds an unfinished copy of another store; give an empty one")
    await target.load("meta", [[UNFINISHED, instance]])


async def _rows_at(store: StoreReader, seq: int) -> list[list[Any]]:
    rows = await store.stored("event.after", seq - 1, 1)
    return [row for row in rows if row[SEQ] == seq]


async def _different_tables(source: StoreReader, target: StoreReader) -> AsyncIterator[str]:
    for statement, what in _WHOLE.items():
        ours, theirs = await _table(source, statement), await _table(target, statement)
        if ours != theirs:
            yield f"{what}: {_told(ours)}, and in the copy {_told(theirs)}"


async def _different_event(source: StoreReader, target: StoreReader, on_progress: Progress) -> str | None:
    head, after = await source.head_seq(), 0
    while ours := await source.stored("event.after", after, BATCH):
        theirs = await target.stored("event.after", after, BATCH)
        for row, other in zip_longest(ours, theirs) if ours != theirs else ():
            if row is None:
                return f"event {other[SEQ]} is in the copy alone"
            if row != other:
                return _difference(f"event {row[SEQ]}", COLUMNS, row, other)
        after = ours[-1][SEQ]
        on_progress(after, head, "events compared")
    return None


async def _different_row(source: StoreReader, target: StoreReader, table: str) -> str | None:
    theirs = _singly(target, table)
    async for columns, row in _singly(source, table):
        _, other = await anext(theirs, (columns, None))
        if row != other:
            keys = len(_BEFORE[table])
            same_key = other is not None and row[:keys] == other[:keys]
            return _difference(f"{table} {'/'.join(map(str, row[:keys]))}", columns, row, other if same_key else None)
    return f"{table}: the copy has more rows" if await anext(theirs, None) else None


def _difference(what: str, columns: Sequence[str], row: Sequence[Any], other: Sequence[Any] | None) -> str:
    if other is None:
        return f"{what} is missing in the copy"
    at = next(number for number, pair in enumerate(zip(row, other, strict=True)) if pair[0] != pair[1])
    return f"{what} differs in the copy: its {columns[at]} is {other[at]!r} instead of {row[at]!r}"


async def _singly(store: StoreReader, table: str) -> AsyncIterator[tuple[Sequence[str], list[Any]]]:
    """The rows of a table with the names of its columns. PostgreSQL's texts hold no NUL, for which its views have U+FFFD."""
    after = _BEFORE[table]
    while rows := await store.rows(f"page.{table}", *after, BATCH):
        columns = tuple(rows[0].keys())
        for row in rows:
            values = [row[name] for name in columns]
            yield columns, [value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in values]
        after = tuple(rows[-1][name] for name in columns[: len(after)])


async def _pages(store: StoreReader, table: str) -> AsyncIterator[list[list[Any]]]:
    page: list[list[Any]] = []
    async for _, row in _singly(store, table):
        page.append(row)
        if len(page) == BATCH:
            yield page
            page = []
    if page:
        yield page


async def _table(store: StoreReader, statement: str) -> list[list[Any]]:
    return [list(row) for row in await store.rows(statement)]


def _told(rows: Sequence[Sequence[Any]]) -> str:
    return f"{len(rows)} rows, the last {', '.join(map(str, rows[-1]))}" if rows else "no rows"
