"""Laws of the journal on SQLite: append-only, fenced, folded into views, one writer's error its own."""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from rucher.journal.rows import RECORDED_AT, RUN_NO, SEALED, SEQ, row_of
from rucher.journal.seals import Sealer, verify
from rucher.journal.sqlite.files import connect
from rucher.journal.sqlite.writer import SqliteWriter
from rucher.journal.statements import SCHEMA_VERSION, migrations
from rucher.journal.store import JournalStore, open_store, read_store
from rucher.protocol.errors import BadInput, Corrupt, Fenced, Retryable
from rucher.protocol.events import Draft, RunPosition, control_event
from tests.fakes.clock import ManualClock
from tests.fakes.drafts import NOW, TRACE, run_event, said


def test_a_committed_event_can_be_neither_changed_nor_removed(tmp_path: Path) -> None:
    async def write() -> None:
        async with open_store(tmp_path / "rucher.db", ManualClock()) as store:
            await store.append(said("a"))

    asyncio.run(write())
    database = sqlite3.connect(tmp_path / "rucher.db")
    for statement in ("UPDATE events SET principal = 'x'", "DELETE FROM events"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            database.execute(statement)
    database.close()


def test_one_writers_error_fails_that_writer_only(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_store(tmp_path / "rucher.db", ManualClock()) as store:
            huge = said("huge", "x" * (2 << 20))
            results = await asyncio.gather(
                store.append(said("a")),
                store.append(said("kept-out"), huge),
                store.append(said("b")),
                return_exceptions=True,
            )
            assert [type(result) for result in results] == [tuple, BadInput, tuple]
            assert [event.seq for event in await store.read(0, 10)] == [1, 2]
            (next_one,) = await store.append(said("c"))
            assert next_one.event.seq == 3

    asyncio.run(check())


def test_a_zombie_of_a_run_can_write_nothing_even_if_its_next_position_is_free(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_store(tmp_path / "rucher.db", ManualClock()) as store:
            await store.append(run_event("R", 0, 0), run_event("R", 1, 1))
            await store.append(run_event("R", 2, 2, "b"))
            for late in (run_event("R", 2, 1), run_event("R", 3, 1)):
                with pytest.raises(Fenced):
                    await store.append(late)
            await store.append(run_event("R", 3, 2, "b"))

    asyncio.run(check())


def test_two_owners_of_one_position_never_both_succeed_in_one_batch(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_store(tmp_path / "rucher.db", ManualClock()) as store:
            await store.append(run_event("R", 0, 0))
            both = await asyncio.gather(
                store.append(run_event("R", 1, 1, "a")), store.append(run_event("R", 1, 1, "b")), return_exceptions=True
            )
            assert [type(one) for one in both] == [tuple, Fenced]

    asyncio.run(check())


def test_what_was_acknowledged_is_there_after_reopening(tmp_path: Path) -> None:
    async def write(key: str) -> int:
        async with open_store(tmp_path / "rucher.db", ManualClock()) as store:
            (appended,) = await store.append(said(key))
            return appended.event.seq

    assert [asyncio.run(write(key)) for key in "abca"] == [1, 2, 3, 1]


def test_views_folded_again_are_the_views_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "rucher.db"
    views = ("SELECT * FROM hops", "SELECT * FROM cursors", "SELECT * FROM sessions", "SELECT * FROM runs")

    def about(source: str, kind: str, key: str, **body: object) -> None:
        event = control_event(
            tenant="local", part=source, kind=kind, key=key, trace_id="0" * 26, occurred_at=NOW, body=body
        )
        drafts.append(event)

    drafts = [said("a")]
    about("router", "hop.made", "h", event=drafts[0].id, event_seq=1, rule="r", rules="v", to="agent:x")
    hop = drafts[-1].id
    about("router", "hop.acknowledged", "h", hop=hop, session="S")
    about("session", "session.opened", "S", session="S", agent="x", group="cli:main", thread="")
    about("kernel", "run.created", "R", run="R", session="S", agent="x", hop=hop, model="m", engine_version=1)
    about("kernel", "step.recorded", "R1", run="R", usage={"input_tokens": 3, "output_tokens": 4})
    about("session", "session.stopped", "S1", session="S", reason="broken")

    async def write() -> None:
        async with open_store(path, ManualClock()) as store:
            await store.append(*drafts)

    def read() -> list[list[tuple[object, ...]]]:
        database = sqlite3.connect(path)
        rows = [database.execute(view).fetchall() for view in views]
        database.close()
        return rows

    asyncio.run(write())
    before = read()
    assert all(before)
    writer = SqliteWriter(path, ManualClock())
    assert writer.rebuild() == len(drafts)
    writer.close()
    assert read() == before


def test_a_late_acknowledgement_never_reopens_a_hop_that_is_done(tmp_path: Path) -> None:
    async def check(store: JournalStore) -> int:
        message = said("a")
        made = control_event(
            tenant="local", part="router", kind="hop.made", key="h", trace_id=message.trace_id, occurred_at=NOW,
            body={"event": message.id, "event_seq": 1, "rule": "r", "rules": "v", "to": "agent:x"},
        )  # fmt: skip
        done = control_event(
            tenant="local", part="kernel", kind="run.finished", key="R", trace_id=message.trace_id, occurred_at=NOW,
            body={"run": "R", "state": "done", "hop": made.id},
        )  # fmt: skip
        late = control_event(
            tenant="local", part="router", kind="hop.acknowledged", key="h", trace_id=message.trace_id,
            occurred_at=NOW, body={"hop": made.id, "session": "S"},
        )  # fmt: skip
        await store.append(message, made, done, late)
        return len(await store.rows("hops.open", 0))

    async def run() -> int:
        async with open_store(tmp_path / "rucher.db", ManualClock()) as store:
            return await check(store)

    assert asyncio.run(run()) == 0


INSERT_1 = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def schema_1(path: Path, drafts: Sequence[Draft]) -> list[tuple[object, ...]]:
    """Write events into a new file as the first Rucher did; returns their rows."""
    script = next(script for version, script in migrations("sqlite") if version == 1)
    rows: list[tuple[object, ...]] = []
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"{script}; PRAGMA user_version = 1;")
        for seq, draft in enumerate(drafts, 1):
            row = row_of(draft)
            row[SEQ], row[RECORDED_AT] = seq, NOW + seq
            rows.append(tuple(row[SEALED]))
        db.executemany(INSERT_1, rows)
        db.commit()
    return rows


def run_of_schema_1(name: str, hop: str, *rest: tuple[str, Mapping[str, object]]) -> list[Draft]:
    """A run's own events as the first Rucher wrote them: made, acquired, and the rest."""
    asked = {"hop": hop, "session": "S", "agent": "x", "model": "m", "tenant": "local", "trace_id": TRACE}
    kinds: list[tuple[str, Mapping[str, object]]] = [
        ("run.created", asked | {"engine_version": 1}),
        ("run.acquired", {"worker": "w"}),
    ]
    return [
        control_event(
            tenant="local", part="kernel", kind=kind, key=f"{name}:{seq}:w", trace_id=TRACE, parent_id=hop,
            occurred_at=NOW, body={"run": name, **body}, run=RunPosition(name, seq, min(seq, 1)),
        )
        for seq, (kind, body) in enumerate([*kinds, *rest])
    ]  # fmt: skip


def test_a_journal_of_schema_1_is_taken_over_with_all_that_is_in_it(tmp_path: Path) -> None:
    path, key = tmp_path / "rucher.db", SigningKey(bytes(32))
    message = said("a")
    seen = {"event": message.id, "event_seq": 1, "rule": "r", "rules": "v", "to": "agent:x"}
    hops = [
        control_event(
            tenant="local", part="router", kind="hop.made", key=name, trace_id=TRACE, occurred_at=NOW, body=seen
        )
        for name in "hij"
    ]
    step = {"step": "1", "kind": "model_call", "attempt": 1, "request_hash": "q", "result": {"text": "t"}, "usage": {}}
    ended = ("run.finished", {"state": "done", "reason": "", "hop": hops[0].id})
    stuck = ("run.waiting", {"step": "1", "reason": "the shell was interrupted"})
    logs = [
        run_of_schema_1("RDONE", hops[0].id, ("step.recorded", step), ended),
        run_of_schema_1("RWAITS", hops[1].id, stuck),
        run_of_schema_1("ROPEN", hops[2].id, ("step.recorded", step)),
    ]
    mixed = [draft for drafts in zip_longest(*logs) for draft in drafts if draft is not None]
    before = schema_1(path, [message, *hops, *mixed])

    async def look() -> None:
        async with open_store(path, ManualClock()) as store:
            rows = await store.stored("event.after", 0, 100)
            assert [tuple(row[SEALED]) for row in rows] == before
            firsts = {row[13]: row[0] for row in rows if row[14] == 0}
            assert [row[RUN_NO] for row in rows] == [firsts.get(row[13]) for row in rows]
            for log in logs:
                assert [event.id for event in await store.run_log(log[0].body["run"])] == [draft.id for draft in log]
            runs = {run: dict((await store.rows("run.get", run))[0]) for run in firsts}
            assert {run: row["state"] for run, row in runs.items()} == {
                "RDONE": "done", "RWAITS": "queued", "ROPEN": "running",
            }  # fmt: skip
            assert {row["event_id"] for row in runs.values()} == {message.id}
            assert [row["hop_id"] for row in await store.rows("hops.open", 0)] == [hops[1].id, hops[2].id]
            assert await store.cursor("router") == 1
            again, new = await store.append(said("a"), said("b"))
            assert (again.first, again.event.seq, new.event.seq) == (False, 1, len(before) + 1)
            await Sealer(store, key, tmp_path / "seal.head", ManualClock()).seal()
            found = await verify(store, key.verify_key, tmp_path / "seal.head", tmp_path / "archive")
            assert (found.fault, found.events) == ("", len(before) + 1)

    asyncio.run(look())
    asyncio.run(look_again(path))


async def look_again(path: Path) -> None:
    """A second opening finds nothing to migrate."""
    async with read_store(path, ManualClock()) as store:
        assert len(await store.rows("event.after", 0, 1)) == 1


def test_seals_of_schema_1_still_hold_after_the_migration(tmp_path: Path) -> None:
    path, key = tmp_path / "rucher.db", SigningKey(bytes(32))
    head = tmp_path / "seal.head"

    async def seal_elsewhere() -> tuple[object, ...]:
        """The seal over the same rows, which another file of today gives: the digest has not changed."""
        async with open_store(tmp_path / "other.db", ManualClock()) as store:
            await store.append(said("a"), said("b"))
            await Sealer(store, key, head, ManualClock()).seal()
            (seal,) = await store.rows("seals.all")
            assert tuple(seal.keys()) == ("last_seq", "first_seq", "digest", "signature", "sealed_at")
            return tuple(seal)

    seal = asyncio.run(seal_elsewhere())
    schema_1(path, [])
    with closing(sqlite3.connect(tmp_path / "other.db")) as other, closing(sqlite3.connect(path)) as db:
        db.executemany(INSERT_1, [row[SEALED] for row in other.execute("SELECT * FROM events")])
        db.execute("INSERT INTO seals VALUES (?, ?, ?, ?, ?)", seal)
        db.commit()

    async def check() -> None:
        async with open_store(path, ManualClock()) as store:
            found = await verify(store, key.verify_key, head, tmp_path / "archive")
            assert (found.fault, found.seals, found.events) == ("", 1, 2)

    asyncio.run(check())


def test_a_migration_that_fails_leaves_the_older_schema_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "rucher.db"
    before = schema_1(path, [said("a")])
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE claims (x)")
    with pytest.raises(Corrupt, match=r"rucher\.db"):
        SqliteWriter(path, ManualClock())
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert db.execute("SELECT * FROM events").fetchall() == before
        db.execute("DROP TABLE claims")
    SqliteWriter(path, ManualClock()).close()


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "rucher.db"
    SqliteWriter(path, ManualClock()).close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    database.close()
    with pytest.raises(BadInput, match="newer"):
        SqliteWriter(path, ManualClock())


def test_a_file_that_is_no_journal_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "rucher.db"
    path.write_bytes(b"this is not a database" * 100)
    with pytest.raises(Corrupt, match=r"rucher\.db"):
        SqliteWriter(path, ManualClock())


def test_reading_where_there_is_no_journal_says_how_to_get_one(tmp_path: Path) -> None:
    async def check() -> None:
        with pytest.raises(BadInput, match="rucher up"):
            async with read_store(tmp_path / "rucher.db", ManualClock()):
                pass

    asyncio.run(check())


def test_a_store_that_closed_refuses_instead_of_hanging(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_store(tmp_path / "rucher.db", ManualClock()) as store:
            pass
        with pytest.raises(Retryable, match="closing"):
            await store.append(said("late"))

    asyncio.run(check())


def test_a_locked_journal_is_worth_another_try_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rucher.db"
    plain = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: plain(*args, **kwargs | {"timeout": 0.05}))

    async def check() -> None:
        async with open_store(path, ManualClock()) as store:
            other = plain(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(Retryable, match="locked"):
                await store.append(said("a"))
            other.execute("ROLLBACK")
            other.close()
            (appended,) = await store.append(said("a"))
            assert (appended.first, appended.event.seq) == (True, 1)

    asyncio.run(check())


@pytest.mark.parametrize("poison", ["\ud800", float("nan"), float("inf"), {1, 2}, b"bytes", "x" * (2 << 20)])
def test_what_cannot_be_stored_fails_its_own_writer_only(tmp_path: Path, poison: object) -> None:
    async def check() -> None:
        async with open_store(tmp_path / "rucher.db", ManualClock()) as store:
            bad = replace(said("bad"), body={"text": poison})
            results = await asyncio.gather(
                store.append(said("a")), store.append(bad), store.append(said("b")), return_exceptions=True
            )
            assert [type(result) for result in results] == [tuple, BadInput, tuple]

    asyncio.run(check())


def test_a_principal_that_is_no_text_fails_its_own_writer_only(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_store(tmp_path / "rucher.db", ManualClock()) as store:
            bad = replace(said("bad"), principal="owner:\udfff")
            results = await asyncio.gather(store.append(said("a")), store.append(bad), return_exceptions=True)
            assert [type(result) for result in results] == [tuple, BadInput]

    asyncio.run(check())


def test_a_place_that_cannot_hold_a_journal_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "missing" / "rucher.db", tmp_path / "file" / "rucher.db", tmp_path):
        with pytest.raises(BadInput, match="cannot be opened"):
            SqliteWriter(place, ManualClock())


def test_a_journal_that_is_locked_when_it_is_opened_is_worth_another_try_and_is_let_go_of(tmp_path: Path) -> None:
    path = tmp_path / "rucher.db"
    SqliteWriter(path, ManualClock()).close()

    def impatient(path: Path, mode: str) -> sqlite3.Connection:
        db = connect(path, mode)
        db.execute("PRAGMA busy_timeout = 20")
        opened.append(db)
        return db

    opened: list[sqlite3.Connection] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Retryable, match="locked"):
            SqliteWriter(path, ManualClock(), impatient)
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            opened[0].execute("SELECT 1")
    SqliteWriter(path, ManualClock(), impatient).close()
