"""A second daemon on a store that one works on already: it is refused, and nothing is done twice."""

import shutil
from pathlib import Path

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
