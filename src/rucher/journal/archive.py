"""Retention: whole sealed ranges of old events are moved from the store into segments, where they can still be verified.

Called by the daemon once a day, and by `rucher journal archive` whether a daemon runs or not. A segment is written, made
durable and read back before the store lets go of its events, in one transaction that notes the segment: a kill at any point
loses and doubles nothing, and the next call goes on. What unfinished work may still read is never archived.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nacl.signing import VerifyKey

from rucher.journal.artifacts import sync_folder
from rucher.journal.rows import SEQ, Row
from rucher.journal.seals import Chain
from rucher.journal.segments import Header, write_segment
from rucher.journal.store import JournalStore, StoreReader
from rucher.journal.units import Archive, Seal
from rucher.protocol.errors import Corrupt, Retryable
from rucher.protocol.ports import Clock

SEGMENT_EVENTS = 5_000
"""A segment is cut at the first seal after so many events. The store's other writers wait while it lets go of them."""
SEALS_AT_ONCE = 500
ROWS_AT_ONCE = 500

HELD = {
    "age": "they are not old enough",
    "run": "a run that has not ended may need them",
    "hop": "a message that is still on its way may need them",
    "held": "a message of an unknown sender waits for its owner's word (`rucher users held`)",
    "note": "a session has not read what it was told beside its messages",
    "cursor": "the router has not read them yet",
    "seal": "the newest seal is kept with its events",
}
"""Why what follows the last event that may be archived stays."""

Progress = Callable[[int, int], None]
"""Told how many events were archived, and how many there are to archive."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The events from `first_seq` to `last_seq` may be archived, none when there is no such range; `held` says why no more."""

    first_seq: int
    last_seq: int
    held: str

    @property
    def events(self) -> int:
        """How many events that is."""
        return self.last_seq - self.first_seq + 1


async def plan(store: StoreReader, before_us: int) -> Plan:
    """What of the events that were sealed before a moment may leave the store."""
    first = await _archived_to(store) + 1
    last = first - 1
    while True:
        seals, held = await _cut(store, last, before_us)
        if not seals:
            return Plan(first, last, held)
        last = seals[-1].last_seq


async def archive(
    store: JournalStore, folder: Path, public: VerifyKey, clock: Clock, before_us: int, on_progress: Progress
) -> Plan:
    """Move the events that were sealed before a moment into segments in `folder`; returns which.

    Raises Corrupt when the journal is not as it was sealed, and Retryable when the disk or the store cannot be used or
    somebody else archives just now; what was archived until then is.
    """
    with _alone(folder):
        planned = await plan(store, before_us)
        last = planned.first_seq - 1
        while last < planned.last_seq:
            seals, _ = await _cut(store, last, before_us)
            if not seals:
                break
            await _move(store, folder, public, clock, seals)
            last = seals[-1].last_seq
            on_progress(last - planned.first_seq + 1, planned.events)
        return Plan(planned.first_seq, last, planned.held)


async def _move(store: JournalStore, folder: Path, public: VerifyKey, clock: Clock, seals: Sequence[Seal]) -> None:
    first, last = seals[0].first_seq, seals[-1].last_seq
    header = Header(first, last, bytes(public).hex())
    rows = _rows(store, asyncio.get_running_loop(), first, last)
    segment = await asyncio.to_thread(write_segment, folder, header, rows, seals)
    unit = Archive(first, last, segment.path.name, segment.sha256, clock.now())
    chain = await _chain_up_to(store, public, first - 1)
    if fault := await asyncio.to_thread(chain.fault_of_segment, unit, folder):
        raise Corrupt(f"nothing was archived from event {first} on: {fault}; see `rucher journal verify`")
    await store.let_go(unit)


def _rows(store: StoreReader, loop: asyncio.AbstractEventLoop, first: int, last: int) -> Iterator[Row]:
    """The rows of a range, for the thread that writes them; only some of them are in memory at once."""
    after = first - 1
    while after < last:
        reading = store.stored("event.after", after, min(ROWS_AT_ONCE, last - after))
        rows = asyncio.run_coroutine_threadsafe(reading, loop).result()
        if not rows:
            return
        yield from rows
        after = rows[-1][SEQ]


async def _cut(store: StoreReader, after: int, before_us: int) -> tuple[list[Seal], str]:
    """The seals of the next segment, none when nothing more may be archived, and what holds the event behind them."""
    needed = [(row["seq"], row["reason"]) for row in await store.rows("archive.needed") if row["seq"] is not None]
    limit, held = min(needed)
    taken: list[Seal] = []
    reached = after
    while reached - after < SEGMENT_EVENTS:
        rows = await store.rows("seals.after", reached, SEALS_AT_ONCE)
        for row in rows:
            seal = Seal(**dict(row))
            if seal.last_seq >= limit:
                return taken, held
            if seal.sealed_at >= before_us:
                return taken, "age"
            taken.append(seal)
            reached = seal.last_seq
            if reached - after >= SEGMENT_EVENTS:
                break
        if not rows:
            break
    return taken, held


async def _archived_to(store: StoreReader) -> int:
    rows = await store.rows("archives.all")
    return int(rows[-1]["last_seq"]) if rows else 0


async def _chain_up_to(store: StoreReader, public: VerifyKey, last_seq: int) -> Chain:
    """The chain of seals up to the end of the archive, which keeps its last seal in the store."""
    rows = await store.rows("seals.after", last_seq - 1, 1) if last_seq else []
    return Chain(public, last_seq, rows[0]["digest"] if rows else "")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Make the folder, and keep every other archiving out of it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(folder.parent)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Retryable(
            f"the archive {folder} cannot be used just now ({error.strerror or error}); "
            "free disk space or make the folder writable, then try again"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Retryable(f"another process archives into {folder} just now; nothing was done") from error
        yield
    finally:
        os.close(descriptor)
