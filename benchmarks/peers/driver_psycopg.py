"""The bare driver: a connection a thread, one row a commit. No run is kept, nothing can resume."""

import psycopg

from benchmarks.peers import on_postgres
from benchmarks.peers.work import RESULT, Work, Worker, report, steady

SCHEMA = "CREATE TABLE steps (run bigint, step int, result text, PRIMARY KEY (run, step))"


def main() -> None:
    """Measure."""
    work = Work.read("postgres")
    with psycopg.connect(work.url, autocommit=True) as connection:
        connection.execute(SCHEMA)

    def worker() -> Worker:
        own = psycopg.connect(work.url, autocommit=True, prepare_threshold=0)

        def run(number: int) -> None:
            for step in range(work.steps):
                own.execute("INSERT INTO steps VALUES (%s, %s, %s)", (number, step, str(RESULT)))

        return run

    workers = [worker() for _ in range(work.concurrency)]
    report(steady(work, workers, lambda: on_postgres.value(work.url, "SELECT count(*) FROM steps")))


if __name__ == "__main__":
    main()
