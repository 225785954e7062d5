"""The child process of the embedded model: what it needs, and that it never outlives its daemon. No weights are loaded."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rucher.engine.models import embedded
from rucher.engine.models.embedded import EmbeddedModel, lean_here
from rucher.protocol.conversation import Conversation, ModelOptions, User
from rucher.protocol.errors import Permanent

CHILD = Path(embedded.__file__).with_name("embedded_server.py")
AVX2 = "flags : sse avx avx2 fma\n"
GIGABYTE = 10**9


def memory(available: float) -> str:
    return f"MemTotal: 99999999 kB\nMemAvailable:   {int(available * GIGABYTE / 1024)} kB\n"


@pytest.mark.parametrize(
    ("available", "lean"),
    [(8.0, False), (2.0, False), (1.8, True), (1.4, True)],
)
def test_short_memory_makes_the_server_lean(available: float, lean: bool) -> None:  # noqa: FBT001 - a table
    assert lean_here(GIGABYTE, "x86_64", AVX2, memory(available)) is lean


def test_too_little_memory_is_said_in_one_line_with_what_to_do() -> None:
    with pytest.raises(Permanent, match=r"needs 1.3 GB .* 1.0 GB are free: .*\[model\]"):
        lean_here(GIGABYTE, "x86_64", AVX2, memory(1.0))


def test_a_processor_that_lacks_the_instructions_is_refused_before_the_crash() -> None:
    with pytest.raises(Permanent, match="AVX2"):
        lean_here(GIGABYTE, "x86_64", "flags : sse avx fma\n", memory(9))
    assert lean_here(GIGABYTE, "aarch64", "Features : asimd\n", memory(9)) is False
    assert lean_here(GIGABYTE, "arm64", "", "") is False


def ask(weights: Path, tmp_path: Path) -> None:
    async def story() -> None:
        asked = EmbeddedModel(weights, tmp_path / "logs" / "model.log")
        try:
            async for _ in asked.stream(Conversation("", (User("x"),)), (), ModelOptions()):
                pass
        finally:
            await asked.close()
            assert asked.server.pid is None

    asyncio.run(story())


def test_missing_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match=r"none\.gguf cannot be read"):
        ask(tmp_path / "none.gguf", tmp_path)


def test_weights_that_are_none_cost_one_clear_line_and_leave_the_native_log(tmp_path: Path) -> None:
    weights = tmp_path / "broken.gguf"
    weights.write_bytes(b"GGUF" + os.urandom(4096))
    with pytest.raises(Permanent, match="do not load") as refused:
        ask(weights, tmp_path)
    assert "\n" not in str(refused.value)
    assert (tmp_path / "logs" / "model.log").stat().st_size > 0


def test_the_key_is_on_no_command_line_and_in_no_environment() -> None:
    config = {"weights": "/nonexistent", "key": "the-key", "context_tokens": 64, "threads": 1, "lean": False}
    child = subprocess.Popen(
        [sys.executable, "-P", str(CHILD)],
        env={},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        for name in ("cmdline", "environ"):
            assert b"the-key" not in Path(f"/proc/{child.pid}/{name}").read_bytes()
        child.stdin.write(json.dumps(config).encode() + b"\n")
        child.stdin.flush()
        said = child.stdout.readline()
        assert json.loads(said)["obstacle"] == "load"
        assert b"the-key" not in said


DAEMON = """
import asyncio, sys
from pathlib import Path
from rucher.engine.models import embedded
embedded._CHILD = Path(sys.argv[1])
async def main():
    server = embedded.EmbeddedModel(Path(sys.argv[2]), Path(sys.argv[3])).server
    await server.endpoint()
    print(server.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
STAND_IN = """
import sys, threading
sys.stdin.buffer.readline()
print('{"url": "http://127.0.0.1:9"}', flush=True)
sys.stdin.buffer.read()
"""


def test_a_daemon_killed_with_sigkill_leaves_no_child(tmp_path: Path) -> None:
    """The leash alone, with a stand-in for the native part; the real child is checked where weights are."""
    stand_in, weights = tmp_path / "stand_in.py", tmp_path / "w.gguf"
    stand_in.write_text(STAND_IN, encoding="utf-8")
    weights.write_bytes(b"GGUF")
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON, str(stand_in), str(weights), str(tmp_path / "log")], stdout=subprocess.PIPE
    )
    with daemon:
        assert daemon.stdout is not None
        child = int(daemon.stdout.readline())
        os.kill(child, 0)
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
    assert gone(child, within_s=10)


def gone(pid: int, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False
