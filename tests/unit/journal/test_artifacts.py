"""Artifacts: what was put is there after a power cut, is never changed, and goes only when nothing refers to it."""

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Set
from pathlib import Path

import pytest

from rucher.journal.artifacts import Artifacts
from rucher.protocol.errors import BadInput, Corrupt, Retryable

HELLO = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
NOW = 2_000_000_000.0
MEETINGS, PATIENCE_S = 50, 60
DAY = 86_400.0


def path_of(folder: Path, digest: str) -> Path:
    name = digest.removeprefix("sha256:")
    return folder / name[:2] / name[2:]


def age(path: Path, seconds: float) -> None:
    os.utime(path, (NOW - seconds, NOW - seconds))


def nothing(_digests: Iterable[str]) -> Set[str]:
    return set()


def everything(digests: Iterable[str]) -> Set[str]:
    return set(digests)


def temporaries(folder: Path) -> list[Path]:
    return list(folder.rglob("new-*"))


def test_what_was_put_is_found_under_its_own_hash(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path / "artifacts")
    assert artifacts.put(b"hello") == HELLO
    assert artifacts.get(HELLO) == b"hello"
    assert artifacts.get(artifacts.put(b"")) == b""
    assert temporaries(tmp_path) == []


def test_only_their_owner_can_read_them(tmp_path: Path) -> None:
    path = path_of(tmp_path / "artifacts", Artifacts(tmp_path / "artifacts").put(b"hello"))
    assert [oct(each.stat().st_mode & 0o777) for each in (path, path.parent, path.parent.parent)] == [
        "0o600",
        "0o700",
        "0o700",
    ]


def test_the_bytes_and_then_every_name_on_the_way_are_durable_before_a_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "artifacts"
    path = path_of(folder, HELLO)
    synced: list[tuple[int, bool]] = []

    def fsync(descriptor: int, really: object = os.fsync) -> None:
        assert callable(really)
        really(descriptor)
        synced.append((os.fstat(descriptor).st_ino, path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    Artifacts(folder).put(b"hello")
    assert (path.stat().st_ino, False) in synced, "the bytes, before the file has its name"
    assert (path.parent.stat().st_ino, True) in synced, "the file's name"
    assert (folder.stat().st_ino, False) in synced, "the name of the folder it lies in"
    assert (tmp_path.stat().st_ino, False) in synced
    synced.clear()
    Artifacts(folder).put(b"hello")
    assert (path.parent.stat().st_ino, True) in synced, "another may have written it and not come so far"


def test_the_same_bytes_are_not_written_again(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    path = path_of(tmp_path, artifacts.put(b"hello"))
    file = path.stat().st_ino
    assert artifacts.put(b"hello") == HELLO
    assert path.stat().st_ino == file


@pytest.mark.parametrize("damaged", [b"hellO", b"hell", b""])
def test_a_damaged_file_is_told_and_is_healed_by_the_next_put(tmp_path: Path, damaged: bytes) -> None:
    artifacts = Artifacts(tmp_path)
    path = path_of(tmp_path, artifacts.put(b"hello"))
    path.write_bytes(damaged)
    with pytest.raises(Corrupt, match=f"{path} is damaged; put a backup"):
        artifacts.get(HELLO)
    artifacts.put(b"hello")
    assert artifacts.get(HELLO) == b"hello"


def test_a_missing_file_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Corrupt, match=rf"{HELLO} is missing from {tmp_path}; put a backup of the folder in its place"):
        Artifacts(tmp_path).get(HELLO)


@pytest.mark.parametrize("digest", ["", HELLO[7:], HELLO.upper(), "sha256:../../etc/passwd", HELLO + "\n"])
def test_what_is_no_digest_reaches_no_file(tmp_path: Path, digest: str) -> None:
    with pytest.raises(BadInput, match="names no artifact"):
        Artifacts(tmp_path).get(digest)


def test_a_sweep_removes_what_is_old_and_unreferenced_and_nothing_else(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    kept, young, old = (path_of(tmp_path, artifacts.put(data)) for data in (b"kept", b"young", b"old"))
    stranger = kept.with_name("notes.txt")
    left, writing = kept.with_name("new-left"), kept.with_name("new-writing")
    for path in (stranger, left, writing):
        path.touch()
    for path in (kept, old, stranger, left):
        age(path, DAY + 1)
    for path in (young, writing):
        age(path, DAY - 1)
    asked: list[str] = []

    def referenced(digests: Iterable[str]) -> Set[str]:
        asked.extend(digests)
        return {f"sha256:{kept.parent.name}{kept.name}"}

    assert artifacts.sweep(referenced, DAY, NOW) == 2
    assert [path.exists() for path in (kept, young, old, stranger, left, writing)] == [
        True, True, False, True, False, True,
    ]  # fmt: skip
    assert sorted(asked) == sorted(f"sha256:{path.parent.name}{path.name}" for path in (kept, old))


def test_a_sweep_asks_about_many_in_parts(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    hello = path_of(tmp_path, artifacts.put(b"hello"))
    age(hello, 0)
    shard = hello.parent
    for number in range(1200):
        path = shard / f"{number:062x}"
        path.touch()
        age(path, DAY + 1)
    parts: list[int] = []

    def referenced(digests: Iterable[str]) -> Set[str]:
        parts.append(len(list(digests)))
        return set()

    assert artifacts.sweep(referenced, DAY, NOW) == 1200
    assert max(parts) <= 500
    assert artifacts.get(HELLO) == b"hello"


def test_a_sweep_of_nothing_removes_nothing(tmp_path: Path) -> None:
    assert Artifacts(tmp_path / "none").sweep(everything, 0.0, NOW) == 0


def test_a_put_between_the_question_and_the_removal_keeps_its_file(tmp_path: Path) -> None:
    artifacts, other = Artifacts(tmp_path), Artifacts(tmp_path)
    age(path_of(tmp_path, artifacts.put(b"hello")), 1e9)
    now = path_of(tmp_path, artifacts.put(b"now")).stat().st_mtime

    def referenced(_digests: Iterable[str]) -> Set[str]:
        other.put(b"hello")
        return set()

    assert artifacts.sweep(referenced, DAY, now) == 0
    assert artifacts.get(HELLO) == b"hello"


def test_a_put_between_the_last_look_and_the_removal_keeps_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts, other = Artifacts(tmp_path), Artifacts(tmp_path)
    path = path_of(tmp_path, artifacts.put(b"hello"))
    age(path, 1e9)
    late = threading.Thread(target=other.put, args=(b"hello",))

    def unlink(removed: Path, really: Callable[[Path], None] = Path.unlink) -> None:
        if removed == path:
            late.start()
            late.join(0.2)  # as far as it gets by itself
        really(removed)

    monkeypatch.setattr(Path, "unlink", unlink)
    assert artifacts.sweep(nothing, DAY, NOW) == 1
    late.join()
    assert artifacts.get(HELLO) == b"hello"


def test_puts_and_sweeps_at_once_lose_nothing_that_was_just_put(tmp_path: Path) -> None:
    artifacts, other = Artifacts(tmp_path), Artifacts(tmp_path)
    now = path_of(tmp_path, artifacts.put(b"now")).stat().st_mtime
    finished, removed = threading.Event(), []

    def sweep() -> None:
        while not finished.is_set():
            removed.append(other.sweep(nothing, DAY, now))

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        deadline = time.monotonic() + PATIENCE_S
        while sum(removed) < MEETINGS and time.monotonic() < deadline:
            digest = artifacts.put(b"again")
            assert artifacts.get(digest) == b"again"
            os.utime(path_of(tmp_path, digest), (0, 0))
            time.sleep(random.uniform(0, 0.0005))
    finally:
        finished.set()
        sweeper.join()
    assert sum(removed) >= MEETINGS, "the two never met"


def test_many_writers_of_the_same_bytes_leave_one_whole_file(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4096
    digests: list[str] = []
    threads = [threading.Thread(target=lambda: digests.append(Artifacts(tmp_path).put(data))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(digests) == 8
    assert Artifacts(tmp_path).get(digests[0]) == data
    assert len([path for path in tmp_path.glob("*/*") if path.is_file()]) == 1


ON_A_SMALL_DISK = """
import subprocess, sys
from pathlib import Path
from rucher.journal.artifacts import Artifacts
from rucher.protocol.errors import Retryable

folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], check=True)
artifacts = Artifacts(folder)
small = artifacts.put(b"small")
for data, option in ((bytes(1_000_000), "rw"), (b"more", "ro")):
    subprocess.run(["mount", "-o", f"remount,{option}", folder], check=True)
    try:
        artifacts.put(data)
    except Retryable as error:
        print(error)
    assert artifacts.get(small) == b"small"
    assert not list(folder.rglob("new-*"))
subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
artifacts.get(artifacts.put(b"more"))
"""


def test_a_full_or_read_only_disk_is_told_and_costs_nothing_that_was_there(tmp_path: Path) -> None:
    alone = ("unshare", "--user", "--map-root-user", "--mount")
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets no test mount a small disk of its own")
    command = [*alone, sys.executable, "-c", ON_A_SMALL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    full, read_only = done.stdout.splitlines()
    assert "No space left on device" in full
    assert "Read-only file system" in read_only
    for line in (full, read_only):
        assert line.endswith("free disk space or make the folder writable, then try again")


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Retryable, match="cannot be used just now"):
        Artifacts(tmp_path / "file" / "artifacts").put(b"hello")
