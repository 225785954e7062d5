"""Laws of marks: the dead are seen at once, and nobody is taken for dead by a mark that tells nothing of it."""

import shutil
from pathlib import Path

import pytest

from rucher.daemon.marks import Marks
from tests.fakes.marks import leave_mark


def test_a_worker_is_dead_once_its_process_is(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "workers")
    with marks.hold("alive"):
        leave_mark(tmp_path / "workers", "dead")
        assert [marks.is_dead({"worker": name}) for name in ("alive", "dead", "elsewhere")] == [False, True, False]
        marks.tidy(())
        assert [path.name for path in (tmp_path / "workers").iterdir()] == ["alive"]
    assert list((tmp_path / "workers").iterdir()) == []


def test_a_mark_that_came_with_a_copy_of_the_folder_tells_nothing(tmp_path: Path) -> None:
    with Marks(tmp_path / "workers").hold("alive"):
        shutil.copytree(tmp_path / "workers", tmp_path / "copy")
        copied = Marks(tmp_path / "copy")
        assert not copied.is_dead({"worker": "alive"})
        copied.tidy(())
        assert list((tmp_path / "copy").iterdir()) == []


def test_a_mark_of_another_machine_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_mark(tmp_path, "far")
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    assert not Marks(tmp_path).is_dead({"worker": "far"})


def test_a_mark_that_is_empty_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert not Marks(tmp_path).is_dead({"worker": "a"})
