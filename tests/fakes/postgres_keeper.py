"""Ends one PostgreSQL server of a test and removes its folder, for certain: `postgres_keeper.py FOLDER`.

Started by `postgres.Server` with a pipe as standard input. It does nothing until that pipe closes, which happens when the
test closes the server and also when the test's process is killed. Standard library only: it starts with every server.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 10.0


def end(folder: Path) -> None:
    """End the postmaster that `folder/pid` names, if any; its children end with it."""
    named = folder / "pid"
    if not named.exists():
        return
    pid = int(named.read_text("ascii"))
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGQUIT)
        os.kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + PATIENCE_S
        while (folder / "data" / "postmaster.pid").exists() and time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)


def release_memory(folder: Path) -> None:
    """Remove the shared memory segment that a killed postmaster leaves in the system until its next start."""
    lock = folder / "data" / "postmaster.pid"
    if lock.exists():
        lines = lock.read_text("ascii").splitlines()
        if len(lines) > 6 and len(segment := lines[6].split()) > 1:
            subprocess.run(["ipcrm", "-m", segment[1]], check=False, capture_output=True)


def main(folder: Path) -> None:
    """Wait for the pipe to close, then leave nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end(folder)
    release_memory(folder)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
