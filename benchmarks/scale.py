"""How our kernel bears size: a hundred thousand waiting runs, and a journal of a million events; part of `make bench-kernel`.

Called by `benchmarks.kernel`, store by store. What is measured is in `scale_waiting` and `scale_journal`; the bars are here.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import scale_journal

Figures = dict[str, Any]
NewPlace = Callable[[], AbstractContextManager[tuple[Path, str]]]
"""An empty folder and, for PostgreSQL, the URL of an empty database; both are gone when the context ends."""

WAITING_PATIENCE_S = 900.0
MOST: Mapping[str, Mapping[str, float]] = {
    "waiting": {"memory_grown_mb": 50.0, "timer_late_ms": 100.0, "claim_ms": 5.0},
    "journal": {"append_fall_percent": 20.0, "trace_ms": 20.0, "start_s": 1.0},
}
"""Bars: each of these figures must be below."""


_WAITING = {"memory_grown_mb": "MB more", "timer_late_ms": "ms a timer is late", "claim_ms": "ms a claim"}
_JOURNAL = {
    "append_fall_percent": "% slower by whole traces",
    "message_fall_percent": "% by lone messages",
    "step_fall_percent": "% by plain steps",
    "trace_ms": "ms to read a trace",
    "start_s": "s to start",
    "start_empty_s": "s when empty",
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many runs wait, how many events the journal holds, and how often each measure is taken."""

    runs: int
    events: int
    rounds: int


def measure(new_place: NewPlace, sizes: Sizes) -> Figures:
    """All figures of one store."""
    with new_place() as (folder, url):
        waiting = _in_a_process_of_its_own(folder, url, sizes.runs)
    return {"waiting": waiting, "journal": scale_journal.measure(new_place, sizes.events, sizes.rounds)}


def show(store: str, figures: Figures) -> None:
    """Print what is judged, and a little more."""
    waiting, journal = figures["waiting"], figures["journal"]
    print(f"{waiting['runs']:,} waiting runs on {store}: " + _told(waiting, _WAITING))
    print(f"{journal['events']:,} events on {store}: " + _told(journal, _JOURNAL), flush=True)


def missed(scale: Mapping[str, Figures]) -> Iterator[str]:
    """What is not below its bar, by store."""
    for store, figures in scale.items():
        for part, bars in MOST.items():
            for key, most in bars.items():
                if figures[part][key] >= most:
                    yield f"{part} {key} on {store} is {figures[part][key]:g}, must be below {most:g}"


def _told(figures: Figures, words: Mapping[str, str]) -> str:
    return ", ".join(f"{figures[key]:.2f} {word}" for key, word in words.items())


def _in_a_process_of_its_own(folder: Path, url: str, runs: int) -> Figures:
    """Nothing that was done before may have left memory behind that the runs could use."""
    command = [sys.executable, "-m", "benchmarks.scale_waiting", "--folder", str(folder), "--url", url]
    done = subprocess.run(
        [*command, "--runs", str(runs)], check=False, stdout=subprocess.PIPE, text=True, timeout=WAITING_PATIENCE_S
    )
    if done.returncode:
        raise SystemExit(f"benchmarks.scale_waiting failed with {done.returncode}; its error is above")
    figures: Figures = json.loads(done.stdout)
    return figures
