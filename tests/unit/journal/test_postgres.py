"""What the PostgreSQL adapter does beyond what every journal does: many processes, months, wrong URLs, the doorbell."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest

from rucher.journal.postgres.adapter import PostgresAdapter, open_postgres
from rucher.journal.rows import BODY, ID, RUN_SEQ, SEQ, SOURCE, TYPE, Row, row_of
from rucher.journal.statements import SCHEMA_VERSION
from rucher.journal.units import Command, Rows, Seal
from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import BadInput, Exhausted, Fenced, Retryable
from rucher.protocol.events import control_event
from rucher.protocol.ids import derived
from rucher.protocol.ports import Clock
from tests.fakes.clock import ManualClock, until
from tests.fakes.drafts import NOW, run_event, said
from tests.fakes.postgres import PASSWORD, shared

ROOT = Path(__file__).parents[3]
TRACE_ID = 8
"""Its place in a row."""


class Ear:
    """A listener that remembers what it was told."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.folded: list[bool] = []
        self.rings = 0

    def committed(self, rows: Sequence[Row], *, folded: bool) -> None:
        self.rows += rows
        self.folded.append(folded)

    def rung(self) -> None:
        self.rings += 1


async def stored(store: PostgresAdapter, after: int = 0) -> list[Row]:
    """The rows of the journal."""
    return [[*row] for row in await store.rows("event.after", (after, 100_000))]


def against(*acts: Callable[[PostgresAdapter], Awaitable[None]], url: str = "", clock: Clock | None = None) -> str:
    """Do each act with an adapter of its own, one after the other, on one database; returns its URL."""
    url = url or shared().new_database()

    async def go() -> None:
        for act in acts:
            adapter = await open_postgres(url, clock or SystemClock(), write=True)
            try:
                await act(adapter)
            finally:
                await adapter.close()

    asyncio.run(go())
    return url


def told(key: str, kind: str, **body: object) -> Rows:
    return Rows([row_of(control_event(tenant="local", part="test", kind=kind, key=key, trace_id=derived("trace", key),
                                      occurred_at=NOW, body=body))])  # fmt: skip


def test_a_bad_unit_fails_alone_and_leaves_no_gap() -> None:
    async def act(store: PostgresAdapter) -> None:
        await store.commit(Rows([row_of(run_event("r", 0, 0)), row_of(said("known"))]))
        unstorable = row_of(said("nul"))
        unstorable[5] = "owner:\0"
        good = [Rows([row_of(said(f"{number}"))]) for number in range(40)]
        bad = [
            Rows([row_of(run_event("r", 1, 7))]),
            Rows([unstorable]),
            told("over", "budget.reserved", accounts=["none"], amounts={"tokens": 5}),
            Rows([row_of(said("known")), row_of(said("new"))]),
        ]
        units = [*good[:7], bad[0], *good[7:20], bad[1], bad[2], *good[20:], bad[3]]
        outcomes = await asyncio.gather(*map(store.commit, units), return_exceptions=True)
        by_unit = dict(zip(map(id, units), outcomes, strict=True))
        assert all(by_unit[id(unit)] == {} for unit in good)
        assert [type(by_unit[id(unit)]) for unit in bad] == [Fenced, BadInput, Exhausted, dict]
        rows = await stored(store)
        assert [row[SEQ] for row in rows] == list(range(1, 44))
        assert by_unit[id(bad[3])] == {0: rows[1]}
        assert [row[ID] for row in rows[2:]] == [unit.rows[0][ID] for unit in good] + [bad[3].rows[1][ID]]

    against(act)


def test_what_is_in_memory_is_what_is_stored() -> None:
    async def act(store: PostgresAdapter) -> None:
        ear = Ear()
        store.listen(ear)
        await store.commit(
            Rows([row_of(said("a", "naïve \0 text")), row_of(run_event("r", 0, 0)), row_of(run_event("r", 1, 1))])
        )
        await store.commit(Rows([row_of(said("a", "other")), row_of(run_event("r", 2, 1)), row_of(said("b"))]))
        assert await stored(store) == ear.rows
        assert ear.folded == [True, False]  # a run began

    against(act)


def test_a_batch_of_any_size_is_kept_whole() -> None:
    async def act(store: PostgresAdapter) -> None:
        sizes = [1, 2, 3, 31, 32, 33, 200]
        for size in sizes:
            await store.commit(Rows([row_of(run_event(f"run {size}", place, 0)) for place in range(size)]))
        rows = await stored(store)
        assert [row[SEQ] for row in rows] == list(range(1, sum(sizes) + 1))
        assert [row[RUN_SEQ] for row in rows] == [place for size in sizes for place in range(size)]

    against(act)


def test_a_former_owner_of_a_run_writes_nothing_more_whatever_it_has_queued() -> None:
    url = shared().new_database()

    async def go() -> None:
        zombie = await open_postgres(url, SystemClock(), write=True)
        owner = await open_postgres(url, SystemClock(), write=True)
        await zombie.commit(Rows([row_of(run_event("r", 0, 0)), row_of(run_event("r", 1, 1))]))
        await owner.commit(Rows([row_of(run_event("r", 2, 2, "b"))]))
        late = [Rows([row_of(run_event("r", place, 1))]) for place in (2, 3, 4)]
        assert [type(error) for error in await asyncio.gather(*map(zombie.commit, late), return_exceptions=True)] == [
            Fenced
        ] * 3
        with pytest.raises(Fenced):
            await zombie.commit(Rows([row_of(run_event("r", 0, 0, "c"))]))
        await owner.commit(Rows([row_of(run_event("r", 3, 2, "b"))]))
        assert len(await stored(owner)) == 4
        await zombie.close()
        await owner.close()

    asyncio.run(go())


_WRITER = """
import asyncio, sys
from rucher.journal.postgres.adapter import open_postgres
from rucher.journal.rows import row_of
from rucher.journal.units import Rows
from rucher.protocol.clock import SystemClock
from tests.fakes.drafts import said

async def write(store, name):
    for number in range(60):
        await store.commit(Rows([row_of(said(f"{name}:{number}")), row_of(said(f"shared:{number}"))]))

async def main():
    store = await open_postgres(sys.argv[1], SystemClock(), write=True)
    await asyncio.gather(*(write(store, f"{sys.argv[2]}.{writer}") for writer in range(4)))
    await store.close()

asyncio.run(main())
"""


def test_a_reader_by_seq_misses_nothing_while_several_processes_write() -> None:
    url = against()

    async def follow(writers: Sequence[subprocess.Popen[bytes]]) -> list[int]:
        store = await open_postgres(url, SystemClock(), write=False)
        seen: list[int] = []
        over = False
        while not over:
            over = all(writer.poll() is not None for writer in writers)
            seen += [row[SEQ] for row in await stored(store, after=seen[-1] if seen else 0)]
        await store.close()
        return seen

    against(lambda _: asyncio.sleep(0), url=url)
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, url, name], cwd=ROOT) for name in "abc"]
    seen = asyncio.run(follow(writers))
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert seen == list(range(1, 3 * 4 * 60 + 60 + 1))


def test_each_month_has_its_partition_made_before_it_begins() -> None:
    def at(year: int, month: int, day: int) -> int:
        return int(datetime(year, month, day, tzinfo=UTC).timestamp() * 1e6)

    clock = ManualClock(at(2027, 12, 31))

    async def act(store: PostgresAdapter) -> None:
        for number, wait_days in enumerate((1, 400, -500)):
            await store.commit(Rows([row_of(said(f"{number}"))]))
            clock.advance(wait_days * 86400)

    url = against(act, clock=clock)
    found = _ask(url, "SELECT seq, tableoid::regclass::text AS part FROM events ORDER BY seq")
    assert [tuple(row) for row in found] == [(1, "events_2027_12"), (2, "events_2028_01"), (3, "events_2029_02")]
    made = _ask(url, "SELECT relname FROM pg_class WHERE relname ~ '^events_[0-9_]+$' AND relkind = 'r' ORDER BY 1")
    assert [row[0][7:] for row in made] == ["2027_12", "2028_01", "2028_02", "2029_02", "2029_03"]


def test_a_month_that_was_dropped_is_made_again_when_the_clock_goes_back_to_it() -> None:
    url = shared().new_database()

    async def act(store: PostgresAdapter) -> None:
        await store.commit(Rows([row_of(said("a"))]))
        await asyncio.to_thread(_ask, url, "DROP TABLE events_2027_01")
        await store.commit(Rows([row_of(said("b"))]))
        assert [row[SEQ] for row in await stored(store)] == [2]

    against(act, url=url, clock=ManualClock(NOW))


def test_events_can_be_neither_changed_nor_removed() -> None:
    async def act(store: PostgresAdapter) -> None:
        await store.commit(Rows([row_of(said("a"))]))

    url = against(act)
    for statement in ("UPDATE events SET body = '{}'", "DELETE FROM events", "TRUNCATE events"):
        with pytest.raises(asyncpg.RaiseError, match="append-only"):
            _ask(url, statement)


def test_an_archived_event_that_is_delivered_again_keeps_its_old_number() -> None:
    async def first(store: PostgresAdapter) -> None:
        await store.commit(Rows([row_of(said("a")), row_of(said("b"))]))

    async def again(store: PostgresAdapter) -> None:
        unit = Rows([row_of(said("b")), row_of(said("c"))])
        earlier = await store.commit(unit)
        assert (earlier[0][SEQ], unit.rows[1][SEQ], store.head) == (2, 3, 2)

    url = against(first)
    _ask(url, "INSERT INTO archives VALUES (2, 1, 'file', 'digest', 0)")
    _ask(url, "DELETE FROM events")
    assert [row["seq"] for row in _ask(url, "SELECT seq FROM archived_ids ORDER BY seq")] == [1, 2]
    against(again, url=url)


def test_views_are_folded_anew_when_their_definition_changed_and_when_asked() -> None:
    async def act(store: PostgresAdapter) -> None:
        await store.commit(told("s", "session.opened", session="s1", agent="bee", group="main", thread="nul \0 here"))

    async def look(store: PostgresAdapter) -> None:
        found = await store.rows("sessions.all", ())
        assert [(row["session_id"], row["thread"]) for row in found] == [("s1", "nul \ufffd here")]

    async def rebuild(store: PostgresAdapter) -> None:
        assert await store.rebuild() == 1

    url = against(act, look)
    _ask(url, "DELETE FROM sessions")
    against(rebuild, look, url=url)
    _ask(url, "UPDATE meta SET value = 'older' WHERE key = 'views'")
    _ask(url, "ALTER TABLE sessions DROP COLUMN thread")
    against(look, url=url)


def test_a_text_with_a_nul_keeps_no_reader_from_its_session() -> None:
    question = row_of(said("q", "what \0 is \\\\u0000?"))
    answer = row_of(said("a", "this \0"))
    answer[SOURCE], answer[TYPE], answer[TRACE_ID] = "agent", "answer", question[TRACE_ID]
    answer[BODY] = answer[BODY].replace('"group"', '"run":"r","group"')

    async def act(store: PostgresAdapter) -> None:
        await store.commit(Rows([question, answer]))

    async def look(store: PostgresAdapter) -> None:
        (found,) = await store.rows("session.exchanges", ("r", 1000, 10))
        assert (found["request"], found["answer"]) == ("what \ufffd is \\\\u0000?", "this \ufffd")

    url = against(act)
    begun = row_of(run_event("r", 0, 0))
    against(lambda store: store.commit(Rows([begun])), url=url)
    _ask(url, f"UPDATE runs SET state = 'done', event_id = '{question[ID]}', trace_id = '{question[TRACE_ID]}'")  # noqa: S608
    against(look, url=url)


def test_commands_and_seals_are_obeyed_once_and_noticed() -> None:
    async def act(store: PostgresAdapter) -> None:
        assert await store.changed()
        assert not await store.changed()
        joined = await store.commit(Command("worker.join", {"worker": "w", "host": "h", "role": "all", "at": 1}))
        assert [row["worker"] for row in joined] == ["w"]
        assert await store.changed()
        await store.commit(Seal(1, 1, "digest", "signature", 5))
        assert await store.changed()
        assert [row["last_seq"] for row in await store.rows("seals.all", ())] == [1]

    against(act)


@pytest.mark.parametrize("heard", ["by a ring", "when it looks again"])
def test_another_process_hears_of_a_commit(heard: str) -> None:
    url = shared().new_database()

    async def go() -> None:
        writer = await open_postgres(url, SystemClock(), write=True)
        other = await open_postgres(url, SystemClock() if heard == "when it looks again" else ManualClock(), write=True)
        ear = Ear()
        other.listen(ear)
        await until(lambda: ear.rings > 0, "the first look")
        if heard == "when it looks again":
            await asyncio.to_thread(shared().sql, _END_BELLS)
        rings = ear.rings
        await writer.commit(Rows([row_of(said("a"))]))
        await until(lambda: ear.rings > rings, "the ring")
        await other.close()
        await writer.close()

    asyncio.run(go())


def test_a_reader_writes_nothing_and_finds_no_journal_where_none_is() -> None:
    url = shared().new_database()

    async def go() -> None:
        with pytest.raises(BadInput, match="no journal at"):
            await open_postgres(url, SystemClock(), write=False)

    async def read() -> None:
        reader = await open_postgres(url, SystemClock(), write=False)
        with pytest.raises(BadInput, match="for reading only"):
            await reader.commit(Rows([]))
        with pytest.raises(BadInput, match="for reading only"):
            await reader.rebuild()
        await reader.close()

    asyncio.run(go())
    against(lambda _: asyncio.sleep(0), url=url)
    asyncio.run(read())


def test_a_wrong_url_is_refused_in_one_line_that_shows_no_password() -> None:
    right = shared().url("nowhere", tcp=True)
    cases = {
        shared().url("postgres", tcp=True, password="sec ret@x"): (BadInput, "refuses to log in"),  # noqa: S106
        right: (BadInput, "no database"),
        shared().url("postgres", tcp=True, port=1): (Retryable, "connect"),
        "postgresql://u:sec/ret@127.0.0.1:1/x": (BadInput, "cannot be understood"),
        "postgresql://u:sec?ret@127.0.0.1:1/x": (BadInput, "cannot be understood"),
        "postgresql://u:secret": (BadInput, "cannot be understood"),
        "postgresql://u:sec ret@[bad/x": (BadInput, "cannot be understood"),
        "mysql://u:secret@host/x": (BadInput, "cannot be understood"),
        "postgresql://u@127.0.0.1:1/x?password=secret&sslmode=secret": (BadInput, "cannot be understood"),
    }

    async def go(url: str) -> None:
        await open_postgres(url, SystemClock(), write=True)

    for url, (kind, words) in cases.items():
        with pytest.raises(kind, match=words) as caught:
            asyncio.run(go(url))
        text = str(caught.value)
        assert "sec" not in text
        assert PASSWORD not in text
        assert "\n" not in text


def test_a_newer_schema_and_tables_of_others_are_refused() -> None:
    newer, foreign = against(), shared().new_database()
    against(lambda _: asyncio.sleep(0), url=newer)
    assert SCHEMA_VERSION < 1000
    _ask(newer, "UPDATE meta SET value = '1000' WHERE key = 'schema'")
    _ask(foreign, "CREATE TABLE events (name text)")

    async def go(url: str, *, write: bool) -> None:
        await open_postgres(url, SystemClock(), write=write)

    for write in (True, False):
        with pytest.raises(BadInput, match="use the newer Rucher"):
            asyncio.run(go(newer, write=write))
    with pytest.raises(BadInput, match="tables of something else"):
        asyncio.run(go(foreign, write=True))


def _ask(url: str, statement: str) -> list[asyncpg.Record]:
    async def go() -> list[asyncpg.Record]:
        db = await asyncpg.connect(url)
        try:
            return list(await db.fetch(statement))
        finally:
            await db.close()

    return asyncio.run(go())


_END_BELLS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rucher bell'"
