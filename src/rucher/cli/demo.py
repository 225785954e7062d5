"""`rucher demo`: one message through a throw-away instance with the real embedded model, then a kill in mid-work.

It uses what a user would use: an instance made by `rucher new`, a daemon started by `rucher up`, `rucher send`.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from rucher.cli.client import Daemon
from rucher.cli.drawing import drawn
from rucher.cli.new import make
from rucher.cli.progress import bar
from rucher.cli.reading import read
from rucher.cli.show import plain
from rucher.daemon.models import weights_of
from rucher.daemon.seeding import seed_workspace
from rucher.daemon.settings import EmbeddedModelSettings
from rucher.instance.layout import Instance
from rucher.journal.store import StoreReader
from rucher.protocol.errors import BadInput, Permanent, Retryable
from rucher.protocol.events import Event

QUESTION = "When did hive 3 swarm?"
EXPECTED = "12 May"
SECOND_QUESTION = "Which batch of honey waits, and why?"
READY_S = 60.0
END_S = 20.0
ANSWER_S = 600.0
POLL_S = 0.05


@click.command(name="demo")
@click.option("--keep/--remove", default=True, help="Leave the instance on disk to look at.  [default: keep]")
def demo(*, keep: bool) -> None:
    """Watch a message travel through a throw-away instance, and survive a kill."""
    _say("1. The model: its weights are fetched once for this user, about 1.1 GB.")
    with bar() as on_progress:
        weights_of(EmbeddedModelSettings(), on_progress)
    folder = Path(tempfile.mkdtemp(prefix="rucher-demo-"))
    _say(f"2. A throw-away instance in {folder}, and four text files in an agent's workspace.")
    instance = make(folder, name="demo", model="embedded", port=None)
    workspace = seed_workspace(instance, "scribe", "cli:main", _texts())
    with _daemon(instance) as daemon:
        _say(f"3. A question whose answer stands in one of them only: {QUESTION}")
        first = _asked(daemon, QUESTION, "demo-1")
        plain(f"\n   {first['answer']}\n")
        _say("4. All that this message caused:")
        for line in drawn(_trace(instance, first["trace_id"])):
            plain(f"   {line}")
        _say(f"5. A second question: {SECOND_QUESTION} The daemon is killed (SIGKILL) while it works on it.")
        second_id, second_trace = daemon.accept({"text": SECOND_QUESTION, "key": "demo-2"})
        _wait_for(instance, second_trace, "step.intended")
        daemon.kill()
    with _daemon(instance) as daemon:
        _say("   The daemon is started again; nobody sends the question again.")
        answered = daemon.outcome(second_id, ANSWER_S)
        plain(f"\n   {answered['answer']}\n")
    _tell(instance, workspace, second_trace)
    faults = _faults(first, answered, _trace(instance, second_trace))
    if not keep:
        shutil.rmtree(folder)
    if faults:
        raise Permanent("the demonstration failed: " + "; ".join(faults))


class _Running(Daemon):
    """A daemon that this process started."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        command = [sys.executable, "-m", "rucher.cli", "--dir", str(instance.root), "up"]
        self._output = (instance.state / "terminal.log").open("ab")
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                self.call("GET", "/health")
            except (BadInput, Retryable):
                time.sleep(POLL_S)
            else:
                return
        raise Permanent(f"the daemon did not start; it said why in {self._output.name}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._output.close()


@contextmanager
def _daemon(instance: Instance) -> Iterator[_Running]:
    running = _Running(instance)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.end()


def _asked(daemon: Daemon, text: str, key: str) -> dict[str, Any]:
    event_id, _ = daemon.accept({"text": text, "key": key})
    return daemon.outcome(event_id, ANSWER_S)


def _wait_for(instance: Instance, trace_id: str, kind: str) -> None:
    deadline = time.monotonic() + READY_S
    while not any(event.type == kind for event in _trace(instance, trace_id)):
        if time.monotonic() > deadline:
            raise Permanent(f"the daemon did not begin to work; see {instance.log}")
        time.sleep(POLL_S)


def _trace(instance: Instance, trace_id: str) -> list[Event]:
    async def work(store: StoreReader) -> list[Event]:
        return list(await store.trace(trace_id))

    return read(instance.root, work)


def _faults(first: dict[str, Any], second: dict[str, Any], trace: list[Event]) -> list[str]:
    answers = sum(event.source == "agent" and event.type == "answer" for event in trace)
    found = []
    if first["status"] != "answered" or EXPECTED not in first["answer"]:
        found.append(f"the first answer is {first['status']} and does not name {EXPECTED}")
    if second["status"] != "answered" or answers != 1:
        found.append(f"the second question is {second['status']} and has {answers} answers instead of one")
    return found


def _tell(instance: Instance, workspace: Path, trace_id: str) -> None:
    _say("6. It was answered once. Where everything lies:")
    for what, path in (
        ("the journal, one SQLite file", instance.journal),
        ("who wakes for what", instance.rules),
        ("the session: its two mailbox files and its workspace", workspace.parent),
        ("what was delivered", instance.surfaces / "cli" / "main.jsonl"),
    ):
        plain(f"   {what}: {path}")
    _say("   Look on, with the daemon stopped or running:")
    for command in ("events", f"trace {trace_id}", "runs", "journal verify"):
        plain(f"   rucher --dir {instance.root} {command}")


def _texts() -> dict[str, str]:
    folder = files("rucher.cli") / "demo_files"
    return {entry.name: entry.read_text("utf-8") for entry in folder.iterdir()}


def _say(text: str) -> None:
    click.echo(click.style(text, bold=True))
