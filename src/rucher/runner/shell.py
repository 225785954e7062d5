"""The act `shell`: one command, its output, and the end of every process that it started.

Called by the runner's loop, in its main thread. In a sandbox the runner is process 1 of its own process namespace, so
that one kill reaches children that made their own session or forked twice.
"""

import os
import select
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rucher.runner.results import OUTPUT_BYTES, Acted, Failure, failed, shown, succeeded

_TICK_MS = 50
_CHUNK = 65536
_HEAD = OUTPUT_BYTES // 2
_TAIL = OUTPUT_BYTES - _HEAD


class Output:
    """The first and the last of a stream, in bounded memory."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._lost = 0

    def add(self, chunk: bytes) -> None:
        """Take more of the stream."""
        room = _HEAD - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:] if room < len(chunk) else b""
        if len(self._tail) > _TAIL:
            surplus = len(self._tail) - _TAIL
            del self._tail[:surplus]
            self._lost += surplus

    @property
    def truncated(self) -> bool:
        """Whether the middle is lost."""
        return self._lost > 0

    def text(self) -> str:
        """What was kept, with a mark where the middle is missing."""
        gap = f"\n[... {self._lost} bytes left out ...]\n" if self._lost else ""
        return shown(bytes(self._head)) + gap + shown(bytes(self._tail))


def shell(arguments: Mapping[str, Any], interrupted: Callable[[], str | None], end: Callable[[int], int]) -> Acted:
    """Run `command` in the current folder; return its output and exit code.

    `interrupted` gives the reason to stop it, once there is one; `end` kills what is left and returns the exit code.
    """
    command = arguments.get("command")
    if not isinstance(command, str) or "\0" in command or not command.strip():
        raise Failure("command is missing or is not text")
    output = Output()
    reader, writer = os.pipe()
    try:
        try:
            process = _spawn(command, writer)
        finally:
            os.close(writer)
        try:
            reason = _follow(process, reader, output, interrupted)
        finally:
            code = end(process)
        _drain(reader, output)
    finally:
        os.close(reader)
    return _told(code, reason, output)


def _spawn(command: str, writer: int) -> int:
    program = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    return os.posix_spawn(
        program,
        [program, "-c", command],
        {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": os.getcwd(),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
        },
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writer, 1),
            (os.POSIX_SPAWN_DUP2, writer, 2),
        ],
        setsid=True,
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
    )


def _follow(process: int, reader: int, output: Output, interrupted: Callable[[], str | None]) -> str | None:
    """Collect output until the command itself ends, whoever may still hold the pipe; the reason if it was stopped."""
    end = os.pidfd_open(process)
    try:
        watch = select.poll()
        watch.register(reader, select.POLLIN)
        watch.register(end, select.POLLIN)
        while True:
            reason = interrupted()
            if reason:
                return reason
            ready = {descriptor for descriptor, _ in watch.poll(_TICK_MS)}
            if reader in ready:
                chunk = os.read(reader, _CHUNK)
                output.add(chunk)
                if not chunk:
                    watch.unregister(reader)
            if end in ready:
                return None
    finally:
        os.close(end)


def _drain(reader: int, output: Output) -> None:
    os.set_blocking(reader, False)
    while True:
        try:
            chunk = os.read(reader, _CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            return
        output.add(chunk)


def _told(code: int, reason: str | None, output: Output) -> Acted:
    text = output.text().rstrip("\n")
    if reason:
        return failed(
            f"{text}\n[{reason}; what it printed until then is above]".lstrip("\n"), truncated=output.truncated
        )
    if code == 0:
        return succeeded(text or "[no output]", truncated=output.truncated)
    ending = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
    return failed(f"{text}\n[the command {ending}]".lstrip("\n"), truncated=output.truncated)


def end_namespace(process: int) -> int:
    """End every other process of this process namespace, whose process 1 the caller is; the exit code of `process`."""
    code = 0
    while True:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            # Orphans become children of process 1, so that "no child" means that nothing else lives here.
            ended, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return code
        if ended == process:
            code = os.waitstatus_to_exitcode(status)


def end_group(process: int) -> int:
    """End a command's process group, all that can be done where the runner is not process 1; its exit code."""
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)
