"""The function by which PostgreSQL folds events into views, in the statement that brings them: it says what views.sql says."""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import asyncpg
import pytest

from rucher.journal.postgres import folds as function
from rucher.journal.postgres.adapter import PostgresAdapter, open_postgres
from rucher.journal.rows import SEQ, Row, row_of
from rucher.journal.statements import named, view_tables
from rucher.journal.units import Command, Rows, Unit
from rucher.journal.views import MUST_CHANGE, VIEWS
from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import BadInput, Exhausted
from rucher.protocol.events import control_event
from rucher.protocol.ids import derived
from tests.fakes.drafts import NOW, run_event, said
from tests.fakes.postgres import shared

OTHER = {"run_id": "another run", "seq": 8}
TALE: Sequence[tuple[str, Mapping[str, object]]] = (
    ("session.opened", {}), ("session.state", {"state": "stopped"}), ("hop.made", {}), ("hop.acknowledged", {}),
    ("hop.sending", {}), ("hop.detail", {}), ("hop.state", {"state": "done"}), ("cursor.advance", {}),
    ("run.created", {}), ("run.created", OTHER), ("run.acquired", {}), ("run.spent", {}), ("run.migrated", {}),
    ("budget.opened", {"ceiling": 20}), ("budget.reserve", {}), ("budget.settle", {}), ("budget.opened", {"account": "b"}),
    ("wait.opened", {}), ("run.let_go", {}), ("run.promote_of", {}), ("signal.sent", {}), ("wait.catch_up", {}),
    ("run.wake", {}), ("wait.over", {}), ("wait.opened", {"topic": "t", "due_at": 5}), ("run.let_go", {}),
    ("wait.signalled", {"topic": "t"}), ("run.wake_all", {"topic": "t"}), ("run.ended", {"state": "done"} | OTHER),
    ("run.promote_woken", {"topic": "t"}), ("run.paused", {}), ("run.resumed", {}), ("run.cancelling", {}),
    ("wait.over", {}), ("wait.opened", {}), ("wait.fired", {}), ("steer.told", {}), ("artifact.stored", {}),
    ("hop.told", {}), ("hop.again", {}), ("delivery.pending", {}), ("delivery.sending", {}), ("delivery.deferred", {}),
    ("delivery.ended", {"state": "failed"}), ("delivery.again", {}), ("delivery.ended", {"part": 0, "state": "failed"}),
    ("delivery.forget", {}),
)  # fmt: skip
"""Statements and what they are told; in this order each changes something."""
_USUAL = {"state": "waiting", "mode": "any", "kind": "timer", "due_at": None, "ceiling": None}
_AWKWARD = "é\u2028 \U0001f41d \\u0000 '\" $1 :at"


def on(url: str, act: Callable[[PostgresAdapter, asyncpg.Connection], Awaitable[None]]) -> None:
    """Do it with the store there, and with a plain connection to it."""

    async def go() -> None:
        store = await open_postgres(url, SystemClock(), write=True)
        db = await asyncpg.connect(url)
        try:
            await act(store, db)
        finally:
            await db.close()
            await store.close()

    asyncio.run(go())


def told(key: str, kind: str, **body: object) -> Row:
    draft = control_event(
        tenant="local", part="test", kind=kind, key=key, trace_id=derived("trace", key), occurred_at=NOW, body=body
    )
    return row_of(draft)


def told_of(place: int, name: str, special: Mapping[str, object]) -> dict[str, object]:
    """What the statement at this place of the tale is told."""
    usual = {each: 7 if each in function.INTEGERS else f"{each} {_AWKWARD}" for each in _names(name)}
    given = {**usual, **_USUAL, "at": 100 + place, **special}
    return {each: given[each] for each in _names(name)}


def _names(name: str) -> Sequence[str]:
    return function.statements("views.sql")[name][1]


async def views(db: asyncpg.Connection) -> list[list[tuple[Any, ...]]]:
    return [[tuple(row) for row in await db.fetch(f"SELECT * FROM {view} ORDER BY 1, 2")] for view in VIEWS]  # noqa: S608 - the package's own names


def test_every_statement_says_the_same_as_part_of_the_function_and_by_itself_in_either_database() -> None:
    async def act(_: PostgresAdapter, db: asyncpg.Connection) -> None:
        lite = sqlite3.connect(":memory:")
        for statement in view_tables()[0]:
            lite.execute(statement)
        before = await views(db)
        for place, (name, special) in enumerate(TALE):
            given = told_of(place, name, special)
            sql, names = function.statements("views.sql")[name]
            by_itself = db.transaction()
            await by_itself.start()
            await db.execute(sql, *function.arguments(names, given))
            alone = await views(db)
            await by_itself.rollback()
            await db.execute("SELECT rucher_fold(0, $1)", json.dumps([[name, given]]))
            lite.execute(named("views.sql")[name], given)
            there = [lite.execute(f"SELECT * FROM {view} ORDER BY 1, 2").fetchall() for view in VIEWS]  # noqa: S608 - the package's own names
            assert (name, await views(db)) == (name, alone) == (name, there)
            assert (name, alone) != (name, before)
            before = alone
        lite.close()
        assert {name for name, _ in TALE} == set(named("views.sql"))

    on(shared().new_database(), act)


def test_the_parameters_that_are_numbers_are_those_that_the_database_takes_for_numbers() -> None:
    async def act(_: PostgresAdapter, db: asyncpg.Connection) -> None:
        for name, (sql, names) in function.statements("views.sql").items():
            types = [kind.name for kind in (await db.prepare(sql)).get_parameters()]
            expected = ["int8" if each in function.INTEGERS else "text" for each in names]
            assert (name, types) == (name, expected)

    on(shared().new_database(), act)


def test_an_event_is_told_its_number_and_a_fold_may_name_another() -> None:
    async def act(store: PostgresAdapter, db: asyncpg.Connection) -> None:
        await store.commit(Rows([row_of(said("a"))]))
        hop = {"event": "e", "event_seq": 1, "rule": "r", "to": "agent:x"}
        units = [
            Rows([row_of(said("b")), told("h", "hop.made", **hop)]),
            Rows([row_of(run_event("r", 0, 0)), row_of(run_event("r", 1, 0))]),
            Rows([told("s", "run.steered", run="r", text="nul \0 here"), told("t", "run.steered", run="r", text="")]),
        ]
        await asyncio.gather(*map(store.commit, units))
        seqs = await db.fetchrow(
            "SELECT (SELECT seq FROM hops) AS hop, (SELECT seq FROM runs) AS run, (SELECT seq FROM cursors) AS router"
        )
        assert tuple(seqs) == (units[0].rows[1][SEQ], units[1].rows[0][SEQ], 1) == (3, 4, 1)
        steers = await db.fetch("SELECT seq, text FROM steers ORDER BY seq")
        assert [tuple(row) for row in steers] == [(6, "nul \ufffd here"), (7, "")]

    on(shared().new_database(), act)


@pytest.mark.parametrize("beside", [[], [Command("meta.put", {"key": "k", "value": "v"})]])
def test_what_a_budget_does_not_cover_is_refused_with_all_of_its_unit_and_nothing_else(beside: Sequence[Unit]) -> None:
    async def act(store: PostgresAdapter, db: asyncpg.Connection) -> None:
        await db.execute("INSERT INTO budgets (account, measure, ceiling) VALUES ('a', 'tokens', 10)")
        asked = [
            Rows([row_of(said(key)), told(key, "budget.reserved", accounts=["a"], amounts={"tokens": amount})])
            for key, amount in (("one", 6), ("two", 5), ("three", 4))
        ]
        outcomes = await asyncio.gather(*map(store.commit, [*asked, *beside]), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes[:3]] == [dict, Exhausted, dict]
        assert str(outcomes[1]) == "the budget does not cover it; nothing was done"
        assert not any(isinstance(outcome, BaseException) for outcome in outcomes[3:])
        assert await db.fetchval("SELECT value FROM meta WHERE key = 'k'") == ("v" if beside else None)
        kept = await db.fetchrow("SELECT seq, (SELECT reserved FROM budgets) AS reserved FROM journal_head")
        assert tuple(kept) == (4, 10)

    on(shared().new_database(), act)


@pytest.mark.parametrize("amount", [["list"], 1.5, "many"])
def test_what_a_view_cannot_hold_is_refused_with_its_unit_only(amount: object) -> None:
    async def act(store: PostgresAdapter, _: asyncpg.Connection) -> None:
        bad = told("x", "artifact.stored", digest="d", bytes=amount, run="r")
        units = [
            Rows([row_of(said("a"))]),
            Rows([bad]),
            Rows([told("y", "artifact.stored", digest="e", bytes=1, run="r")]),
        ]
        outcomes = await asyncio.gather(*map(store.commit, units), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [dict, BadInput, dict]

    on(shared().new_database(), act)


def test_the_function_is_made_anew_when_it_is_another_and_all_go_on_with_it_and_the_views_stay() -> None:
    url = shared().new_database()

    def opened(session: str) -> Rows:
        return Rows([told(session, "session.opened", session=session, agent="bee", group="main", thread="")])

    async def act(store: PostgresAdapter, db: asyncpg.Connection) -> None:
        await store.commit(opened("s1"))
        await db.execute("UPDATE sessions SET reason = 'as it was'")
        await db.execute("DROP FUNCTION rucher_fold")
        await db.execute(
            "CREATE FUNCTION rucher_fold(before BIGINT, folds JSONB) RETURNS VOID LANGUAGE plpgsql AS 'BEGIN NULL; END'"
        )
        await store.commit(opened("not folded"))
        await (await open_postgres(url, SystemClock(), write=True)).close()
        await store.commit(opened("s2"))
        found = await db.fetch("SELECT session_id, reason FROM sessions ORDER BY session_id")
        assert [tuple(row) for row in found] == [("s1", "as it was"), ("s2", "")]

    on(url, act)


def test_what_must_change_something_is_what_the_function_says_it_of() -> None:
    assert set(named("views.sql")) >= MUST_CHANGE
    assert function.function_body().count("IF NOT FOUND") == len(MUST_CHANGE)


def test_the_events_of_a_trace_are_looked_up_in_a_database_that_was_never_analyzed() -> None:
    async def act(store: PostgresAdapter, db: asyncpg.Connection) -> None:
        await store.commit(Rows([row_of(run_event("r", 0, 0))]))
        await db.execute(_MANY)
        plan = await db.fetch(f"EXPLAIN {function.statements('queries.sql')['event.of_trace'][0]}", "t", "t")
        assert not [row[0] for row in plan if "Seq Scan on events" in row[0]]

    on(shared().new_database(), act)


_MANY = """
INSERT INTO runs SELECT made.* FROM runs, generate_series(10, 10000) AS n, jsonb_populate_record(runs, jsonb_build_object(
    'run_id', n, 'seq', n, 'trace_id', n)) AS made;
INSERT INTO events SELECT made.* FROM events, generate_series(10, 50000) AS n, jsonb_populate_record(events, jsonb_build_object(
    'seq', n, 'run_no', n / 5, 'run_seq', n % 5)) AS made;"""
