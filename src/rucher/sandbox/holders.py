"""Who holds a session's heartbeat: its runner, whichever process of this machine started that one, alive or dead by now.

A runner keeps a lock on the file as long as it lives (docs/mailbox.md), and is process 1 of its sandbox.
"""

import fcntl
import os
import signal
from contextlib import suppress
from pathlib import Path

from rucher.mailbox.schema import refused

_LOCKS = Path("/proc/locks")


def is_held(heartbeat: Path) -> bool:
    """Whether a runner of the session lives. Raises MailboxError when the file cannot be opened."""
    try:
        descriptor = os.open(heartbeat, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise refused(str(heartbeat), error) from error
    try:
        # A runner that starts at this very moment tries again.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def kill_holder(heartbeat: Path) -> None:
    """Kill the process that holds it, and so its sandbox, if that one can be seen from here."""
    holder = _holder(heartbeat)
    if holder is None:
        return
    with suppress(ProcessLookupError):
        process = os.pidfd_open(holder)
        try:
            # The number may be another process's by now; what is open cannot be.
            if _holder(heartbeat) == holder:
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)


def _holder(heartbeat: Path) -> int | None:
    status = heartbeat.stat(follow_symlinks=False)
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in _LOCKS.read_text("ascii").splitlines():
        match line.split():
            case [_, "FLOCK", _, "WRITE", pid, place, *_] if place == file and int(pid) > 0:
                return int(pid)
            case _:
                continue
    return None
