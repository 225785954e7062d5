"""The level 1 launcher on Linux: a process in namespaces of its own that sees /usr, its interpreter and one session.

Used by the pool of hands and by `rucher doctor`. Start sandboxes from the thread of the event loop: the kernel kills a
sandbox when the thread that started it ends. As root, everything goes through `stage.py`, never to bubblewrap directly.
"""

import asyncio
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rucher.protocol.errors import Denied
from rucher.protocol.ports import Clock
from rucher.sandbox import stage
from rucher.sandbox.capability import Capability, explain, switches
from rucher.sandbox.kit import MODULES_INSIDE, Kit, prepare
from rucher.sandbox.options import MIB, Interpreter, SandboxOptions

SESSION_INSIDE = "/session"
WORKSPACE_INSIDE = "/session/workspace"
_BOOT = f"import sys; sys.path.insert(0, {MODULES_INSIDE!r}); from rucher.runner.hands import main; sys.exit(main())"
_TRIAL = f"import sys; sys.path.insert(0, {MODULES_INSIDE!r}); import rucher.runner.hands"
_SYSTEM_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_IDLE_EXIT_S = 300
_SAID_BYTES = 16 * 1024
_TRIAL_S = 20.0
_TICK_S = 0.002


@dataclass(frozen=True, slots=True)
class Sources:
    """Where bubblewrap finds what it shows: real paths, or those on the stage."""

    kit: Kit
    session: str | None
    prefix: str | None


def arguments(
    sources: Sources, interpreter: Interpreter, options: SandboxOptions, seccomp_descriptor: int
) -> list[str]:
    """Bubblewrap's command line up to and without the program to run."""
    return [
        sources.kit.bwrap,
        "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--as-pid-1", "--die-with-parent",
        "--new-session", "--uid", "1000", "--gid", "1000", "--hostname", "rucher",
        "--clearenv", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin", "--setenv", "HOME", WORKSPACE_INSIDE,
        "--setenv", "LANG", "C.UTF-8", "--seccomp", str(seccomp_descriptor),
        "--ro-bind", "/usr", "/usr", *_system_folders(),
        "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache",
        "--ro-bind-try", "/etc/alternatives", "/etc/alternatives",
        *_etc(sources.kit),
        "--proc", "/proc", "--dev", "/dev", "--size", str(64 * MIB), "--tmpfs", "/dev/shm", "--remount-ro", "/dev",  # noqa: S108 - inside
        "--size", str(options.limits.temporary_bytes), "--tmpfs", "/tmp",  # noqa: S108 - inside
        "--ro-bind", sources.kit.modules, MODULES_INSIDE,
        *(["--ro-bind", sources.prefix, interpreter.prefix] if sources.prefix and interpreter.prefix else []),
        *_session(sources.session),
        "--remount-ro", "/",
        "--", interpreter.program, "-I", "-S",
    ]  # fmt: skip


def _system_folders() -> list[str]:
    found: list[str] = []
    for name in _SYSTEM_FOLDERS:
        path = Path("/") / name
        if path.is_symlink():
            found += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            found += ["--ro-bind", str(path), str(path)]
    return found


def _etc(kit: Kit) -> list[str]:
    found: list[str] = []
    for name in ("passwd", "group", "hosts", "nsswitch.conf"):
        found += ["--ro-bind", f"{kit.etc}/{name}", f"/etc/{name}"]
    return found


def _session(session: str | None) -> list[str]:
    if session is None:
        return []
    found = ["--ro-bind", session, SESSION_INSIDE]
    for name in ("outbound.db", "outbound.db-journal", ".heartbeat", "workspace"):
        found += ["--bind", f"{session}/{name}", f"{SESSION_INSIDE}/{name}"]
    return [*found, "--chdir", WORKSPACE_INSIDE]


class Sandbox:
    """One running sandbox."""

    def __init__(self, process: "subprocess.Popen[bytes]", output: int, clock: Clock) -> None:
        self._process = process
        self._output = output
        self._clock = clock
        self.started_at = clock.monotonic()

    @property
    def pid(self) -> int:
        """The process whose death ends the sandbox."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it ended, negative for a signal."""
        return self._process.poll()

    def kill(self) -> None:
        """End everything in it; `ended` says when that is so."""
        self._process.kill()

    async def ended(self) -> None:
        """Return once it has ended."""
        while self.alive:
            await self._clock.sleep(_TICK_S)

    def said(self) -> str:
        """What it printed, at most 16 KB."""
        return os.pread(self._output, _SAID_BYTES, 0).rstrip(b"\0").decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Let go of what it printed."""
        os.close(self._output)


class Bubblewrap:
    """Starts level 1 sandboxes on this machine."""

    def __init__(self, options: SandboxOptions, clock: Clock) -> None:
        self.options = options
        self._clock = clock
        self._interpreter = Interpreter.own()
        self._capability: Capability | None = None
        self._kit: Kit | None = None
        self._trying = asyncio.Lock()

    async def capability(self) -> Capability:
        """Whether sandboxes work here, tried with a real one until one works: what was short for a moment comes back."""
        async with self._trying:
            if self._capability is None or not self._capability.ok:
                self._capability = await self._try()
            return self._capability

    def start_runner(self, session_dir: Path) -> Sandbox:
        """A sandbox in which the session's runner serves its mailbox. Raises Denied when it cannot even be prepared."""
        limits = self.options.limits
        given = {
            "session": SESSION_INSIDE,
            "workspace": WORKSPACE_INSIDE,
            "idle_exit_s": _IDLE_EXIT_S,
            "limits": {
                "processes": limits.processes,
                "memory_bytes": limits.memory_bytes,
                "file_bytes": limits.file_bytes,
                "open_files": limits.open_files,
                "core_bytes": 0,
            },
        }
        return self.start(["-c", _BOOT, json.dumps(given)], session_dir)

    def start(self, interpreter_arguments: Sequence[str], session_dir: Path | None) -> Sandbox:
        """A sandbox that runs the interpreter with these arguments."""
        kit = self._kit = self._kit or prepare(self.options.cache_dir)
        output = _capped_memory()
        try:
            if os.geteuid() == 0:
                process = self._start_as_root(kit, session_dir, interpreter_arguments, output)
            else:
                process = self._start_as_user(kit, session_dir, interpreter_arguments, output)
        except BaseException:
            os.close(output)
            raise
        return Sandbox(process, output, self._clock)

    def _start_as_user(
        self, kit: Kit, session_dir: Path | None, program: Sequence[str], output: int
    ) -> "subprocess.Popen[bytes]":
        sources = Sources(kit, str(session_dir) if session_dir else None, self._interpreter.prefix)
        with Path(kit.seccomp_filter).open("rb") as seccomp_filter:
            descriptor = seccomp_filter.fileno()
            command = [*arguments(sources, self._interpreter, self.options, descriptor), *program]
            return _spawn(command, output, (descriptor,))

    def _start_as_root(
        self, kit: Kit, session_dir: Path | None, program: Sequence[str], output: int
    ) -> "subprocess.Popen[bytes]":
        place = self.options.cache_dir / "stage"
        place.mkdir(mode=0o755, parents=True, exist_ok=True)
        mounts = {"kit": kit.root}
        if session_dir:
            mounts["session"] = str(session_dir)
        if self._interpreter.prefix:
            mounts["python"] = self._interpreter.prefix
        sources = Sources(
            Kit(f"{place}/kit"),
            f"{place}/session" if session_dir else None,
            f"{place}/python" if self._interpreter.prefix else None,
        )
        plan: stage.Plan = {
            "stage": str(place),
            "mounts": mounts,
            "filter": kit.seccomp_filter,
            "uid": self.options.uid,
            "gid": self.options.gid,
            "parent": os.getpid(),
            "command": [
                *arguments(sources, self._interpreter, self.options, stage.FILTER_DESCRIPTOR),
                *program,
            ],
        }
        return _spawn([self._interpreter.program, "-I", "-S", stage.__file__, json.dumps(plan)], output, ())

    async def _try(self) -> Capability:
        if sys.platform != "linux":
            return Capability(ok=False, reason="no sandbox can be made here: level 1 is built for Linux only so far")
        try:
            sandbox = self.start(["-c", _TRIAL], None)
        except (Denied, OSError) as error:
            return Capability(ok=False, reason=str(error))
        try:
            while sandbox.alive and self._clock.monotonic() - sandbox.started_at < _TRIAL_S:
                await self._clock.sleep(_TICK_S)
            sandbox.kill()
            await sandbox.ended()
            if sandbox.exit_code == 0:
                return Capability(ok=True, reason="bubblewrap starts sandboxes here")
            return Capability(ok=False, reason=explain(sandbox.said(), switches(), root=os.geteuid() == 0))
        finally:
            sandbox.close()


def _capped_memory() -> int:
    """A file in memory that can hold so much and no more, whoever writes to it."""
    output = os.memfd_create("said", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(output, _SAID_BYTES)
    fcntl.fcntl(output, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return output


def _spawn(command: list[str], output: int, descriptors: tuple[int, ...]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={}, pass_fds=descriptors, cwd="/",
        start_new_session=True,
    )  # fmt: skip
