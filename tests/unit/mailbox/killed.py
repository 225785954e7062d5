"""A writer of a mailbox file that is killed in the middle of a commit, for real."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path


def kill_in_commit(path: Path, table: str) -> None:
    """Leave a real hot journal: a writer is killed after pages of an uncommitted transaction went to the file."""
    script = f"""
        import os, signal, sqlite3
        c = sqlite3.connect({str(path)!r}, isolation_level=None)
        c.execute("PRAGMA journal_mode = PERSIST")
        c.execute("PRAGMA cache_size = 2")
        c.execute("BEGIN IMMEDIATE")
        for i in range(400):
            c.execute("INSERT INTO {table} SELECT {100001 if table == "outbound" else 100000} + 2 * ?1, " + (
                "'progress', 2, 'spill', 1, json_quote(hex(zeroblob(500)))" if {table!r} == "outbound"
                else "'spill' || ?1, 'message', 1, json_quote(hex(zeroblob(500))), 'pending'"), (i,))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.with_name(path.name + "-journal").stat().st_size > 0
