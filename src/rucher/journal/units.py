"""What writers hand to the committer: units of work, each committed as a whole or not at all.

Units that are committed together stand in one order on either database, whatever came of the others: first all rows, as they
were handed in, then the seals, archives and commands, which find what those rows made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rucher.journal.rows import Row
from rucher.journal.views import folds


@dataclass(slots=True)
class Rows:
    """Events to append, in order.

    An event that belongs to no run and whose id is there already is left as it was. A run's event whose place is taken, or
    whose fence is not that of the row before it, refuses the unit with Fenced.
    """

    rows: list[Row]
    folds: bool = True
    """Whether any of them may change a view."""


@dataclass(frozen=True, slots=True)
class Seal:
    """A signed digest over the events from `first_seq` to `last_seq`, chained to the seal before it."""

    first_seq: int
    last_seq: int
    digest: str
    signature: str
    sealed_at: int


@dataclass(frozen=True, slots=True)
class Archive:
    """Events, cut off at a seal, that lie in a segment by now: they leave the store, and their ids are kept.

    `file` is the segment's name and `digest` its SHA-256 in hex. Refused with BadInput when they do not follow what was
    archived before, or when no seal ends with them.
    """

    first_seq: int
    last_seq: int
    file: str
    digest: str
    archived_at: int  # noqa: V107 - adapters read the fields all together


@dataclass(frozen=True, slots=True)
class Command:
    """A named statement of commands.sql: who works, who holds which run. No events. A list of ids is one parameter, as JSON."""

    statement: str
    parameters: Mapping[str, Any]


DAEMON = "daemon_writer"
"""The key in `meta` under which a database that may have many writers says which of them is the daemon's."""

Unit = Rows | Seal | Archive | Command

Earlier = Mapping[int, Row]
"""Of a unit's rows, those that were there before, by their place in the unit, as they are stored."""
Answer = Sequence[Mapping[str, Any]]
"""The rows that a command's statement returned."""


def rows_first(units: Sequence[Unit]) -> list[int]:
    """The places of a batch's units, in the order in which they take effect."""
    return sorted(range(len(units)), key=lambda at: not isinstance(units[at], Rows))


def news(units: Sequence[Unit], outcomes: Sequence[Earlier | Answer | Exception]) -> tuple[list[Row], bool]:
    """Of a batch, the rows that it made, in order; and whether they change a view, or a command was obeyed."""
    done = [
        (unit, outcome) for unit, outcome in zip(units, outcomes, strict=True) if not isinstance(outcome, Exception)
    ]
    rows = [
        row
        for unit, earlier in done
        if isinstance(unit, Rows)
        for at, row in enumerate(unit.rows)
        if not earlier or at not in earlier
    ]
    obeyed = any(isinstance(unit, Command) for unit, _ in done)
    return rows, obeyed or (any(isinstance(unit, Rows) and unit.folds for unit, _ in done) and folds(rows))


class Listener(Protocol):
    """What a store does when its journal grows. Called on the event loop, in commit order, before any writer is answered."""

    def committed(self, rows: Sequence[Row], *, folded: bool) -> None:
        """These new rows are committed, numbered in order; `folded` when they changed a view, or a command was obeyed."""
        ...

    def rung(self) -> None:
        """Another process committed something."""
        ...


class Adapter(Protocol):
    """A database that holds a journal: SQLite or PostgreSQL. One writer with group commit, any number of readers."""

    head: int
    """The highest committed seq when it was opened."""

    def listen(self, listener: Listener) -> None:
        """Tell `listener` of every commit from now on."""
        ...

    async def commit(self, unit: Unit) -> Any:
        """Commit the unit, together with whatever else waits; returns an Earlier for Rows, an Answer for a Command.

        Raises Fenced, BadInput, Exhausted or Corrupt for this unit alone, with nothing of it kept, Retryable when the
        database cannot write just now and surely did not, and Uncertain when nothing tells any more whether it did.
        """
        ...

    async def rows(self, statement: str, parameters: Sequence[Any]) -> list[Mapping[str, Any]]:
        """The rows of a named statement of queries.sql, addressed by column name or place."""
        ...

    async def changed(self) -> bool:
        """Whether anything may have been committed since this was last asked: cheap, and never wrongly False."""
        ...

    async def rebuild(self) -> int:
        """Empty every view and fold it again from the events; returns how many events were folded."""
        ...

    async def load(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows as they stand in another store, all or none; nothing else may be written meanwhile.

        `table` is events, seals, archives, archived_ids or meta, whose rows replace those of the same key. No view is changed.
        """
        ...

    async def be_sole(self) -> None:
        """Become the one daemon of this store, where it is shared; raises BadInput naming the process that is it already."""
        ...

    async def stay_sole(self) -> None:
        """Hold on to that until cancelled; raises Corrupt once another has it. Returns where a store cannot be shared."""
        ...

    async def close(self) -> None:
        """Commit what was handed in, then let go of the database."""
        ...
