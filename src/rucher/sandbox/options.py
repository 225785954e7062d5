"""What the daemon's settings decide about sandboxes, and the interpreter that runs in them."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1024 * 1024
_KERNEL_WITH_PROCESS_COUNT_PER_NAMESPACE = (5, 14)


def _processes() -> int:
    """A limit that stops a fork bomb; older kernels count all processes of the user on the machine against it."""
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    return 256 if release >= _KERNEL_WITH_PROCESS_COUNT_PER_NAMESPACE else 4096


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one sandbox; memory is address space of each process, files are each file."""

    processes: int = field(default_factory=_processes)
    memory_bytes: int = 4096 * MIB
    file_bytes: int = 1024 * MIB
    open_files: int = 1024
    temporary_bytes: int = 256 * MIB


@dataclass(frozen=True, slots=True)
class SandboxOptions:
    """`cache_dir` holds launch kits; for root it must be a folder that every user can reach.

    `uid` and `gid` are who tools run as when the daemon is root; otherwise they run as the daemon's own user.
    """

    cache_dir: Path
    uid: int = 65532
    gid: int = 65532
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python to run in the sandbox; `prefix` is None when /usr holds all of it."""

    program: str
    prefix: str | None

    @staticmethod
    def own() -> "Interpreter":
        """The one that runs this process, without its virtual environment."""
        prefix = os.path.realpath(sys.base_prefix)
        program = os.path.realpath(sys.executable)
        if not program.startswith((prefix + "/", "/usr/")):
            program = f"{prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
        return Interpreter(program, None if f"{prefix}/".startswith("/usr/") else prefix)
