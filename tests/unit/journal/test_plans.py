"""No question that is asked while an instance works reads through a table that grows for ever."""

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rucher.journal.statements import named
from rucher.journal.store import open_store
from rucher.protocol.clock import SystemClock

GROWING = ("events", "runs", "hops", "waits", "signals", "budgets", "steers", "artifacts", "deliveries")
OF_WHAT_IS_OPEN = (
    "runs_wished",
    "runs_waiting",
    "runs_to_claim",
    "runs_by_lane",
    "hops_open",
    "hops_ended_badly",
    "hops_untold",
    "deliveries_not_delivered",
    "waits_due",
)
"""Partial indexes: they hold what goes on, or what a person still has to look at."""
READ_THROUGH = {"event.anywhere", "event.count", "artifacts.all"}
"""Asked by a person, or by the daily sweep of artifacts."""
_QUERIES = named("queries.sql")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    async def made(path: Path) -> None:
        async with open_store(path, SystemClock()):
            pass

    path = tmp_path_factory.mktemp("plans") / "rucher.db"
    asyncio.run(made(path))
    return path


@pytest.mark.parametrize("statement", sorted(_QUERIES.keys() - READ_THROUGH))
def test_a_statement_reads_no_growing_table_through(database: Path, statement: str) -> None:
    sql = _QUERIES[statement]
    with closing(sqlite3.connect(database)) as db:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", [1] * sql.count("?"))]
    scans = [
        match for line in plan if (match := re.fullmatch(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", line))
    ]
    assert [scan[0] for scan in scans if scan[1] in GROWING and scan[2] not in OF_WHAT_IS_OPEN] == []
