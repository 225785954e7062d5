"""A real instance for tests: made, started, spoken to and killed through the command line, as a user does."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from rucher.instance.layout import Instance

ECHO = """
[[rule]]
answer = "echo: {text}"
"""
PATIENCE_S = 60.0


class Hive:
    """One instance in a folder of the test, with a scripted model."""

    def __init__(self, folder: Path, script: str = ECHO) -> None:
        self.root = folder / "hive"
        made = self.rucher("new", str(self.root), "--model", "scripted", "--port", str(free_port()), here=False)
        assert made.returncode == 0, made.stderr
        (folder / "script.toml").write_text(script, "utf-8")
        config = self.root / "rucher.toml"
        config.write_text(config.read_text("utf-8").replace('script = "echo"', f'script = "{folder / "script.toml"}"'))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def instance(self) -> Instance:
        """The files of the instance."""
        return Instance(self.root)

    @property
    def state(self) -> Path:
        return self.root / "state"

    def post(self, path: str, body: bytes) -> httpx2.Response:
        """What the daemon answers to these bytes, which no command would send."""
        token = self.instance.token.read_text("ascii").strip()
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}"
        return httpx2.post(url, content=body, headers=headers, timeout=PATIENCE_S, trust_env=False)

    def rucher(self, *arguments: str, here: bool = True, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """The command line with these arguments, on this instance unless told otherwise."""
        place = ("--dir", str(self.root)) if here else ()
        command = [sys.executable, "-m", "rucher.cli", *place, *arguments]
        return subprocess.run(command, capture_output=True, text=True, input=text, timeout=PATIENCE_S, check=False)

    def told(self, *arguments: str) -> Any:
        """The JSON that a command prints; the command must succeed."""
        done = self.rucher(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def events(self, subject: str = "ev.>") -> list[dict[str, Any]]:
        """All events with this subject, in order."""
        return list(self.told("events", "--subject", subject, "--limit", "100000"))

    def delivered(self, group: str = "main") -> list[str]:
        """The texts that were delivered to a group, in order."""
        path = self.state / "surfaces" / "cli" / f"{group}.jsonl"
        return [json.loads(line)["text"] for line in path.read_text("utf-8").splitlines()] if path.exists() else []

    def start(self) -> None:
        """Start the daemon and return when it answers."""
        command = [sys.executable, "-m", "rucher.cli", "--dir", str(self.root), "up"]
        with (self.root / "terminal.log").open("wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        until(self.answers, f"the daemon did not start: {(self.root / 'terminal.log').read_text()}")

    def answers(self) -> bool:
        """Whether the daemon answers."""
        assert self.process is not None
        said = (self.root / "terminal.log").read_text()
        assert self.process.poll() is None, said
        return "is up on" in said

    @property
    def port(self) -> int:
        """The port of its settings."""
        lines = (self.root / "rucher.toml").read_text().splitlines()
        return next(int(line.split("=")[1].split("#")[0]) for line in lines if line.startswith("port"))

    def kill(self) -> None:
        """End the daemon as a power cut would: SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the daemon as a user does."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            process.send_signal(number)
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()
                process.wait()


@contextmanager
def resting(folder: Path, script: str = ECHO) -> Iterator[Hive]:
    """An instance that the test starts and ends as it likes; what is left of it is killed when the test leaves it."""
    hive = Hive(folder, script)
    try:
        yield hive
    finally:
        hive.kill()


@contextmanager
def running(folder: Path, script: str = ECHO) -> Iterator[Hive]:
    """A started instance that is ended when the test leaves it."""
    with resting(folder, script) as hive:
        hive.start()
        yield hive
        hive.stop()


def until(holds: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Return once `holds()`; fail the test when it does not in time."""
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
