"""What the measured programs share: the command line, how runs are handed out, and the line of JSON that is printed.

Used by every program of this package. It runs in both environments, so it imports the standard library only.
"""

import argparse
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

Worker = Callable[[int], object]
"""Does the run of that number, from its first step to its end."""
RESULT = {"x": 1}
"""What every step returns and every store keeps."""


@dataclass(frozen=True, slots=True)
class Work:
    """One measure, as the command line asks for it.

    In the phase `steady`, `runs` runs of `steps` steps are done `concurrency` at a time. In `hold`, all runs are brought
    into their step `held` and stay there until the program is killed; `resume` then finishes them.
    """

    store: str
    url: str
    folder: Path
    concurrency: int
    runs: int
    steps: int
    phase: str

    @classmethod
    def read(cls, *stores: str) -> "Work":
        """The command line of a program that works on these stores."""
        parser = argparse.ArgumentParser(description="One measured program; prints one line of JSON.")
        parser.add_argument("--store", choices=stores, required=True)
        parser.add_argument("--url", default="", help="an empty PostgreSQL database")
        parser.add_argument("--folder", type=Path, required=True, help="an empty folder on the disk to measure")
        parser.add_argument("--concurrency", type=int, default=1)
        parser.add_argument("--runs", type=int, default=50)
        parser.add_argument("--steps", type=int, default=20)
        parser.add_argument("--phase", choices=("steady", "hold", "resume"), default="steady")
        return cls(**vars(parser.parse_args()))

    @property
    def file(self) -> Path:
        """The SQLite file of this measure."""
        return self.folder / "store.db"

    @property
    def held(self) -> int:
        """The step, counted from 1, that every run is in when the program is killed."""
        return self.steps // 2 + 1


class Acts:
    """The acts of a recovery's steps: a line each in a file outside the store, so that lost and doubled ones show.

    In `hold`, and in `resume` once `stop_again` was called, all runs meet in their step `held`: there they are killed, or
    go on together, so that what is left of them can be timed.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._file = os.open(work.folder / "acts", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._lock = threading.Lock()
        self._together = threading.Event()
        self._stops = work.phase == "hold"
        self._here = 0
        self.first_at = 0.0
        """When the first act happened, on the machine's monotonic clock."""
        self.met_at = 0.0
        """When the last run came to where all meet."""

    def stop_again(self) -> None:
        """The runs that begin from now on meet."""
        self._stops = True

    def stops(self, step: int) -> bool:
        """Whether the runs meet in this step."""
        return self._stops and step == self._work.held

    def met(self) -> bool:
        """Count one run in; True when it is the last one and all shall go on. In `hold`, the starter is told instead."""
        with self._lock:
            self._here += 1
            if self._here < self._work.runs:
                return False
        self.met_at = time.monotonic()
        if self._work.phase == "hold":
            print("held", flush=True)
            return False
        return True

    def act(self, run: str, step: int) -> None:
        """Write the act down, after having met the others if this is the step; nothing of either in `steady`."""
        if self._work.phase == "steady":
            return
        if self.stops(step):
            if self.met():
                self._together.set()
            self._together.wait()
        self.write(run, step)

    def write(self, run: str, step: int) -> None:
        """Write the act down."""
        self.first_at = self.first_at or time.monotonic()
        os.write(self._file, f"{run} {step}\n".encode())


def on_threads(workers: Sequence[Worker], numbers: Iterable[int]) -> None:
    """Do the run of each number once, by whichever worker is free; a lone worker does without a thread."""
    rest = iter(numbers)

    def busy(worker: Worker) -> None:
        for number in rest:
            worker(number)

    if len(workers) == 1:
        busy(workers[0])
        return
    with ThreadPoolExecutor(len(workers)) as pool:
        for future in [pool.submit(busy, worker) for worker in workers]:
            future.result()


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Time and processor time of this process since `start`."""

    since_s: float
    cpu_since_s: float

    @classmethod
    def start(cls) -> "Stopwatch":
        """Begin to measure now."""
        return cls(time.perf_counter(), time.process_time())

    def figures(self, steps: int) -> dict[str, float]:
        """What these steps cost."""
        seconds = time.perf_counter() - self.since_s
        cpu = time.process_time() - self.cpu_since_s
        return {"steps": steps, "seconds": seconds, "cpu_seconds": cpu, "steps_per_s": steps / seconds}


def steady(work: Work, workers: Sequence[Worker], committed: Callable[[], int]) -> dict[str, Any]:
    """Warm every worker up with a run, then measure; `committed` counts the store's recorded steps from outside."""
    on_threads(workers, range(len(workers)))
    before = committed()
    watch = Stopwatch.start()
    on_threads(workers, range(len(workers), len(workers) + work.runs))
    return watch.figures(work.runs * work.steps) | {"committed": committed() - before}


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a `resume` measured; times are on the machine's monotonic clock, which the starter reads as well."""

    ready_at: float
    """The library is open and can work."""
    first_step_at: float
    done_at: float
    """The store says that every held run is finished."""
    work_s: float
    """What as many new runs, brought into the same step, need for their rest in this process afterwards."""


def report(figures: dict[str, Any]) -> NoReturn:
    """Print the line and leave at once: what a library does at its exit is not measured."""
    print(json.dumps(figures), flush=True)
    os._exit(0)
