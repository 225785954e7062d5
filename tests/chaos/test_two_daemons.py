"""A second daemon on a store that one works on already: it is refused, and nothing is done twice."""

import asyncio
import shutil
import signal
from pathlib import Path

import asyncpg
import pytest

from tests.chaos.crew import new_postgres
from tests.fakes.hive import Hive, resting


def refused(hive: Hive) -> str:
    done = hive.rucher("up")
    assert done.returncode == 2
    return done.stderr


def test_another_instance_on_the_same_database_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUCHER_STORE_URL", new_postgres(tmp_path))
    (tmp_path / "other").mkdir()
    with resting(tmp_path) as first, resting(tmp_path / "other") as second:
        first.start()
        first.told("send", "one")
        assert "this store belongs to another instance" in refused(second)
        first.stop()
        assert "this store belongs to another instance" in refused(second), "also when nobody runs"


def test_a_copy_of_the_instance_on_the_same_database_is_refused_with_the_holders_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUCHER_STORE_URL", new_postgres(tmp_path))
    (tmp_path / "other").mkdir()
    with resting(tmp_path) as first, resting(tmp_path / "other") as copy:
        first.start()
        first.told("send", "one")
        (copy.state).mkdir(exist_ok=True)
        shutil.copy(first.instance.node_key, copy.instance.node_key)
        shutil.copy(first.instance.seal_head, copy.instance.seal_head)
        assert first.process is not None
        assert f"pid {first.process.pid}" in refused(copy)
        first.kill()
        copy.start()
        assert [event["body"]["text"] for event in copy.events("ev.*.cli.message")] == ["one"]


def test_a_daemon_that_stood_still_while_another_took_over_writes_nothing_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_postgres(tmp_path)
    monkeypatch.setenv("RUCHER_STORE_URL", url)
    (tmp_path / "other").mkdir()
    with resting(tmp_path) as first, resting(tmp_path / "other") as copy:
        first.start()
        first.told("send", "one", "--wait")
        shutil.copy(first.instance.node_key, copy.instance.node_key)
        shutil.copy(first.instance.seal_head, copy.instance.seal_head)
        assert first.process is not None
        first.process.send_signal(signal.SIGSTOP)
        asyncio.run(_cut_off(url))
        copy.start()
        copy.told("send", "two", "--wait")
        first.process.send_signal(signal.SIGCONT)
        assert first.process.wait(60) != 0
        assert "another daemon" in (first.root / "terminal.log").read_text("utf-8")
        copy.told("send", "three", "--wait")
        kinds = [event["type"] for event in copy.events("ev.*.rucher.>")]
        assert kinds.count("delivery.sending") == kinds.count("delivery.delivered") == 3
        assert copy.rucher("journal", "verify").stdout.startswith("good")


async def _cut_off(url: str) -> None:
    """End all connections of the database's writers, as the loss of their machine would."""
    db = await asyncpg.connect(url)
    try:
        await db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    finally:
        await db.close()
