"""How soon an accepted message is worked on, and what an idle daemon costs."""

import statistics
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from rucher.cli.client import Daemon
from tests.fakes.hive import Hive, running

MESSAGES = 100
IDLE_S = 20.0
SETTLING_S = 3.0
TOOL_SCRIPT = """
[[rule]]
on = "user"
match = "^look"
call = [{ tool = "list_dir", arguments = { path = "." } }]

[[rule]]
answer = "done"
"""


@dataclass(frozen=True, slots=True)
class SpineFigures:
    """Milliseconds from sending a message to its first step's intention, and the idle daemon's share of one core."""

    first_step_median_ms: float
    first_step_p95_ms: float
    idle_core_percent: float


def measure() -> SpineFigures:
    """Send messages one after the other to a real daemon with a scripted model, then leave it alone with a warm runner."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), TOOL_SCRIPT) as hive:
        with Daemon(hive.instance) as daemon:
            latencies = sorted(_latency(daemon, hive) for _ in range(MESSAGES))
            daemon.accept({"text": "look"})
        time.sleep(SETTLING_S)
        idle = _idle_percent(hive)
    return SpineFigures(statistics.median(latencies), latencies[int(len(latencies) * 0.95)], idle)


def _latency(daemon: Daemon, hive: Hive) -> float:
    sent = datetime.now(UTC)  # noqa: TID251 - compared with the daemon's own clock, on one machine
    event_id, trace_id = daemon.accept({"text": "hello"})
    daemon.outcome(event_id, 10)
    trace = hive.told("trace", trace_id)["events"]
    first = next(event for event in trace if event["type"] == "step.intended")
    return (datetime.fromisoformat(first["occurred_at"]) - sent).total_seconds() * 1000


def _idle_percent(hive: Hive) -> float:
    assert hive.process is not None  # noqa: S101 - running() started it
    daemon = psutil.Process(hive.process.pid)
    family = [daemon, *daemon.children(recursive=True)]
    before = sum(_cpu_s(process) for process in family)
    time.sleep(IDLE_S)
    return (sum(_cpu_s(process) for process in family) - before) / IDLE_S * 100


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
