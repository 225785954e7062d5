"""A batch of units on its way into the database, over one connection: what is done with it, not what becomes of it.

Used by the writer, which knows what to do when it fails.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from operator import itemgetter

import asyncpg

from rucher.journal.postgres.folds import arguments, folds_of, statements
from rucher.journal.postgres.inserts import (
    Shape,
    Tail,
    ends_of,
    follow,
    give_numbers,
    give_places,
    runs_of,
    shape_for,
    statement,
    values,
)
from rucher.journal.postgres.link import ANSWER_S, Address, is_lost, is_the_servers
from rucher.journal.postgres.schema import month_of, partition_of
from rucher.journal.rows import ID, RUN_ID, Row, as_archived
from rucher.journal.units import Answer, Archive, Command, Earlier, Rows, Seal, Unit, rows_first
from rucher.protocol.errors import BadInput, Corrupt

Outcome = Earlier | Answer
DEPOSED = -1
"""The epoch of a writer that may never write again."""


class Unregistered(Exception):
    """The writer's row in `journal_writers` is gone or of a later epoch; what was sent changed nothing."""


@dataclass(slots=True)
class Session:
    """One connection that writes, and the name under which it does."""

    db: asyncpg.Connection
    address: Address
    writer: int
    epoch: int
    prepared: dict[Shape, asyncpg.prepared_stmt.PreparedStatement] = field(default_factory=dict)


@dataclass(slots=True)
class Batch:
    """Units to be committed together. `tails` is what is known of the runs' last places: read, and left as it is.

    `in_parts`: commit what can be committed, and keep the error of each unit that cannot; without, all or nothing.
    """

    session: Session
    units: Sequence[Unit]
    nonce: int
    recorded_at: int
    tails: dict[str, Tail]
    in_parts: bool = False
    revision: int = 0
    """The journal's revision that the transaction made first; 0 until the server has told it."""
    head: int = 0
    outcomes: list[Outcome | Exception] = field(default_factory=list)
    ends: dict[str, Tail] = field(default_factory=dict)
    """Where the runs stand once the batch is committed."""

    @property
    def is_plain(self) -> bool:
        """Whether the batch is rows and nothing else, which one statement commits, with all that they change in the views."""
        return all(isinstance(unit, Rows) for unit in self.units)

    async def commit(self) -> None:
        """Commit the units; when this raises nothing is kept."""
        if self.in_parts:
            await self._commit_in_parts()
            return
        if self.is_plain:
            await self._take(self.units)
            return
        await self.session.db.execute("BEGIN")
        await self._take(self.units)
        await self.session.db.execute("COMMIT", timeout=ANSWER_S)

    async def _commit_in_parts(self) -> None:
        """Take the units in halves, down to each one at fault.

        The head is taken first: from then on nobody else commits, and what is read stays true.
        """
        order = rows_first(self.units)
        await self.session.db.execute("BEGIN")
        await self._insert([])
        await self._take_part([self.units[at] for at in order])
        self.outcomes = [outcome for _, outcome in sorted(zip(order, self.outcomes, strict=True), key=itemgetter(0))]
        await self.session.db.execute("COMMIT", timeout=ANSWER_S)

    async def _take_part(self, units: Sequence[Unit]) -> None:
        db = self.session.db
        await db.execute("SAVEPOINT part")
        try:
            match units:
                case [Rows(rows=rows)]:
                    await self._take_alone(rows)
                case _:
                    await self._take(units)
        except Exception as error:
            if is_lost(error, db) or is_the_servers(error):
                raise
            await db.execute("ROLLBACK TO part")
            if len(units) == 1:
                self.outcomes.append(self.session.address.named_by_consequence(error))
                return
        else:
            await db.execute("RELEASE part")
            return
        half = len(units) // 2
        await self._take_part(units[:half])
        await self._take_part(units[half:])

    async def _take(self, units: Sequence[Unit]) -> None:
        rows = list(chain.from_iterable(unit.rows for unit in units if isinstance(unit, Rows)))
        await self._follow(rows)
        await self._insert(rows)
        self.outcomes += [{} if isinstance(unit, Rows) else await self._obey(unit) for unit in units]
        self.ends.update(ends_of(rows))

    async def _take_alone(self, rows: Sequence[Row]) -> None:
        """Take one unit, leaving out the events that are there already."""
        known = await self._known([row for row in rows if row[RUN_ID] is None])
        earlier: dict[int, Row] = {}
        fresh: list[Row] = []
        for number, row in enumerate(rows):
            if row[RUN_ID] is None and row[ID] in known:
                earlier[number] = known[row[ID]]
                continue
            fresh.append(row)
            known[row[ID]] = row
        await self._follow(fresh)
        await self._insert(fresh)
        self.outcomes.append(earlier)
        self.ends.update(ends_of(fresh))

    async def _known(self, rows: Sequence[Row]) -> dict[str, Row]:
        """Of these rows, those whose event is there, by id: as it was stored, or if it was archived under its old number."""
        db = self.session.db
        numbers = dict(await db.fetch("SELECT id, seq FROM event_ids WHERE id = ANY($1)", [row[ID] for row in rows]))
        if not numbers:
            return {}
        archived = {row[ID]: as_archived(row, numbers[row[ID]]) for row in rows if row[ID] in numbers}
        stored = await db.fetch(_BY_IDS, list(numbers))
        return archived | {row[ID]: list(row) for row in stored}

    async def _follow(self, rows: Sequence[Row]) -> None:
        """Check that each run's rows follow its last one, which is read where it is not known, and number the runs.

        In parts even a run that begins here is looked for: what others did meanwhile may be why the whole batch failed.
        """
        known = self.ends if self.in_parts else self.tails
        runs = runs_of(rows, begun=not self.in_parts)
        tails = {run_id: known[run_id] for run_id in runs if run_id in known}
        if unknown := list(runs - tails.keys()):
            for run_id, *tail in await self.session.db.fetch(_LAST_PLACES, unknown):
                tails[run_id] = (tail[0], tail[1], tail[2])
        follow(rows, tails)

    async def _insert(self, rows: Sequence[Row]) -> None:
        session = self.session
        give_places(rows, self.recorded_at)
        given = [session.writer, session.epoch, self.nonce, len(rows), folds_of(rows)]
        shape = shape_for(rows, partition_of(month_of(self.recorded_at)))
        prepared = session.prepared.get(shape)
        if prepared is None:
            prepared = session.prepared[shape] = await session.db.prepare(statement(shape))
        told = await prepared.fetchrow(*given, *values(rows, shape, self.recorded_at), timeout=ANSWER_S)
        if told is None:
            raise Unregistered
        before, revision, _ = told
        give_numbers(rows, before, self.recorded_at)
        self.head = before + len(rows)
        self.revision = self.revision or revision

    async def _obey(self, unit: Seal | Archive | Command) -> Outcome:
        db = self.session.db
        match unit:
            case Seal():
                await db.execute(_SEAL, unit.last_seq, unit.first_seq, unit.digest, unit.signature, unit.sealed_at)
            case Archive():
                await self._let_go(unit)
            case Command(statement, parameters):
                sql, names = statements("commands.sql")[statement]
                return list(await db.fetch(sql, *arguments(names, parameters)))
        return ()

    async def _let_go(self, unit: Archive) -> None:
        """Note the archive and delete its events and the seals over them but the last. The ids stay where they are."""
        given = asdict(unit)

        async def do(name: str) -> int:
            sql, names = statements("archive.sql")[name]
            return int((await self.session.db.execute(sql, *arguments(names, given))).split()[-1])

        if not await do("archive.follows"):
            raise BadInput(f"the events of {unit.file} are not the next to be archived; nothing was done")
        await do("archive.note")
        if await do("archive.events") != unit.last_seq - unit.first_seq + 1:
            raise Corrupt(f"the journal does not hold the events of {unit.file}; see `rucher journal verify`")
        await do("archive.seals")


_BY_IDS = "SELECT * FROM events WHERE id = ANY($1) AND (run_id IS NULL OR run_seq = 0)"
# No row follows the last place of a run that was archived as a whole.
_LAST_PLACES = """SELECT run_id, coalesce(last.run_seq, -2), coalesce(last.fence, -2), run_no
FROM run_numbers LEFT JOIN LATERAL (
    SELECT run_seq, fence FROM run_places WHERE run_places.run_no = run_numbers.run_no ORDER BY run_seq DESC LIMIT 1
) AS last ON TRUE WHERE run_id = ANY($1)"""
_SEAL = "INSERT INTO seals (last_seq, first_seq, digest, signature, sealed_at) VALUES ($1, $2, $3, $4, $5)"
