"""The disk is full, the file system read-only, the file locked: that is said, and work goes on once it is cured."""

import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.chaos.crew import PATIENCE_S, SHORT, Crew, crew, exit_code
from tests.fakes.hive import until


def load(runs: int) -> dict[str, str]:
    return {f"run{number}": "load" for number in range(runs)}


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own; skips the test where nobody may mount one."""
    disk = folder / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "rucher-test", str(disk)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.decode().strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(ballast: Path) -> None:
    """Write until nothing more can be written."""
    with ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def told(workers: Crew, word: str) -> None:
    """Return when the trouble was said in words that hold this one."""
    until(
        lambda: any(word in " ".join(words) for words in workers.outside.lines("trouble")),
        f"no word of {word}",
        PATIENCE_S,
    )


def test_work_waits_for_room_on_a_full_disk_and_goes_on_when_there_is_some(tmp_path: Path) -> None:
    with small_disk(tmp_path, 8) as disk, crew(tmp_path, str(disk / "rucher.db"), load(40)) as workers:
        process = workers.start(small_log=True)
        until(workers.outside.counts, "no work is done", PATIENCE_S)
        with pytest.raises(OSError, match="No space left"):
            fill(disk / "ballast")
        told(workers, "full")
        (disk / "ballast").unlink()
        workers.finish(process)
        workers.demand_whole(repeats=3)


def test_a_store_on_a_read_only_file_system_is_refused_and_goes_on_when_that_is_cured(tmp_path: Path) -> None:
    with small_disk(tmp_path, 32) as disk, crew(tmp_path, str(disk / "rucher.db"), load(20)) as workers:
        process = workers.start()
        until(workers.outside.counts, "no work is done", PATIENCE_S)
        workers.kill(process)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert exit_code(workers.start()) == 1
        assert "rucher.db cannot be opened" in " ".join(workers.outside.lines("crashes")[-1])
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        workers.finish(workers.start())
        workers.demand_whole()


@pytest.mark.parametrize(("held_s", "times"), [(0.6, 1), (0.25, 8)])
def test_work_waits_while_another_process_locks_the_file(tmp_path: Path, held_s: float, times: int) -> None:
    store = tmp_path / "rucher.db"
    with crew(tmp_path, str(store), load(60)) as workers:
        process = workers.start(busy_s=0.1)
        workers.up()
        for _ in range(times):
            with closing(sqlite3.connect(store, isolation_level=None, timeout=10)) as other:
                other.execute("BEGIN IMMEDIATE")
                time.sleep(held_s)
                other.execute("ROLLBACK")
            time.sleep(0.1)
        workers.finish(process)
        told(workers, "locked")
        workers.demand_whole(repeats=times)


def test_a_lock_that_lasts_less_than_the_patience_is_not_noticed(tmp_path: Path) -> None:
    store = tmp_path / "rucher.db"
    with crew(tmp_path, str(store), load(20)) as workers:
        process = workers.start()
        workers.up()
        with closing(sqlite3.connect(store, isolation_level=None, timeout=10)) as other:
            other.execute("BEGIN IMMEDIATE")
            time.sleep(0.5)
            other.execute("ROLLBACK")
        workers.finish(process)
        assert not workers.outside.lines("trouble")
        workers.demand_whole(repeats=0)


def test_a_claim_that_could_not_be_given_back_is_given_back_once_that_is_cured(tmp_path: Path) -> None:
    store = tmp_path / "rucher.db"
    with crew(tmp_path, str(store), {"one": "asking"}) as workers:
        process = workers.start(busy_s=0.1, times=SHORT, gates=("before claim.release",))
        workers.at("before claim.release")
        until(lambda: workers.outside.lines("answered"), "the owner does not answer", PATIENCE_S)
        with closing(sqlite3.connect(store, isolation_level=None, timeout=10)) as other:
            other.execute("BEGIN IMMEDIATE")
            workers.outside.open("open")
            time.sleep(0.5)
            other.execute("ROLLBACK")
        workers.finish(process)
        workers.demand_whole()
