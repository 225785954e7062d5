"""The bare driver: a connection a task, one row a commit. No run is kept, nothing can resume."""

import asyncio
from typing import Any

import asyncpg

from benchmarks.peers import on_postgres
from benchmarks.peers.driver_psycopg import SCHEMA
from benchmarks.peers.work import RESULT, Stopwatch, Work, report

INSERT = "INSERT INTO steps VALUES ($1, $2, $3)"
COUNT = "SELECT count(*) FROM steps"


async def measure(work: Work) -> dict[str, Any]:
    """The figures of all connections at once, after a run on each."""
    connections = [await asyncpg.connect(work.url) for _ in range(work.concurrency)]
    await connections[0].execute(SCHEMA)
    await _all(work, connections, range(work.concurrency))
    before = on_postgres.value(work.url, COUNT)
    watch = Stopwatch.start()
    await _all(work, connections, range(work.concurrency, work.concurrency + work.runs))
    return watch.figures(work.runs * work.steps) | {"committed": on_postgres.value(work.url, COUNT) - before}


async def _all(work: Work, connections: list[Any], numbers: range) -> None:
    rest = iter(numbers)

    async def busy(connection: Any) -> None:
        for number in rest:
            for step in range(work.steps):
                await connection.execute(INSERT, number, step, str(RESULT))

    async with asyncio.TaskGroup() as tasks:
        for connection in connections:
            tasks.create_task(busy(connection))


if __name__ == "__main__":
    report(asyncio.run(measure(Work.read("postgres"))))
