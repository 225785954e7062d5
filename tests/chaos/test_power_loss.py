"""The journal's writer, and its way of writing to SQLite, on a disk that fails at every operation, one after another.

What was acknowledged is there after a power cut, and no unit is there by half. The same work with `synchronous = NORMAL` loses
acknowledged units, which proves that these tests can fail.
"""

import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rucher.journal.rows import row_of
from rucher.journal.sqlite import files
from rucher.journal.sqlite.writer import SqliteWriter
from rucher.journal.units import Archive, Rows, Seal
from rucher.protocol.errors import Retryable
from rucher.protocol.events import control_event, event_id
from tests.fakes.clock import ManualClock
from tests.fakes.drafts import NOW, TRACE, run_event, said
from tests.fakes.power import DROP_ALL, KEEP_ALL, SECTOR, Disk, Fault

UNITS = 14
PARTS = 3
CHECKPOINT_PAGES = 12
GROWN = 48 << 10
SEEDS = (DROP_ALL, KEEP_ALL, 2, 3, 4, 5)
PAYLOAD = "x" * 700


@dataclass(slots=True)
class Told:
    """What the writer was told of its units."""

    acknowledged: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)


def opened(disk: Disk, path: Path, synchronous: str) -> sqlite3.Connection:
    """A connection as the journal makes it, with its tables, and its write-ahead log grown beforehand."""
    db = disk.connect(path, "rwc")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {synchronous}")
    db.execute("PRAGMA wal_autocheckpoint = 1500")
    db.executescript(
        "BEGIN IMMEDIATE;"
        "CREATE TABLE IF NOT EXISTS units (unit INTEGER, part INTEGER, payload TEXT, PRIMARY KEY (unit, part)) STRICT;"
        "CREATE INDEX IF NOT EXISTS by_part ON units (part, unit);"
        "COMMIT;"
    )
    log = path.with_name(path.name + "-wal")
    with log.open("ab") as file:
        file.write(bytes(max(0, GROWN - log.stat().st_size)))
    return db


def commit(db: sqlite3.Connection, unit: int) -> None:
    """Commit one unit, or raise with nothing of it left in the connection."""
    db.execute("BEGIN IMMEDIATE")
    try:
        db.executemany("INSERT INTO units VALUES (?, ?, ?)", [(unit, part, PAYLOAD) for part in range(PARTS)])
        db.execute("COMMIT")
    except sqlite3.Error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def work_until_dark(disk: Disk, path: Path, synchronous: str) -> Told:
    """Write units until the power is gone; the machine is dead from then on."""
    told = Told()
    with suppress(sqlite3.OperationalError), closing(opened(disk, path, synchronous)) as db:
        for unit in range(UNITS):
            commit(db, unit)
            told.acknowledged.append(unit)
    return told


def work_on(disk: Disk, path: Path) -> Told:
    """Write units, each again for as long as it fails, opening again when opening fails."""
    told = Told()
    try:
        db = opened(disk, path, "FULL")
    except sqlite3.OperationalError:
        db = opened(disk, path, "FULL")
    with closing(db):
        for unit in range(UNITS):
            try:
                commit(db, unit)
            except sqlite3.OperationalError:
                told.failed.append(unit)
                commit(db, unit)
            told.acknowledged.append(unit)
    return told


def units_in(path: Path) -> list[int]:
    """The units of a file that must be sound and must hold none by half; none when it is not there."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'units'").fetchall():
            return []
        parts = Counter(unit for (unit,) in db.execute("SELECT unit FROM units WHERE payload = ?", (PAYLOAD,)))
        assert set(parts.values()) <= {PARTS}, "a unit is there by half"
        return sorted(parts)


def operations(folder: Path, fault: Fault, synchronous: str = "FULL") -> int:
    """How many operations the whole work has at which the disk can fail."""
    folder.mkdir()
    disk = Disk(fault, checkpoint_pages=CHECKPOINT_PAGES)
    assert work_until_dark(disk, folder / "a.db", synchronous).acknowledged == list(range(UNITS))
    return disk.operations


def cuts(folder: Path, synchronous: str) -> Iterator[tuple[str, list[int], list[int]]]:
    """For a power cut at each operation, and each seed: where, what was acknowledged, and what is there afterwards."""
    for at in range(1, operations(folder / "whole", Fault.POWER, synchronous) + 1):
        before = folder / f"{at}"
        before.mkdir()
        disk = Disk(Fault.POWER, at, CHECKPOINT_PAGES)
        told = work_until_dark(disk, before / "a.db", synchronous)
        assert disk.dark
        for seed in SEEDS:
            after = before / f"after-{seed}"
            after.mkdir()
            disk.aftermath(after, seed)
            yield f"cut at {at}, seed {seed}", told.acknowledged, units_in(after / "a.db")
        shutil.rmtree(before)


def test_a_power_cut_at_any_write_or_sync_loses_no_acknowledged_unit(tmp_path: Path) -> None:
    tried = also = 0
    for where, acknowledged, found in cuts(tmp_path, "FULL"):
        assert found[: len(acknowledged)] == acknowledged, where
        assert len(found) <= len(acknowledged) + 1, where
        tried += 1
        also += len(found) > len(acknowledged)
    assert tried > 100 * len(SEEDS)
    assert also, "a unit that was written and not yet acknowledged may be there"


def test_without_a_sync_at_each_commit_a_power_cut_loses_acknowledged_units_but_never_halves_one(
    tmp_path: Path,
) -> None:
    lost = 0
    for where, acknowledged, found in cuts(tmp_path, "NORMAL"):
        assert found == list(range(len(found))), where
        lost += len(found) < len(acknowledged)
    assert lost > 0


@pytest.mark.parametrize("fault", [Fault.FULL, Fault.ERROR])
def test_a_disk_that_fails_once_at_any_write_or_sync_refuses_that_unit_only(tmp_path: Path, fault: Fault) -> None:
    refused = 0
    for at in range(1, operations(tmp_path / "whole", fault) + 1):
        folder = tmp_path / f"{at}"
        folder.mkdir()
        disk = Disk(fault, at, CHECKPOINT_PAGES)
        told = work_on(disk, folder / "a.db")
        assert units_in(folder / "a.db") == told.acknowledged == list(range(UNITS)), at
        assert len(told.failed) <= 1, at
        refused += len(told.failed)
        shutil.rmtree(folder)
    assert refused > UNITS


def test_a_unit_refused_by_an_error_may_be_there_if_the_writer_dies_of_it_but_nothing_else_is_amiss(
    tmp_path: Path,
) -> None:
    landed = 0
    for at in range(1, operations(tmp_path / "whole", Fault.ERROR) + 1):
        before, after = tmp_path / f"{at}", tmp_path / f"{at}-after"
        before.mkdir()
        after.mkdir()
        disk = Disk(Fault.ERROR, at, CHECKPOINT_PAGES)
        told = Told()
        with suppress(sqlite3.OperationalError):
            db = opened(disk, before / "a.db", "FULL")
            for unit in range(UNITS):
                commit(db, unit)
                told.acknowledged.append(unit)
        disk.aftermath(after, KEEP_ALL)
        found = units_in(after / "a.db")
        assert found == list(range(len(found))), at
        assert len(told.acknowledged) <= len(found) <= len(told.acknowledged) + 1, at
        landed += len(found) > len(told.acknowledged)
    assert landed > 0, "whoever is told of an error must be able to hand the same unit in again"


def logged(path: Path) -> tuple[bytes, bytes, list[int]]:
    """A database and its write-ahead log with all units in it, and where in the log each unit ends."""
    log, ends = path.with_name(path.name + "-wal"), []
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;"
            "CREATE TABLE units (unit INTEGER, part INTEGER, payload TEXT, PRIMARY KEY (unit, part)) STRICT;"
        )
        for unit in range(UNITS):
            commit(db, unit)
            ends.append(log.stat().st_size)
        return path.read_bytes(), log.read_bytes(), ends


REST: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda _: b"",
    "the zeros that it was grown with": lambda older: bytes(len(older)),
    "whole frames of an earlier round": lambda older: older,
}


@pytest.mark.parametrize("rest", REST.values(), ids=REST.keys())
def test_a_log_that_ends_at_any_sector_holds_exactly_the_units_whose_bytes_are_all_there(
    tmp_path: Path, rest: Callable[[bytes], bytes]
) -> None:
    main, log, ends = logged(tmp_path / "a.db")
    _, older, _ = logged(tmp_path / "b.db")
    assert len(older) == len(log)
    beyond = rest(older)
    for at in range(SECTOR, len(log) + 1, SECTOR):
        copy = tmp_path / f"{at}.db"
        copy.write_bytes(main)
        left = log[:at] + beyond[at:]
        (tmp_path / f"{at}.db-wal").write_bytes(left)
        # Beyond the cut there may happen to be the same bytes.
        whole = next(
            (place for place in range(at, len(log)) if left[place : place + 1] != log[place : place + 1]), len(log)
        )
        assert units_in(copy) == list(range(sum(end <= whole for end in ends))), at
        copy.unlink()


BATCHES = 6
WRITER_SEEDS = (DROP_ALL, KEEP_ALL, 2)
SEALED_TO = 6
ARCHIVING = 4
"""Before this batch the first events are archived."""


EACH = pytest.mark.parametrize("each", [pytest.param(1, marks=pytest.mark.chaos_long), 5])
"""Every operation in the long tests, and each fifth in the short ones."""


@pytest.fixture
def short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write-ahead log that is cheap to copy."""
    monkeypatch.setattr(files, "WAL_BYTES", GROWN)


def batch(number: int) -> list[Rows]:
    """Three units: two messages; a run's step; and what changes a view."""
    seen = {"hop": f"{number}", "event": "e", "event_seq": number + 1, "rule": "r", "to": "agent:x"}
    made = control_event(
        tenant="local", part="router", kind="hop.made", key=f"{number}", trace_id=TRACE, occurred_at=NOW, body=seen
    )
    drafts = [said(f"{number}-{part}") for part in range(2)], [run_event("R", number, 0)], [made]
    return [Rows([row_of(draft) for draft in unit]) for unit in drafts]


def keep(writer: SqliteWriter) -> None:
    """Seal the first events and let go of them."""
    outcomes = writer.apply([Seal(1, SEALED_TO, "d", "s", NOW)]) or ()
    outcomes = [*outcomes, *writer.apply([Archive(1, SEALED_TO, "f", "d", NOW)])]
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


def write_until_dark(disk: Disk, path: Path) -> list[str]:
    """Write batch after batch until the power is gone; returns the ids of the events that were acknowledged."""
    told: list[str] = []
    with suppress(Retryable), closing(SqliteWriter(path, ManualClock(), disk.connect)) as writer:
        for number in range(BATCHES):
            if number == ARCHIVING:
                keep(writer)
            units = batch(number)
            for unit, outcome in zip(units, writer.apply(units), strict=True):
                if isinstance(outcome, Exception):
                    raise outcome
                told += [row[1] for row in unit.rows]
    return told


def events_in(path: Path) -> list[str]:
    """The ids of the events of a store, in order, of which it must hold each in one place, and with each its view."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'archives'").fetchall():
            return []
        archived = [number for (number,) in db.execute("SELECT last_seq FROM archives")]
        stored = db.execute("SELECT seq, id FROM events ORDER BY seq").fetchall()
        assert archived in ([], [SEALED_TO])
        assert [seq for seq, _ in stored] == [*range(1 + sum(archived), 1 + sum(archived) + len(stored))]
        known = [row[0] for row in db.execute("SELECT id FROM archived_ids ORDER BY seq")]
        assert bool(known) == bool(archived)
        gone = [row[1] for unit in (*batch(0), *batch(1)) for row in unit.rows][:SEALED_TO] if archived else []
        found = [*gone, *(event for _, event in stored)]
        if db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'hops'").fetchall():
            hops = [row[0] for row in db.execute("SELECT hop_id FROM hops ORDER BY seq")]
            made = {row[1] for number in range(BATCHES) for row in batch(number)[2].rows}
            assert hops == [event for event in found if event in made]
        return found


def writing(folder: Path, fault: Fault) -> int:
    """How many operations the writer's whole work has at which the disk can fail."""
    folder.mkdir()
    disk = Disk(fault, checkpoint_pages=CHECKPOINT_PAGES)
    assert len(write_until_dark(disk, folder / "a.db")) == BATCHES * 4
    return disk.operations


@EACH
@pytest.mark.usefixtures("short_log")
def test_a_power_cut_at_any_operation_of_the_writer_loses_nothing_acknowledged_and_halves_nothing(
    tmp_path: Path, each: int
) -> None:
    whole = [row[1] for number in range(BATCHES) for unit in batch(number) for row in unit.rows]
    assert whole[0] == event_id("local", "cli", "0-0")
    for at in range(1, writing(tmp_path / "whole", Fault.POWER) + 1, each):
        before = tmp_path / f"{at}"
        before.mkdir()
        disk = Disk(Fault.POWER, at, CHECKPOINT_PAGES)
        told = write_until_dark(disk, before / "a.db")
        assert disk.dark
        for seed in WRITER_SEEDS:
            after = before / f"after-{seed}"
            after.mkdir()
            disk.aftermath(after, seed)
            found = events_in(after / "a.db") if (after / "a.db").exists() else []
            assert found[: len(told)] == told, (at, seed)
            assert found == whole[: len(found)], (at, seed)
            assert len(found) % 4 == 0, (at, seed)
            with closing(SqliteWriter(after / "a.db", ManualClock())) as writer:
                assert writer.head == len(found), (at, seed)
        shutil.rmtree(before)


@EACH
@pytest.mark.usefixtures("short_log")
@pytest.mark.parametrize("fault", [Fault.FULL, Fault.ERROR])
def test_a_disk_that_fails_once_refuses_the_writers_work_for_now_and_takes_it_when_it_is_handed_in_again(
    tmp_path: Path, fault: Fault, each: int
) -> None:
    refused = 0
    for at in range(1, writing(tmp_path / "whole", fault) + 1, each):
        folder = tmp_path / f"{at}"
        folder.mkdir()
        disk = Disk(fault, at, CHECKPOINT_PAGES)
        try:
            writer = SqliteWriter(folder / "a.db", ManualClock(), disk.connect)
        except Retryable:
            refused += 1
            writer = SqliteWriter(folder / "a.db", ManualClock(), disk.connect)
        with closing(writer):
            for number in range(BATCHES):
                while any(errors := [isinstance(one, Exception) for one in writer.apply(batch(number))]):
                    assert all(errors), "one of a batch that the disk refused was taken"
                    refused += 1
                    assert refused < 10_000
        assert len(events_in(folder / "a.db")) == BATCHES * 4, at
        shutil.rmtree(folder)
    assert refused > BATCHES
