"""What `rucher doctor` looks at on the machine: pure verdicts over facts, and the few functions that gather the facts.

Called by `rucher.cli.doctor`. A check never raises and never changes anything: what cannot be found out is a warning.
"""

import asyncio
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rucher.daemon.settings import kit_folder
from rucher.journal.sqlite.files import SQLITE_VERSION
from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import RucherError
from rucher.sandbox.bubblewrap import Bubblewrap
from rucher.sandbox.capability import Capability
from rucher.sandbox.options import SandboxOptions

OK, WARN, FAIL = "ok", "warn", "fail"
OLDEST_SQLITE = (3, 37, 0)
"""The first SQLite with STRICT tables."""
OLDEST_PYTHON = (3, 11)
GIB = 1 << 30
LITTLE_SPACE = 2 * GIB
NO_SPACE = GIB // 4
OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `todo` says what to do and is empty when all is well."""

    name: str
    status: str
    found: str
    todo: str = ""


def machine() -> Iterator[Check]:
    """Checks that need no instance."""
    yield python(sys.version_info[:3])
    yield sqlite(SQLITE_VERSION)
    yield sandbox(asyncio.run(_tried()))


def python(version: tuple[int, ...]) -> Check:
    """Whether this Python is new enough."""
    found = ".".join(map(str, version))
    if version >= OLDEST_PYTHON:
        return Check("python", OK, found)
    return Check("python", FAIL, found, f"install Python {'.'.join(map(str, OLDEST_PYTHON))} or newer")


def sqlite(version: str) -> Check:
    """Whether the SQLite that Python brings is new enough."""
    if tuple(map(int, version.split("."))) >= OLDEST_SQLITE:
        return Check("sqlite", OK, version)
    newer = ".".join(map(str, OLDEST_SQLITE))
    return Check("sqlite", FAIL, version, f"use a Python whose sqlite3 module brings SQLite {newer} or newer")


def space(path: Path) -> Check:
    """Whether there is room where the instance writes."""
    return judged_space(shutil.disk_usage(path).free)


def judged_space(free: int) -> Check:
    """The verdict over so many free bytes."""
    found = f"{free / GIB:.1f} GiB free"
    if free >= LITTLE_SPACE:
        return Check("disk space", OK, found)
    status = FAIL if free < NO_SPACE else WARN
    return Check("disk space", status, found, "make room on the disk that holds the instance")


def processor(architecture: str, flags: str) -> Check:
    """Whether the embedded model can compute here; `flags` is what the kernel says of the processor, where it does."""
    if architecture not in ("x86_64", "AMD64") or not flags:
        return Check("processor", OK, architecture)
    if "avx2" in flags.split():
        return Check("processor", OK, f"{architecture} with AVX2")
    todo = "set another kind in the [model] part of rucher.toml: the embedded model needs AVX2"
    return Check("processor", FAIL, f"{architecture} without AVX2", todo)


def this_processor() -> Check:
    """The verdict over this machine's processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text("utf-8", "replace").splitlines() if path.exists() else []
    flags = next((line.partition(":")[2] for line in lines if line.startswith("flags")), "")
    return processor(platform.machine(), flags)


def secrets(paths: tuple[Path, ...]) -> Check:
    """Whether files that hold secrets can be read by their owner only; those that do not exist are none."""
    open_to_others = [path.name for path in paths if path.exists() and path.stat().st_mode & OTHERS]
    if not open_to_others:
        return Check("secret files", OK, ", ".join(path.name for path in paths if path.exists()) or "none yet")
    names = " ".join(str(path) for path in paths if path.name in open_to_others)
    return Check("secret files", FAIL, f"others can read {', '.join(open_to_others)}", f"run: chmod 600 {names}")


def attempted(name: str, act: Callable[[], Check], todo: str) -> Check:
    """The check that `act` makes, or its refusal as a failure."""
    try:
        return act()
    except RucherError as error:
        return Check(name, FAIL, str(error), todo)
    except OSError as error:
        return Check(name, FAIL, f"{error.filename or ''}: {error.strerror or error}", todo)


def sandbox(capability: Capability) -> Check:
    """The verdict over an attempt to start a real sandbox."""
    todo = "" if capability.ok else "change what it says; until then tools are refused, as nothing runs unsandboxed"
    return Check("sandbox", OK if capability.ok else FAIL, capability.reason, todo)


async def _tried() -> Capability:
    return await Bubblewrap(SandboxOptions(kit_folder()), SystemClock()).capability()
