"""absurd, as its documentation shows it and its users run it: tasks are spawned, and its own worker works them off.

The worker has `concurrency` threads and one connection. Another client spawns the tasks meanwhile, so that none has to wait
for the worker's next look. `absurd_clients` is a faster way to use it.
"""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import psycopg
from absurd_sdk import Absurd
from absurdctl import BUNDLED_SCHEMA_SQL

from benchmarks.peers import on_postgres
from benchmarks.peers.work import RESULT, Stopwatch, Work, report

RECORDED = "SELECT count(*) FROM absurd.c_default"


def main() -> None:
    """Measure."""
    work = Work.read("postgres")
    make_queue(work)
    app, spawner = Absurd(work.url), Absurd(work.url)
    ended, wanted = itertools.count(1), 0

    def after_each() -> None:
        if next(ended) == wanted:
            app.stop_worker()

    register_flow(app, work, after_each)
    register_flow(spawner, work, after_each)

    def work_off(runs: int) -> None:
        """Spawn so many, and return when all have ended."""
        nonlocal ended, wanted
        ended, wanted = itertools.count(1), runs
        spawner.spawn("flow", {})
        spawning = threading.Thread(target=lambda: [spawner.spawn("flow", {}) for _ in range(runs - 1)])
        spawning.start()
        app.start_worker(concurrency=work.concurrency)
        spawning.join()

    work_off(work.concurrency)
    before = on_postgres.value(work.url, RECORDED)
    watch = Stopwatch.start()
    work_off(work.runs)
    figures = watch.figures(work.runs * work.steps)
    report(figures | {"committed": on_postgres.value(work.url, RECORDED) - before})


def make_queue(work: Work) -> None:
    """Its schema and a queue, in an empty database."""
    with psycopg.connect(work.url, autocommit=True) as connection:
        connection.execute(BUNDLED_SCHEMA_SQL)
        Absurd(connection).create_queue()


def register_flow(client: Absurd, work: Work, after_each: Callable[[], None]) -> None:
    """Let the client know the task `flow`: all steps of one run, after which this process does `after_each`."""

    def flow(_parameters: object, context: Any) -> None:
        for step in range(work.steps):
            context.step(f"step {step}", lambda: RESULT)
        after_each()

    client.register_task("flow")(flow)


if __name__ == "__main__":
    main()
