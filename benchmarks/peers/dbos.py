"""dbos, as its documentation shows it: workflows of steps, called from threads, over SQLite or PostgreSQL.

Threads are its fastest way: asynchronous workflows reached 70 to 90 % of them. Its SQLite file is given a write-ahead log,
which it does not do itself and which makes it faster.
"""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from dbos import DBOS, DBOSConfig

from benchmarks.peers import on_postgres, on_sqlite
from benchmarks.peers.work import RESULT, Acts, Recovered, Work, report, steady

POLL_S = 0.01
FINISHED = {
    "sqlite": "SELECT count(*) FROM workflow_status WHERE status = 'SUCCESS'",
    "postgres": "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'",
}
RECORDED = {
    "sqlite": "SELECT count(*) FROM operation_outputs",
    "postgres": "SELECT count(*) FROM dbos.operation_outputs",
}
Flow = Callable[[str], None]


def main() -> None:
    """Measure, or hold, or resume."""
    work = Work.read("sqlite", "postgres")
    acts = Acts(work)

    def one(run: str, step: int) -> dict[str, int]:
        acts.act(run, step)
        return RESULT

    act = DBOS.step(name="act")(one)

    def steps(run: str) -> None:
        for step in range(1, work.steps + 1):
            act(run, step)

    flow = DBOS.workflow(name="flow")(steps)
    DBOS(config=_config(work))
    DBOS.launch()
    if work.phase == "steady":
        report(
            steady(
                work, [lambda number: flow(str(number))] * work.concurrency, lambda: _value(work, RECORDED[work.store])
            )
        )
    if work.phase == "hold":
        _all(flow, work, "r")
    report(asdict(_resume(work, flow, acts)))


def _config(work: Work) -> DBOSConfig:
    if work.store == "sqlite":
        on_sqlite.make_wal(work.file)
        url = f"sqlite:///{work.file}"
    else:
        url = work.url
    return {
        "name": "bench",
        "system_database_url": url,
        "application_version": "1",
        "run_admin_server": False,
        "log_level": "ERROR",
    }


def _all(flow: Flow, work: Work, prefix: str) -> None:
    """Every run at once, each in a thread of the library's own."""
    handles: list[Any] = [DBOS.start_workflow(flow, f"{prefix}{number}") for number in range(work.runs)]
    for handle in handles:
        handle.get_result()


def _resume(work: Work, flow: Flow, acts: Acts) -> Recovered:
    """The library takes up what it finds as soon as it is launched; wait for its own word that all is done."""
    ready_at = time.monotonic()
    while _value(work, FINISHED[work.store]) < work.runs:
        time.sleep(POLL_S)
    done_at = time.monotonic()
    acts.stop_again()
    _all(flow, work, "new")
    return Recovered(ready_at, acts.first_at, done_at, time.monotonic() - acts.met_at)


def _value(work: Work, statement: str) -> int:
    if work.store == "sqlite":
        return on_sqlite.value(work.file, statement)
    return on_postgres.value(work.url, statement)


if __name__ == "__main__":
    main()
