"""Laws of the journal on SQLite: append-only, fenced, folded into views, one writer's error its own."""

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from rucher.journal.sqlite import SCHEMA_VERSION, SqliteWriter
from rucher.journal.store import JournalStore, open_store, read_store
from rucher.protocol.errors import BadInput, Corrupt, Fenced, Retryable
from rucher.protocol.events import control_event
from tests.fakes.clock import ManualClock
from tests.fakes.drafts import NOW, run_event, said


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
    async def check(store: JournalStore) -> str:
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
        return str((await store.rows("hop.get", made.id))[0]["state"])

    async def run() -> str:
        async with open_store(tmp_path / "rucher.db", ManualClock()) as store:
            return await check(store)

    assert asyncio.run(run()) == "done"


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
            async with read_store(tmp_path / "rucher.db"):
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
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, **kwargs | {"timeout": 0.05}))

    async def check() -> None:
        async with open_store(path, ManualClock()) as store:
            other = connect(path, isolation_level=None)
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
