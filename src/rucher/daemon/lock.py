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
from pathlib import Path

from rucher.protocol.errors import BadInput, Corrupt
from rucher.protocol.ports import Clock

LOOKS, LOOK_S = 5, 0.02
LOOK_HERE_S = 1.0


@contextmanager
def sole_daemon(path: Path) -> Iterator[None]:
    """Hold the instance; raises BadInput naming the holder when another process does."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _locked(descriptor):
            holder = holder_of(path) or "another process"
            raise BadInput(f"a daemon runs on {path.parent.parent} already: {holder}; stop that one first")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        yield
    finally:
        os.close(descriptor)


async def instance_stays(path: Path, clock: Clock) -> None:
    """Raise Corrupt when the instance is no longer where it was: what is written from then on would go to another place."""
    before = await asyncio.to_thread(path.stat)
    while True:
        await clock.sleep(LOOK_HERE_S)
        try:
            now = await asyncio.to_thread(path.stat)
        except OSError:
            now = None
        if now is None or (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino):
            raise Corrupt(
                f"the instance {path.parent.parent} was moved or removed while it ran; start it where it is now"
            )


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
