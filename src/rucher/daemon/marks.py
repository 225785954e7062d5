"""A file a worker, locked while its process lives: so that whoever shares the folder sees at once when one is dead.

The operating system drops a lock when its holder dies, however it dies. A stopped process keeps it: that one's lease must end.
A mark says which file of which machine it is: one that came here by a copy of the folder, or that another machine holds over
a network, tells nothing.
"""

import fcntl
import os
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Marks:
    """The files of all workers of one instance that share this folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def hold(self, worker: str) -> Iterator[None]:
        """Show that this worker lives, as long as the context lasts."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / worker
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.pwrite(descriptor, _identity(descriptor), 0)
            yield
        finally:
            os.close(descriptor)
            path.unlink(missing_ok=True)

    def tidy(self, known: Collection[str]) -> None:
        """Remove the marks of the dead whose rows are gone."""
        for path in self._folder.iterdir():
            if path.name not in known and _is_free(path, wherever=True):
                path.unlink(missing_ok=True)

    def is_dead(self, row: Mapping[str, Any]) -> bool:
        """Whether the worker of this row surely is dead; a worker whose mark is elsewhere is not known to be."""
        return _is_free(self._folder / row["worker"])


def _is_free(path: Path, *, wherever: bool = False) -> bool:
    """Whether the file is there and nobody holds it; `wherever` also when it is no mark that was made here."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        identity = _identity(descriptor)
        if not wherever and os.pread(descriptor, len(identity) + 1, 0) != identity:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def _identity(descriptor: int) -> bytes:
    """Which file this is, on which machine; the same after a restart of the machine."""
    found = os.fstat(descriptor)
    return f"{_machine()} {found.st_dev}:{found.st_ino}\n".encode()


def _machine() -> str:
    """The machine's own id (see machine-id(5)) with its name, so that a machine copied as a whole is another once renamed."""
    path = Path("/etc/machine-id")
    return f"{path.read_text('ascii').strip() if path.is_file() else '-'} {socket.gethostname()}"
