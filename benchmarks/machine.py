"""What a figure depends on besides the code: processor, disk, system and versions. Used by `benchmarks.kernel`."""

import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

PAGE = 4096
SYNCS = 200
IN_MEMORY = {"tmpfs", "ramfs"}


def facts(folder: Path) -> dict[str, Any]:
    """Of this machine, and of the disk that `folder` is on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "file_system": file_system(folder),
        "fsync_us": _fsync_us(folder),
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }


def versions(python: Path, packages: tuple[str, ...]) -> dict[str, str]:
    """The versions of the packages in that interpreter's environment."""
    program = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    told = subprocess.run([python, "-I", "-c", program, *packages], check=True, capture_output=True, text=True).stdout
    return dict(zip(packages, told.split(), strict=True))


def commit() -> str:
    """Which sources are measured; empty outside a git checkout."""
    git = shutil.which("git")
    if git is None:
        return ""
    command = [git, "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    told: str = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    return told.strip()


def file_system(folder: Path) -> str:
    """The kind of file system that `folder` is on."""
    place = folder.resolve()
    mounts = [part for part in psutil.disk_partitions(all=True) if place.is_relative_to(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown"


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _fsync_us(folder: Path) -> int:
    """The median of overwriting one page and waiting until the disk says that it has it."""
    file = folder / "page"
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    times = []
    try:
        os.write(descriptor, bytes(PAGE))
        os.fsync(descriptor)
        for _ in range(SYNCS):
            started = time.perf_counter()
            os.pwrite(descriptor, bytes(PAGE), 0)
            os.fsync(descriptor)
            times.append(time.perf_counter() - started)
    finally:
        os.close(descriptor)
        file.unlink()
    return round(statistics.median(times) * 1e6)
