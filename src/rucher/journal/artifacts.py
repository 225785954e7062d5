"""Content-addressed files for results too large for an event: `ab/cdef...`, named by the SHA-256 of what they hold.

Called by the kernel, in a thread, before an event that names the digest is committed. It never changes a file in place, and
never removes one that an event refers to. Whoever refers to an artifact puts it first, even when it is there already, and
commits the reference within the time that `sweep` grants.
"""

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from rucher.protocol.errors import BadInput, Corrupt, Retryable

_DIGEST = re.compile(r"sha256:([0-9a-f]{2})([0-9a-f]{62})")
_SHARD = re.compile(r"[0-9a-f]{2}")
_REST = re.compile(r"[0-9a-f]{62}")
_TEMPORARY = "new-"
_BATCH = 500
"""Digests that one question about references names at most."""


class Artifacts:
    """The artifacts in one folder, which any number of threads and processes may use at once."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made at the first `put`."""
        self._folder = folder
        self._durable: set[Path] = set()

    def put(self, data: bytes) -> str:
        """Keep `data` and return its digest, `sha256:<hex>`, once a power cut cannot take it any more.

        Bytes that are there already are not written again; a damaged file of theirs is replaced. Raises Retryable.
        """
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        path = self.path(digest)
        try:
            self._make_shard(path.parent)
            if self._refresh(path) and _digest_of(path) == digest:
                # Whoever wrote it may not have come as far as making its name durable.
                sync_folder(path.parent)
            else:
                with durable_file(path, self._while_nothing_is_removed) as file:
                    file.write(data)
        except OSError as error:
            raise _unusable(self._folder, error) from error
        return digest

    def get(self, digest: str) -> bytes:
        """The bytes with this digest; raises Corrupt when they are missing or damaged, BadInput, Retryable."""
        path = self.path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise Corrupt(
                f"the artifact {digest} is missing from {self._folder}; put a backup of the folder in its place"
            ) from None
        except OSError as error:
            raise _unusable(self._folder, error) from error
        if "sha256:" + hashlib.sha256(data).hexdigest() != digest:
            raise Corrupt(f"the artifact {path} is damaged; put a backup of the file in its place")
        return data

    def sweep(self, referenced: Callable[[Iterable[str]], Set[str]], older_than_s: float, now_s: float) -> int:
        """Remove what nothing refers to and what interrupted puts left behind; returns how many files were removed.

        `referenced` tells which of the given digests are referred to. Only files older than `older_than_s` are removed: it
        must exceed the longest time from a put to the commit of its reference, and any jump of the clock; a day is ample.
        `now_s` is seconds since the epoch by the machine's clock. Raises Retryable, and what `referenced` raises.
        """
        before = now_s - older_than_s
        removed = 0
        try:
            old = (path for path in self._files() if _older(path, before))
            while batch := list(islice(old, _BATCH)):
                digests = {
                    path: f"sha256:{path.parent.name}{path.name}" for path in batch if _REST.fullmatch(path.name)
                }
                kept = referenced(digests.values()) if digests else frozenset()
                removed += sum(self._remove(path, before) for path in batch if digests.get(path) not in kept)
        except OSError as error:
            raise _unusable(self._folder, error) from error
        return removed

    def path(self, digest: str) -> Path:
        """Where the bytes with this digest lie, or would; raises BadInput for what names no artifact."""
        parts = _DIGEST.fullmatch(digest)
        if parts is None:
            raise BadInput(f"{digest!r} names no artifact: sha256: and 64 hexadecimal digits are expected")
        return self._folder / parts[1] / parts[2]

    def _make_shard(self, shard: Path) -> None:
        """Make the folder of a file, and its name durable; again when someone removed it meanwhile."""
        if shard in self._durable and shard.is_dir():
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        shard.mkdir(mode=0o700, exist_ok=True)
        sync_folder(self._folder)
        sync_folder(self._folder.parent)
        self._durable.add(shard)

    def _refresh(self, path: Path) -> bool:
        """Make a file young, so that no sweep removes it; False when there is none."""
        with self._while_nothing_is_removed():
            try:
                os.utime(path)
            except FileNotFoundError:
                return False
        return True

    def _remove(self, path: Path, before: float) -> bool:
        """Remove the file unless a put made it young, or took its place, since it was looked at."""
        with self._lock(fcntl.LOCK_EX):
            if not _older(path, before):
                return False
            path.unlink()
        return True

    def _files(self) -> Iterator[Path]:
        """Every artifact and every temporary; nothing else that may lie there."""
        if not self._folder.exists():
            return
        for shard in sorted(self._folder.iterdir()):
            if _SHARD.fullmatch(shard.name):
                with os.scandir(shard) as entries:
                    yield from (shard / entry.name for entry in entries if _ours(entry.name))

    def _while_nothing_is_removed(self) -> AbstractContextManager[None]:
        return self._lock(fcntl.LOCK_SH)

    @contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        """Held only for a system call or two: between a sweep's last look at a file and its removal, no put gets in."""
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, kind)
            yield
        finally:
            os.close(descriptor)


@contextmanager
def durable_file(path: Path, placing: Callable[[], AbstractContextManager[None]] = nullcontext) -> Iterator[BinaryIO]:
    """A file to write, which lies at `path` with all its bytes, whatever happens, once the block is left without an error.

    Before that nothing is seen at `path`, and an error leaves it as it was. It is given its name within `placing()`. What a
    kill leaves behind is named `new-<name>-...`. Mode 0600. Raises OSError.
    """
    temporary = path.with_name(f"{_TEMPORARY}{path.name}-{os.urandom(8).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with placing():
            temporary.replace(path)
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell; what is left is swept
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _ours(name: str) -> bool:
    return name.startswith(_TEMPORARY) or _REST.fullmatch(name) is not None


def _older(path: Path, before: float) -> bool:
    try:
        return path.stat().st_mtime < before
    except FileNotFoundError:
        return False


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def _unusable(folder: Path, error: OSError) -> Retryable:
    return Retryable(
        f"the artifacts in {folder} cannot be used just now ({error.strerror or error}); "
        "free disk space or make the folder writable, then try again"
    )
