"""A schedule's gate is a script in a real sandbox."""

import asyncio
import socket
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rucher.daemon.gates import MOST_SAID, ScriptGates
from rucher.daemon.settings import kit_folder
from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import BadInput, Permanent
from rucher.sandbox.bubblewrap import Bubblewrap
from rucher.sandbox.mailboxes import Mailboxes
from rucher.sandbox.options import SandboxOptions
from rucher.sandbox.pool import HandsPool
from rucher.surfaces.schedules.plan import Schedule
from rucher.surfaces.schedules.runner import Verdict
from rucher.surfaces.schedules.times import Timing

ONE = Schedule(id="news", timing=Timing("UTC", "0 9 * * *"), text="x", gate="gate.sh")


def with_gate(folder: Path, script: str | None, act: Callable[[ScriptGates], Awaitable[None]]) -> None:
    """Do it with gates of an instance in this folder, which has this script."""
    if script is not None:
        (folder / "gate.sh").write_text(script)

    async def go() -> None:
        clock, options = SystemClock(), SandboxOptions(kit_folder())
        with Mailboxes(folder / "sessions", options) as mailboxes:
            pool = HandsPool(mailboxes, Bubblewrap(options, clock), clock)
            try:
                await act(ScriptGates(pool, folder, "local"))
            finally:
                await pool.close()

    asyncio.run(go())


def test_exit_code_0_opens_and_what_it_printed_is_kept(tmp_path: Path) -> None:
    async def act(gates: ScriptGates) -> None:
        assert await gates.ask(ONE, 7) == Verdict(opens=True, said="3 new letters for news at 7")

    with_gate(tmp_path, '#!/bin/sh\necho "3 new letters for $1 at $2"\n', act)


def test_another_exit_code_does_not_open(tmp_path: Path) -> None:
    async def act(gates: ScriptGates) -> None:
        assert await gates.ask(ONE, 7) == Verdict(opens=False, said="nothing new")
        assert await gates.ask(ONE, 8) == Verdict(opens=False, said="nothing new")

    with_gate(tmp_path, "echo nothing new; exit 1", act)


def test_silence_is_no_output(tmp_path: Path) -> None:
    async def act(gates: ScriptGates) -> None:
        assert await gates.ask(ONE, 7) == Verdict(opens=True, said="")

    with_gate(tmp_path, "exit 0", act)


def test_what_a_gate_remembers_is_there_the_next_time_and_a_changed_script_is_the_one_that_runs(tmp_path: Path) -> None:
    async def act(gates: ScriptGates) -> None:
        assert [(await gates.ask(ONE, planned)).said for planned in (1, 2, 3)] == ["1", "2", "3"]
        (tmp_path / "gate.sh").write_text("echo other")
        assert (await gates.ask(ONE, 4)).said == "other"

    with_gate(tmp_path, "echo x >> seen; wc -l < seen", act)


def test_asked_again_about_the_same_time_it_is_not_run_again(tmp_path: Path) -> None:
    async def act(gates: ScriptGates) -> None:
        assert [(await gates.ask(ONE, 1)).said for _ in range(2)] == ["1", "1"]

    with_gate(tmp_path, "echo x >> seen; wc -l < seen", act)


@pytest.mark.parametrize(
    "script",
    ["#!/no/such/interpreter\n", "kill -9 $$", "\x7fELF nonsense"],
    ids=["interpreter", "killed", "no program"],
)
def test_a_gate_that_cannot_decide_fails(tmp_path: Path, script: str) -> None:
    async def act(gates: ScriptGates) -> None:
        with pytest.raises(Permanent, match=r"the gate gate\.sh did not decide"):
            await gates.ask(ONE, 7)

    with_gate(tmp_path, script, act)


def test_a_gate_that_is_gone_fails(tmp_path: Path) -> None:
    async def act(gates: ScriptGates) -> None:
        with pytest.raises(BadInput, match=r"there is no gate gate\.sh"):
            await gates.ask(ONE, 7)

    with_gate(tmp_path, None, act)


def test_a_talkative_gate_is_cut(tmp_path: Path) -> None:
    async def act(gates: ScriptGates) -> None:
        said = (await gates.ask(ONE, 7)).said
        assert len(said) < MOST_SAID + 100
        assert said.endswith("[... the rest is left out]")

    with_gate(tmp_path, "yes | head -c 20000", act)


def test_a_gate_sees_neither_the_instance_nor_the_network(tmp_path: Path) -> None:
    (tmp_path / "rucher.toml").write_text("secret")

    async def act(gates: ScriptGates) -> None:
        assert (await gates.ask(ONE, 7)).said == "closed"

    with socket.create_server(("127.0.0.1", 0)) as server:
        reached = f"(echo > /dev/tcp/127.0.0.1/{server.getsockname()[1]}) 2>/dev/null"
        read = f"cat {tmp_path}/rucher.toml ../../../rucher.toml 2>/dev/null"
        assert subprocess.run(["bash", "-c", reached], check=False).returncode == 0
        with_gate(tmp_path, f"#!/bin/bash\n{read} && exit 1\n{reached} && exit 2\necho closed", act)
