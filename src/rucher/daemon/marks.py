"""A file a worker, locked while its process lives: so that whoever shares the folder sees at once when one is dead.

The operating system drops a lock when its holder dies, however it dies. A stopped process keeps it: that one's lease must end.
"""

import fcntl
import os
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
            yield
        finally:
            os.close(descriptor)
            path.unlink(missing_ok=True)

    def tidy(self, known: Collection[str]) -> None:
        """Remove the marks of the dead whose rows are gone."""
        for path in self._folder.iterdir():
            if path.name not in known and _is_free(path):
                path.unlink(missing_ok=True)

    def is_dead(self, row: Mapping[str, Any]) -> bool:
        """Whether the worker of this row surely is dead; a worker whose mark is elsewhere is not known to be."""
        return _is_free(self._folder / row["worker"])


def _is_free(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
