"""The servers and the proxy that other tests trust must do what they promise."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest

from tests.fakes.cutter import Cut, Cutter
from tests.fakes.hive import until
from tests.fakes.postgres import Server, Standby, is_gone, shared

LOST = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@pytest.fixture
def database() -> str:
    """The name of a database with one empty table `t`."""
    url = shared().new_database()
    ask(url, "CREATE TABLE t (n int)")
    return url.split("/")[-1].split("?")[0]


ROOT = Path(__file__).resolve().parents[2]


def ask(url: str, statement: str, *arguments: object) -> list[asyncpg.Record]:
    """The rows of one statement, on a connection of its own."""

    async def go() -> list[asyncpg.Record]:
        db = await asyncpg.connect(url, timeout=10)
        try:
            return list(await db.fetch(statement, *arguments))
        finally:
            await db.close(timeout=5)

    return asyncio.run(go())


def rows(url: str) -> list[int]:
    return [row["n"] for row in ask(url, "SELECT n FROM t ORDER BY n")]


def test_a_killed_server_starts_again_with_all_that_it_acknowledged(server: Server) -> None:
    url = server.new_database()
    ask(url, "CREATE TABLE t (n int)")
    for n in range(3):
        ask(url, "INSERT INTO t VALUES ($1)", n)
    assert server.sql("SHOW fsync") == server.sql("SHOW synchronous_commit") == "on"
    assert server.data.exists()
    postmaster = psutil.Process(int((server.folder / "pid").read_text("ascii")))
    family = [postmaster, *postmaster.children(recursive=True)]
    server.kill()
    assert all(map(is_gone, family))
    with pytest.raises(LOST):
        rows(url)
    assert rows(server.start().url("t1")) == [0, 1, 2]
    server.restart("immediate")
    assert rows(url) == [0, 1, 2]
    assert server.url("t1") == url


@pytest.mark.parametrize("way", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_ends_and_leaves_nothing_when_its_test_process_is_killed(way: signal.Signals) -> None:
    program = "from tests.fakes.postgres import shared; print(shared().folder, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as test:
        assert test.stdout is not None
        folder = Path(test.stdout.readline().strip())
        postmaster = psutil.Process(int((folder / "pid").read_text("ascii")))
        test.send_signal(way)
    until(lambda: not folder.exists(), "the folder is still there")
    until(lambda: is_gone(postmaster), "the server still runs")


def test_a_closed_server_leaves_no_folder_and_no_shared_memory_even_when_it_was_killed() -> None:
    server = Server().start()
    segment = (server.data / "postmaster.pid").read_text("ascii").splitlines()[6].split()[1]
    server.kill()
    assert segment in _segments()
    server.close()
    assert segment not in _segments()
    assert not server.folder.exists()


def test_a_promoted_standby_has_every_commit_that_the_killed_primary_acknowledged(server: Server) -> None:
    url = server.new_database()
    ask(url, "CREATE TABLE t (n int)")
    with Standby(server) as standby:
        for n in range(20):
            ask(url, "INSERT INTO t VALUES ($1)", n)
        server.kill()
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            ask(standby.url("t1"), "INSERT INTO t VALUES (20)")
        standby.promote()
        ask(standby.url("t1"), "INSERT INTO t VALUES (20)")
        assert rows(standby.url("t1")) == list(range(21))


def test_a_database_starts_as_its_template_and_is_its_own(database: str) -> None:
    ask(shared().url(database), "INSERT INTO t VALUES (1)")
    copy = shared().new_database(template=database)
    ask(copy, "INSERT INTO t VALUES (2)")
    assert rows(copy) == [1, 2]
    assert rows(shared().url(database)) == [1]


def test_tcp_wants_the_password(database: str) -> None:
    assert rows(shared().url(database, tcp=True)) == []
    with pytest.raises(asyncpg.InvalidPasswordError):
        rows(shared().url(database, tcp=True, password="wrong"))  # noqa: S106


def test_a_proxy_passes_delays_and_refuses(database: str) -> None:
    with Cutter(shared().port) as cutter:
        url = shared().url(database, tcp=True, port=cutter.port)
        ask(url, "INSERT INTO t VALUES ($1)", 1)
        assert rows(url) == [1]
        cutter.delay_s = 0.05
        before = time.monotonic()
        assert rows(url) == [1]
        assert time.monotonic() - before > 0.1
        cutter.refusing = True
        with pytest.raises(LOST):
            rows(url)


def test_a_cut_ends_open_connections(database: str) -> None:
    async def go() -> None:
        with Cutter(shared().port) as cutter:
            db = await asyncpg.connect(shared().url(database, tcp=True, port=cutter.port))
            cutter.cut()
            with pytest.raises(LOST):
                await db.fetch("SELECT 1")

    asyncio.run(go())


async def _one_statement(db: asyncpg.Connection) -> None:
    await db.fetch("INSERT INTO t VALUES ($1) RETURNING n", 1)


async def _simple_statement(db: asyncpg.Connection) -> None:
    await db.execute("INSERT INTO t VALUES (1)")


async def _transaction(db: asyncpg.Connection) -> None:
    async with db.transaction():
        await db.fetch("INSERT INTO t VALUES ($1) RETURNING n", 1)


@pytest.mark.parametrize("act", [_one_statement, _simple_statement, _transaction])
@pytest.mark.parametrize(("cut", "landed"), [(Cut.BEFORE, [[]]), (Cut.AFTER, [[1]]), (Cut.RACING, [[], [1]])])
def test_a_cut_at_a_commit_loses_the_answer_and_decides_what_landed(
    database: str, act: object, cut: Cut, landed: list[list[int]]
) -> None:
    async def go() -> None:
        with Cutter(shared().port) as cutter:
            db = await asyncpg.connect(shared().url(database, tcp=True, port=cutter.port))
            await db.fetch("SELECT n FROM t WHERE n = $1", 1)
            cutter.cut_at_commit(cut)
            await db.fetch("SELECT n FROM t WHERE n = $1", 2)
            with pytest.raises(LOST):
                await act(db)  # type: ignore[operator]
            assert cutter.cuts == 1

    asyncio.run(go())
    assert rows(shared().url(database)) in landed


@pytest.mark.parametrize("act", [_one_statement, _transaction])
def test_a_late_commit_lands_after_the_client_has_looked(database: str, act: object) -> None:
    async def go() -> None:
        with Cutter(shared().port) as cutter:
            db = await asyncpg.connect(shared().url(database, tcp=True, port=cutter.port))
            cutter.cut_at_commit(Cut.LATE, writing="INSERT INTO t")
            with pytest.raises(LOST):
                await act(db)  # type: ignore[operator]
            again = await asyncpg.connect(shared().url(database, tcp=True, port=cutter.port))
            assert await again.fetch("SELECT n FROM t") == []
            await asyncio.to_thread(cutter.release)
            assert [row["n"] for row in await again.fetch("SELECT n FROM t")] == [1]
            await again.close()

    asyncio.run(go())


def _segments() -> list[str]:
    listed = subprocess.run(["ipcs", "-m"], capture_output=True, text=True, check=True).stdout
    return [line.split()[1] for line in listed.splitlines() if len(line.split()) > 5]
