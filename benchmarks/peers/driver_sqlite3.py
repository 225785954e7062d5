"""The bare driver: one connection, one row a commit, WAL with synchronous FULL. No run is kept, nothing can resume."""

import sqlite3
import threading

from benchmarks.peers import on_sqlite
from benchmarks.peers.work import RESULT, Work, report, steady

SCHEMA = "CREATE TABLE steps (run INTEGER, step INTEGER, result TEXT, PRIMARY KEY (run, step)) WITHOUT ROWID"


def main() -> None:
    """Measure."""
    work = Work.read("sqlite")
    on_sqlite.make_wal(work.file)
    connection = sqlite3.connect(work.file, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(SCHEMA)
    turn = threading.Lock()

    def run(number: int) -> None:
        for step in range(work.steps):
            with turn:  # one writer at a time is what SQLite has; waiting here costs less than its busy time-out
                connection.execute("INSERT INTO steps VALUES (?, ?, ?)", (number, step, str(RESULT)))

    report(steady(work, [run] * work.concurrency, lambda: on_sqlite.value(work.file, "SELECT count(*) FROM steps")))


if __name__ == "__main__":
    main()
