"""absurd in the fastest way found in one process: many clients, each with a connection and a thread of its own.

Each spawns a task and works one off. Its own worker (`absurd`) shares one connection among all threads; its asynchronous client
reached 85 % of what is measured here.
"""

from absurd_sdk import Absurd

from benchmarks.peers import on_postgres
from benchmarks.peers.absurd import RECORDED, make_queue, register_flow
from benchmarks.peers.work import Work, Worker, report, steady


def main() -> None:
    """Measure."""
    work = Work.read("postgres")
    make_queue(work)

    def worker() -> Worker:
        client = Absurd(work.url)
        worked_off = 0

        def count() -> None:
            nonlocal worked_off
            worked_off += 1

        register_flow(client, work, count)

        def run(number: int) -> None:
            client.spawn("flow", {"run": number})
            before = worked_off
            while worked_off == before:  # another thread may be just about to take the task that this one looks at
                client.work_batch()

        return run

    workers = [worker() for _ in range(work.concurrency)]
    report(steady(work, workers, lambda: on_postgres.value(work.url, RECORDED)))


if __name__ == "__main__":
    main()
