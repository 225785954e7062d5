"""The one-daemon rule: a file lock that the operating system drops when its holder dies, however it dies."""

import asyncio
import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rucher.protocol.errors import BadInput, Corrupt
from rucher.protocol.ports import Clock

LOOKS, LOOK_S = 5, 0.02
LOOK_HERE_S = 1.0


@contextmanager
def sole_daemon(path: Path) -> Iterator["Hold"]:
    """Hold the instance; raises BadInput naming the holder when another process does."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _locked(descriptor):
            holder = holder_of(path) or "another process"
            raise BadInput(f"a daemon runs on {path.parent.parent} already: {holder}; stop that one first")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        file = os.fstat(descriptor)
        yield Hold(path, file.st_dev, file.st_ino)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Hold:
    """The lock as it was taken: where its file was, and which file it is."""

    path: Path
    device: int
    inode: int

    def lost(self) -> Corrupt | None:
        """What to raise when the instance is no longer where it was taken; None while it is."""
        try:
            now = self.path.stat()
        except OSError:
            now = None
        if now is not None and (now.st_dev, now.st_ino) == (self.device, self.inode):
            return None
        place = self.path.parent.parent
        return Corrupt(f"the instance {place} was moved or removed while it ran; start it where it is now")

    async def watch(self, clock: Clock) -> None:
        """Raise Corrupt once the instance was moved: what is written from then on would go to another place."""
        while True:
            await clock.sleep(LOOK_HERE_S)
            if lost := await asyncio.to_thread(self.lost):
                raise lost


def _locked(descriptor: int) -> bool:
    """Whether the lock is ours now; a command that only looks who holds it is waited for."""
    for _ in range(LOOKS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOOK_S)
        else:
            return True
    return False


def holder_of(path: Path) -> str:
    """Who holds the instance now, as `pid N on HOST`; empty when nobody does."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        told = re.fullmatch(rb'\{"pid": (\d+), "host": "([^"\\]+)"\}', os.pread(descriptor, 1000, 0))
        return f"pid {int(told[1])} on {ascii(told[2].decode())[1:-1]}" if told else "another process"
    finally:
        os.close(descriptor)
    return ""
