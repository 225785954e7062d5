"""Compares our kernel with other libraries and with bare drivers, and measures how it bears size: `make bench-kernel`.

Starts one program of `benchmarks.peers` at a time, in rounds in which every peer has its turn beside ours, and takes the
median of the rounds' ratios; then `benchmarks.scale` measures ours alone. Writes `benchmarks/results/<date>-kernel.json`;
exit code 1 when a bar is missed.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import machine, scale
from tests.fakes.postgres import Server

ROOT = Path(__file__).resolve().parent.parent
PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
STORES = ("sqlite", "postgres")
PARTS = ("throughput", "recovery", "scale")
PEERS = {
    "sqlite": ("dbos", "langgraph", "driver_sqlite3"),
    "postgres": ("dbos", "absurd", "absurd_clients", "driver_asyncpg", "driver_psycopg"),
}
RESUMING = {"sqlite": ("dbos", "langgraph"), "postgres": ("dbos",)}
"""The peers whose recovery is measured."""
PACKAGES = (
    "absurd-sdk", "absurdctl", "asyncpg", "dbos", "langgraph", "langgraph-checkpoint-sqlite", "psycopg", "sqlalchemy",
)  # fmt: skip
OURS = {"ours": "", "ours_intended": "_intended"}
"""Our programs, and what the names of their ratios have more."""
CONCURRENCIES = (1, 16)
STEPS = 20
HELD_RUNS = 200
HELD_STEPS = 5
CALIBRATION_S = 0.4
PATIENCE_S = 120.0

LEAST_RATIO = {
    "sqlite_c16_vs_dbos": 30.0,
    "sqlite_c1_vs_dbos": 5.0,
    "postgres_c16_vs_dbos": 30.0,
    "postgres_c1_vs_dbos": 6.0,
    "postgres_c16_vs_absurd": 15.0,
    "postgres_c1_vs_absurd": 2.0,
}
MOST_OVERHEAD_S = 0.3
MOST_FIRST_STEP_S = 0.5

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the programs work, and how long."""

    folder: Path
    server: Server | None
    """Only when PostgreSQL is measured."""
    rounds: int
    seconds: float

    def measure(self, peer: str, store: str, concurrency: int, runs: int) -> Figures:
        """One measure in a new store; every step must be found in it afterwards."""
        with self.place(store) as place:
            size = ["--concurrency", str(concurrency), "--runs", str(runs), "--steps", str(STEPS)]
            done = subprocess.run(
                _command(peer, store, place) + size,
                check=False,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                timeout=PATIENCE_S,
            )
        if done.returncode:
            raise SystemExit(f"{peer} on {store} failed with {done.returncode}; its error is above")
        figures: Figures = json.loads(done.stdout)
        if figures["committed"] != figures["steps"]:
            raise SystemExit(f"{peer} on {store} did {figures['steps']} steps and committed {figures['committed']}")
        return figures

    def runs_for(self, peer: str, store: str, concurrency: int) -> int:
        """How many runs take this program about `seconds`."""
        runs = 2 * concurrency
        while (figures := self.measure(peer, store, concurrency, runs))["seconds"] < CALIBRATION_S:
            runs *= 4
        return max(concurrency, round(runs * self.seconds / float(figures["seconds"])))

    def recover(self, peer: str, store: str) -> Figures:
        """Seconds from the start of a program that finds runs which were killed in mid-step, all at once."""
        with self.place(store) as place:
            size = ["--runs", str(HELD_RUNS), "--steps", str(HELD_STEPS), "--phase"]
            command = _command(peer, store, place) + size
            _kill_when_held([*command, "hold"])
            started_at = time.monotonic()
            done = subprocess.run(
                [*command, "resume"], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=PATIENCE_S
            )
            _demand_each_once(peer, place[0] / "acts")
        told = json.loads(done.stdout)
        total = told["done_at"] - started_at
        return {
            "start_s": told["ready_at"] - started_at,
            "first_step_s": told["first_step_at"] - started_at,
            "total_s": total,
            "work_s": told["work_s"],
            "overhead_s": total - told["work_s"],
        }

    @contextmanager
    def place(self, store: str) -> Iterator[tuple[Path, str]]:
        """An empty folder and, for PostgreSQL, an empty database."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        url = self.server.new_database() if self.server is not None and store == "postgres" else ""
        try:
            yield folder, url
        finally:
            shutil.rmtree(folder)
            if self.server is not None and url:
                name = url.partition("?")[0].rpartition("/")[2]
                self.server.sql(f"DROP DATABASE {name} WITH (FORCE)")


def main() -> int:
    """Measure, print, write, judge."""
    parser = argparse.ArgumentParser(prog="benchmarks.kernel", description=__doc__)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=STORES)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=5, help="how often every program has its turn (default: 5)")
    parser.add_argument("--seconds", type=float, default=2.5, help="length of one measure (default: 2.5)")
    parser.add_argument(
        "--waiting", type=int, default=100_000, help="runs that wait, in the part scale (default: 100,000)"
    )
    parser.add_argument("--events", type=int, default=1_000_000, help="events of the long journal (default: 1,000,000)")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results", help="where the figures go")
    asked = parser.parse_args()
    if machine.file_system(asked.folder) in machine.IN_MEMORY:
        parser.error(
            f"{asked.folder} is in memory, where a commit costs nothing; name a folder on a disk with --folder"
        )
    with _bench(asked) as bench:
        facts = machine.facts(bench.folder) | _postgres_facts(bench.server)
        results = _measure_all(bench, asked)
    facts |= {"peers": machine.versions(PEERS_PYTHON, PACKAGES), "commit": machine.commit()}
    settings = {
        "rounds": asked.rounds, "seconds": asked.seconds, "steps_a_run": STEPS, "parts": list(asked.parts),
        "waiting": asked.waiting, "events": asked.events,
    }  # fmt: skip
    _write(asked.results, {"machine": facts, "settings": settings} | results)
    missed = _missed(results)
    for bar in missed:
        print(f"MISSED: {bar}", file=sys.stderr)
    return 1 if missed else 0


@contextmanager
def _bench(asked: argparse.Namespace) -> Iterator[Bench]:
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=asked.folder))
    folder.chmod(0o755)
    server = None
    try:
        if "postgres" in asked.stores:
            server = Server(folder / "pg", {"shared_buffers": "128MB"}).start()
        yield Bench(folder, server, asked.rounds, asked.seconds)
    finally:
        if server is not None:
            server.close()
        shutil.rmtree(folder, ignore_errors=True)


def _postgres_facts(server: Server | None) -> Figures:
    """Its version; it must wait for the disk at every commit."""
    if server is None:
        return {}
    durable = [server.sql(f"SHOW {setting}") for setting in ("fsync", "synchronous_commit", "full_page_writes")]
    if durable != ["on", "on", "on"]:
        raise SystemExit(f"PostgreSQL does not wait for the disk: {durable}")
    return {"postgres": server.sql("SHOW server_version")}


def _measure_all(bench: Bench, asked: argparse.Namespace) -> Figures:
    figures: dict[str, dict[str, list[Figures]]] = {}
    recovery: dict[str, dict[str, list[Figures]]] = {}
    scales: dict[str, Figures] = {}
    for store in asked.stores:
        for concurrency in CONCURRENCIES if "throughput" in asked.parts else ():
            name = f"{store}_c{concurrency}"
            figures[name] = _throughput(bench, store, concurrency)
            _show(name, figures[name], "steps_per_s", "steps/s")
        if "recovery" in asked.parts:
            recovery[store] = _recovery(bench, store)
            _show(f"recovery on {store}", recovery[store], "overhead_s", "s of overhead")
        if "scale" in asked.parts:
            scales[store] = scale.measure(
                partial(bench.place, store), scale.Sizes(asked.waiting, asked.events, asked.rounds)
            )
            scale.show(store, scales[store])
    ratios = _ratios(figures, recovery)
    for key, (median, least, most) in ratios.items():
        print(f"{key:36} {median:8.2f}   ({least:.2f} to {most:.2f})")
    return {
        "ratios": {key: round(median, 2) for key, (median, _, _) in ratios.items()},
        "spread": {key: [round(least, 2), round(most, 2)] for key, (_, least, most) in ratios.items()},
        "medians": {name: _medians(turns) for name, turns in figures.items()},
        "recovery": {store: _medians(turns) for store, turns in recovery.items()},
        "scale": scales,
        "measures": {"throughput": figures, "recovery": recovery},
    }


def _throughput(bench: Bench, store: str, concurrency: int) -> dict[str, list[Figures]]:
    """Each program's figures, in the order of the rounds; ours have their turn right after the first peer of a round."""
    first, *others = PEERS[store]
    order = (first, *OURS, *others)
    runs = {peer: bench.runs_for(peer, store, concurrency) for peer in order}
    figures: dict[str, list[Figures]] = {peer: [] for peer in order}
    for _ in range(bench.rounds):
        for peer in order:
            figures[peer].append(bench.measure(peer, store, concurrency, runs[peer]))
    return figures


def _recovery(bench: Bench, store: str) -> dict[str, list[Figures]]:
    figures: dict[str, list[Figures]] = {peer: [] for peer in (*RESUMING[store], "ours")}
    for _ in range(bench.rounds):
        for peer, turns in figures.items():
            turns.append(bench.recover(peer, store))
    return figures


def _command(peer: str, store: str, place: tuple[Path, str]) -> list[str]:
    python = sys.executable if peer in OURS else str(PEERS_PYTHON)
    folder, url = place
    return [python, "-m", f"benchmarks.peers.{peer}", "--store", store, "--folder", str(folder), "--url", url]


def _kill_when_held(command: list[str]) -> None:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        said = process.stdout.readline() if process.stdout else ""
        process.kill()
    if said != "held\n":
        raise SystemExit(f"{command[2]} did not bring its runs into their middle step; its error is above")


def _demand_each_once(peer: str, acts: Path) -> None:
    """Every step of every killed run was done once: none lost, and none that was recorded done again."""
    counted = Counter(line for line in acts.read_text("ascii").splitlines() if line.startswith("r"))
    if len(counted) != HELD_RUNS * HELD_STEPS or set(counted.values()) != {1}:
        raise SystemExit(
            f"{peer}: {len(counted)} of {HELD_RUNS * HELD_STEPS} steps, {max(counted.values())} times at most"
        )


def _ratios(
    figures: dict[str, dict[str, list[Figures]]], recovery: dict[str, dict[str, list[Figures]]]
) -> dict[str, tuple[float, float, float]]:
    """Median, least and most of the rounds' ratios; above 1, ours is the better one."""
    found = {}
    for name, turns in figures.items():
        for program, more in OURS.items():
            for peer in turns.keys() - OURS.keys():
                pairs = zip(turns[peer], turns[program], strict=True)
                found[f"{name}{more}_vs_{peer}"] = [ours["steps_per_s"] / each["steps_per_s"] for each, ours in pairs]
    for store, turns in recovery.items():
        for peer, theirs in turns.items():
            if peer != "ours":
                pairs = zip(theirs, turns["ours"], strict=True)
                found[f"recovery_{store}_vs_{peer}"] = [each["overhead_s"] / ours["overhead_s"] for each, ours in pairs]
    return {key: (statistics.median(each), min(each), max(each)) for key, each in found.items()}


def _medians(turns: dict[str, list[Figures]]) -> dict[str, Figures]:
    return {
        peer: {key: round(statistics.median(figures[key] for figures in each), 4) for key in each[0]}
        for peer, each in turns.items()
    }


def _show(name: str, turns: dict[str, list[Figures]], key: str, unit: str) -> None:
    medians = {peer: statistics.median(figures[key] for figures in each) for peer, each in turns.items()}
    print(f"{name}: " + ", ".join(f"{peer} {value:,.4g}" for peer, value in medians.items()) + f" {unit}", flush=True)


def _write(folder: Path, results: Figures) -> None:
    folder.mkdir(exist_ok=True)
    today = datetime.now(UTC).date()  # noqa: TID251 - names a file by the day it is made
    file = folder / f"{today}-kernel.json"
    file.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    print(f"written: {file}")


def _missed(results: Figures) -> list[str]:
    ratios = results["ratios"]
    missed = [
        f"{key} is {ratios[key]}, must be {least:g}"
        for key, least in LEAST_RATIO.items()
        if key in ratios and ratios[key] < least
    ]
    for store, medians in results["recovery"].items():
        ours = medians["ours"]
        for key, most in (("overhead_s", MOST_OVERHEAD_S), ("first_step_s", MOST_FIRST_STEP_S)):
            if ours[key] > most:
                missed.append(f"{key} of a recovery on {store} is {ours[key]:.3f} s, must be {most} s at most")
    return [*missed, *scale.missed(results["scale"])]


if __name__ == "__main__":
    sys.exit(main())
