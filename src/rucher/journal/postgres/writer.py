"""The one writing connection of a process: commits batches of units, and learns what became of those whose answer was lost.

Used by the adapter's committing task alone. A batch is tried as one transaction, which nearly always succeeds; when a unit of
it fails, the batch is taken again in parts, so that only that unit fails.

When the connection goes while a batch is on its way, nothing tells whether it landed. The writer then connects again, for as
long as it takes, and raises the epoch of its row in `journal_writers`: this waits for a transaction that is still open, makes
one that is still on its way come to nothing, and tells by the nonce whether the batch landed. The row goes when the store is
closed; those of the killed are swept, and whoever was swept although it lives begins a row anew.
"""

from collections.abc import Callable, Sequence
from itertools import chain

import asyncpg

from rucher.journal.postgres.batch import DEPOSED, Batch, Outcome, Session, Unregistered
from rucher.journal.postgres.inserts import Tail, ends_of, give_numbers
from rucher.journal.postgres.link import ANSWER_S, DRIVER_ERRORS, Address, is_lost
from rucher.journal.postgres.schema import make_partition, month_of
from rucher.journal.rows import ID, RUN_ID, RUN_SEQ, Row
from rucher.journal.units import Rows, Unit
from rucher.protocol.backoff import waits
from rucher.protocol.errors import BadInput, Corrupt, Retryable, Uncertain
from rucher.protocol.ports import Clock

TAILS_KEPT = 4096
"""Runs whose last place is remembered; the database tells it of all others."""
AWAY_S = 5.0
"""How long units that were not sent yet wait for a server that is away."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 1.0
_REMEMBERED = 1000
"""Writers whose row is kept whether they are connected or not. No clock decides it: clocks jump."""


class PostgresWriter:
    """Used by one task at a time. `head` and `revision` are the newest that this process knows of."""

    def __init__(self, address: Address, clock: Clock, on_away: Callable[[Retryable], None]) -> None:
        """`on_away` is called again and again while a batch waits for a server that is away for longer than AWAY_S."""
        self._address = address
        self._clock = clock
        self._on_away = on_away
        self._session: Session | None = None
        self._server_pid = 0
        self._away_since: float | None = None
        self._tails: dict[str, Tail] = {}
        self._months: set[tuple[int, int]] = set()
        self._nonce = 0
        self._landed_nonce = 0
        """The last batch that landed, as the server told it; minus that of one of which it has forgotten whether it did."""
        self._epoch = 0
        self.writer = 0
        self.head = self.revision = 0
        self.others = False
        """Whether another process may have committed something since this was last set to False."""

    async def open(self, db: asyncpg.Connection) -> None:
        """Register as a writer, and write by this connection, to a database whose schema is as it should be."""
        self.writer = await db.fetchval(_REGISTER)
        await db.execute(f"SET application_name = '{self._name}'")
        await db.execute(_SWEEP, self.writer - _REMEMBERED)
        self.head, self.revision = await db.fetchrow("SELECT seq, revision FROM journal_head")
        self._server_pid = db.get_server_pid()
        self._session = Session(db, self._address, self.writer, self._epoch)

    @property
    def _name(self) -> str:
        return f"rucher writer {self.writer}"

    async def close(self) -> None:
        """Take back the registration and let go of the connection; a server that is away keeps the row until it is swept."""
        if self._session is None or self._session.db.is_closed():
            return
        db = self._session.db
        try:
            await _roll_back(db)
            await db.execute(_LEAVE, self.writer, timeout=ANSWER_S)
            await db.close(timeout=ANSWER_S)
        except DRIVER_ERRORS:
            db.terminate()

    async def apply(self, units: Sequence[Unit]) -> Sequence[Outcome | Exception]:
        """Commit the units and return what became of each; of a unit that is an error nothing is kept."""
        try:
            return await self._apply(units)
        except Exception as error:  # noqa: BLE001 - each writer learns it; the task that commits must outlive any batch
            return [self._address.named_by_consequence(error)] * len(units)

    async def _apply(self, units: Sequence[Unit]) -> Sequence[Outcome | Exception]:
        in_parts = False
        while True:
            session = await self._connected(patient=False)
            self._nonce += 1
            batch = Batch(session, units, self._nonce, self._clock.now(), self._tails, in_parts)
            try:
                await self._make_room(session.db, batch.recorded_at)
                await batch.commit()
            except Unregistered:
                session.db.terminate()
            except Exception as error:
                self._tails.clear()
                self._months.clear()
                if is_lost(error, session.db):
                    if await self._landed(batch):
                        return self._done(batch)
                    continue
                await _roll_back(session.db)
                if in_parts:
                    raise
                in_parts = True
            else:
                return self._done(batch)

    def _done(self, batch: Batch) -> Sequence[Outcome | Exception]:
        self.others = self.others or batch.revision != self.revision + 1
        self.head, self.revision = max(self.head, batch.head), max(self.revision, batch.revision)
        if len(self._tails) > TAILS_KEPT:
            self._tails.clear()
        self._tails.update(batch.ends)
        return batch.outcomes

    async def _make_room(self, db: asyncpg.Connection, at_us: int) -> None:
        month = month_of(at_us)
        if month not in self._months:
            await make_partition(db, month)
            self._months.add(month)

    async def _landed(self, batch: Batch) -> bool:
        """Whether the batch whose answer was lost is committed; then it is completed as if the answer had come."""
        batch.session.db.terminate()
        await self._connected(patient=True)
        if self._landed_nonce == -batch.nonce:
            raise Uncertain(
                f"{self._address} forgot this process while it was away for long, and with it whether this was written"
            )
        if self._landed_nonce != batch.nonce:
            return False
        if not batch.outcomes:
            rows = list(chain.from_iterable(unit.rows for unit in batch.units if isinstance(unit, Rows)))
            before = await self._seq_of(rows[0]) - 1
            give_numbers(rows, before, batch.recorded_at)
            batch.outcomes += [{}] * len(batch.units)
            batch.ends.update(ends_of(rows))
            batch.head = before + len(rows)
        return True

    async def _seq_of(self, row: Row) -> int:
        """The number of a row that is surely there."""
        while True:
            db = (await self._connected(patient=True)).db
            try:
                if row[RUN_ID] is None or row[RUN_SEQ] == 0:
                    return int(await db.fetchval("SELECT seq FROM event_ids WHERE id = $1", row[ID], timeout=ANSWER_S))
                return int(await db.fetchval(_SEQ_AT, row[RUN_ID], row[RUN_SEQ], timeout=ANSWER_S))
            except Exception as error:
                if not is_lost(error, db):
                    raise
                db.terminate()

    async def _connected(self, *, patient: bool) -> Session:
        """The connection, made anew when it is gone; raises Retryable when the server stays away, unless `patient`."""
        if self._session is not None and not self._session.db.is_closed():
            return self._session
        for wait in waits(_FIRST_WAIT_S, _LONGEST_WAIT_S):
            try:
                self._session = await self._connect()
            except (Retryable, BadInput) as error:
                now = self._clock.monotonic()
                self._away_since = now if self._away_since is None else self._away_since
                if now - self._away_since >= AWAY_S:
                    told = Retryable(f"{error}; nothing was written")
                    self._on_away(told)
                    if not patient:
                        raise told from error
            else:
                self._away_since = None
                return self._session
            await self._clock.sleep(wait)
        raise AssertionError("waits never ends")

    async def _connect(self) -> Session:
        db = await self._address.write(self._name)
        try:
            await db.execute(_END_FORMER, self._server_pid, self._name, timeout=ANSWER_S)
            told = await db.fetchrow(_RAISE_EPOCH, self.writer, timeout=ANSWER_S)
            if told is None:
                given = (self.writer, self._epoch + 1, -self._nonce, self.writer + _REMEMBERED)
                told = await db.fetchrow(_REGISTER_AGAIN, *given, timeout=ANSWER_S)
        except DRIVER_ERRORS as error:
            db.terminate()
            raise self._address.away(error) from error
        except BaseException:
            db.terminate()
            raise
        if told is not None and told["epoch"] == DEPOSED:
            db.terminate()
            raise Corrupt(f"another daemon has taken {self._address} over; this one can write nothing any more")
        if told is None or told["head"] < self.head:
            db.terminate()
            raise Corrupt(
                f"{self._address} has lost events that it had confirmed, or is another database; "
                "put the right one in its place and restart Rucher"
            )
        self._server_pid = db.get_server_pid()
        self._landed_nonce, self._epoch = told["nonce"], told["epoch"]
        return Session(db, self._address, self.writer, self._epoch)


async def _roll_back(db: asyncpg.Connection) -> None:
    """End the transaction that failed, if it is open; a connection that cannot even do this is given up."""
    if db.is_in_transaction():
        try:
            await db.execute("ROLLBACK", timeout=ANSWER_S)
        except DRIVER_ERRORS:
            db.terminate()


_REGISTER = "INSERT INTO journal_writers (epoch, nonce) VALUES (0, 0) RETURNING writer"
_LEAVE = "DELETE FROM journal_writers WHERE writer = $1"
# The epoch is compared once more when the row is locked: who connected again since it was looked for keeps its row.
_SWEEP = """WITH gone AS MATERIALIZED (
    SELECT writer, epoch FROM journal_writers WHERE writer <= $1 AND NOT EXISTS (
        SELECT 1 FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'rucher writer ' || journal_writers.writer)
)
DELETE FROM journal_writers USING gone WHERE journal_writers.writer = gone.writer AND journal_writers.epoch = gone.epoch"""
# Who was swept can only be one after whom so many others registered; else this is another database.
_REGISTER_AGAIN = """INSERT INTO journal_writers (writer, epoch, nonce) OVERRIDING SYSTEM VALUE
SELECT $1, $2, $3 FROM journal_writers_writer_seq WHERE last_value >= $4
RETURNING epoch, nonce, (SELECT seq FROM journal_head) AS head"""
_RAISE_EPOCH = f"""UPDATE journal_writers SET epoch = CASE epoch WHEN {DEPOSED} THEN epoch ELSE epoch + 1 END WHERE writer = $1
RETURNING epoch, nonce, (SELECT seq FROM journal_head) AS head"""  # noqa: S608 - a constant
_END_FORMER = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = $1 AND application_name = $2 AND state LIKE 'idle in transaction%'"""
_SEQ_AT = """SELECT seq FROM run_places JOIN run_numbers USING (run_no)
WHERE run_numbers.run_id = $1 AND run_places.run_seq = $2"""
