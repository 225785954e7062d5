"""Runs a Python program or tool calls in a real sandbox, and the same program outside, for the attacks beside it."""

import asyncio
import itertools
import os
import shlex
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rucher.engine.tools.workspace import LIST_DIR, SHELL, WORKSPACE_TOOLS
from rucher.protocol.clock import SystemClock
from rucher.protocol.conversation import ToolCall, ToolResult
from rucher.sandbox.bubblewrap import Bubblewrap
from rucher.sandbox.hands import SessionHands
from rucher.sandbox.mailboxes import Mailboxes
from rucher.sandbox.options import Interpreter
from rucher.sandbox.patience import Patience
from rucher.sandbox.pool import HandsPool

MIB = 1024 * 1024
_T = TypeVar("_T")
_numbers = itertools.count(1)
_SPECS = {spec.name: spec for spec in WORKSPACE_TOOLS}
_PROLOGUE = """
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def syscall(*args):
    result = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return errno.errorcode[ctypes.get_errno()] if result == -1 else "done"
def tried(act):
    try:
        act()
    except OSError as error:
        return errno.errorcode.get(error.errno, "EUNKNOWN") if error.errno and error.errno > 0 else "EUNRESOLVED"
    return "done"
"""


@dataclass(frozen=True, slots=True)
class Inside:
    """The tools of one session, called by name."""

    hands: SessionHands

    async def call(self, name: str, **arguments: object) -> ToolResult:
        """Execute one tool call under a key of its own."""
        number = next(_numbers)
        return await self.hands.execute(ToolCall(str(number), name, arguments), _SPECS[name], f"key-{number}")

    async def shell(self, command: str) -> str:
        """What a command prints."""
        return (await self.call(SHELL.name, command=command)).text

    async def lives(self) -> bool:
        """Whether the session still works."""
        return (await self.call(LIST_DIR.name, path=".")).ok


@dataclass(frozen=True, slots=True)
class Place:
    """Where sandboxes are started from in one test."""

    folder: Path
    launcher: Bubblewrap

    @property
    def sessions(self) -> Path:
        """The folder of all sessions."""
        return self.folder / "sessions"

    def during(self, act: Callable[[HandsPool], Awaitable[_T]], patience: Patience | None = None) -> _T:
        """Give `act` a pool of hands, and end all of it afterwards."""
        return self.with_mailboxes(lambda pool, _: act(pool), patience)

    def with_mailboxes(
        self, act: Callable[[HandsPool, Mailboxes], Awaitable[_T]], patience: Patience | None = None
    ) -> _T:
        """Give `act` a pool of hands and the mailboxes that it shares with others."""

        async def run() -> _T:
            with Mailboxes(self.sessions, self.launcher.options) as mailboxes:
                pool = HandsPool(mailboxes, self.launcher, SystemClock(), patience or Patience())
                try:
                    return await act(pool, mailboxes)
                finally:
                    await pool.close()

        return asyncio.run(run())

    def with_tools(self, act: Callable[[Inside], Awaitable[_T]], session: str = "s1") -> _T:
        """Give `act` the tools of a session."""
        return self.during(lambda pool: act(Inside(pool.session(session))))

    def inside(self, program: str) -> str:
        """What a Python program prints when a tool call runs it."""
        python = shlex.quote(Interpreter.own().program)
        return self.with_tools(lambda tools: tools.shell(f"{python} -I -c {shlex.quote(_PROLOGUE + program)} 2>&1"))

    def outside(self, program: str, **kwargs: object) -> str:
        """What the same program prints without a sandbox, run by whoever runs the tests."""
        done = subprocess.run(  # type: ignore[call-overload] # kwargs are the test's own
            [Interpreter.own().program, "-I", "-c", _PROLOGUE + program],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **kwargs,
        )  # fmt: skip
        return f"signal {-done.returncode}" if done.returncode < 0 else str(done.stdout).strip()


def is_root() -> bool:
    """Whether the tests may do everything on this machine, as an attacker outside the sandbox could then."""
    return os.geteuid() == 0
