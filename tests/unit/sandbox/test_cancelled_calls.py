"""What an owner cancels ends: the tool with all that it started, whoever's runner is at it, dead, deaf or obedient.

What goes on is seen from outside: a file in the workspace that grows as long as anything in the sandbox lives.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rucher.engine.tools.workspace import SEARCH, SHELL, WRITE_FILE
from rucher.mailbox.host import HostMailbox
from rucher.mailbox.rows import State
from rucher.protocol.conversation import ToolCall, ToolResult, ToolSpec
from rucher.protocol.errors import Corrupt
from rucher.sandbox.hands import SessionHands
from rucher.sandbox.options import Interpreter
from rucher.sandbox.patience import Patience
from rucher.sandbox.pool import HandsPool
from tests.escape.attack import Place

GROWING = "while :; do echo x >> beat; sleep 0.02; done"
FAMILY = f"(setsid sh -c '{GROWING}' &) & ({GROWING}) & {GROWING}"
"""A loop, a child in the background, and an orphan in a session of its own."""
LOCKING = (
    f"({GROWING}) & {Interpreter.own().program} -I -c 'import fcntl, time\n"
    'files = [open("/session/inbound.db"), open("/session/outbound.db")]\n'
    "for file in files: fcntl.lockf(file, fcntl.LOCK_SH)\n"
    'open("locked", "w").write("x"); time.sleep(60)\''
)
BRISK = Patience(cancel_s=0.5)


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.005)


def call(hands: SessionHands, spec: ToolSpec, key: str, **arguments: object) -> Awaitable[ToolResult]:
    return hands.execute(ToolCall(key, spec.name, arguments), spec, key)


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def demand_still(beat: Path) -> None:
    """Nothing writes to it any more; in this time each loop would have done so many times."""
    before = size(beat)
    time.sleep(0.3)
    assert before == size(beat) > 0


async def left_alone(hands: SessionHands, spec: ToolSpec, key: str, sign: Path, **arguments: object) -> None:
    """Have the call begun, and let go of it as a worker does whose task is cancelled."""
    running = asyncio.ensure_future(call(hands, spec, key, **arguments))
    await until(lambda: size(sign) > 0)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


def runners(heartbeat: Path) -> list[int]:
    """Processes of this machine that have it open."""
    found = []
    for descriptors in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):
            if any(link.samefile(heartbeat) for link in descriptors.iterdir()):
                found.append(int(descriptors.parent.name))
    return found


def state_in(place: Place, key: str = "k") -> State:
    box = HostMailbox(place.sessions / "s")
    try:
        row = box.row(key)
        assert row is not None
        return row.state
    finally:
        box.close()


def test_all_that_a_cancelled_call_started_has_ended_when_the_cancel_returns(place: Place) -> None:
    async def attack(pool: HandsPool) -> tuple[int | None, int | None]:
        hands = pool.session("s")
        beat = await hands.workspace() / "beat"
        await left_alone(hands, SHELL, "k", beat, command=FAMILY)
        before, runner = size(beat), hands.runner.pid
        await until(lambda: size(beat) > before)
        await hands.cancel(["k"])
        demand_still(beat)
        return runner, hands.runner.pid

    before, after = place.during(attack)
    assert before == after is not None, "an obedient runner need not die"
    assert state_in(place) is State.FAILED


def test_a_runner_that_hangs_is_killed_with_its_sandbox(place: Place) -> None:
    async def attack(pool: HandsPool) -> ToolResult:
        hands = pool.session("s")
        beat = await hands.workspace() / "beat"
        await left_alone(hands, SHELL, "k", beat, command=FAMILY)
        for process in runners(place.sessions / "s" / ".heartbeat"):
            os.kill(process, signal.SIGSTOP)
        started = time.monotonic()
        await hands.cancel(["k"])
        assert time.monotonic() - started < 5
        demand_still(beat)
        return await call(hands, SHELL, "next", command="echo fine")

    assert place.during(attack, BRISK).text == "fine"


def test_a_tool_that_locks_the_mailbox_is_ended_all_the_same(place: Place) -> None:
    async def attack(pool: HandsPool) -> None:
        hands = pool.session("s")
        beat = await hands.workspace() / "beat"
        await left_alone(hands, SHELL, "k", beat.with_name("locked"), command=LOCKING)
        await hands.cancel(["k"])
        demand_still(beat)

    place.during(attack, BRISK)
    assert state_in(place) is State.FAILED


def test_a_search_without_end_is_ended(place: Place) -> None:
    async def attack(pool: HandsPool) -> ToolResult:
        hands = pool.session("s")
        folder = await hands.workspace()
        (folder / "bad.txt").write_text("a" * 60 + "\n")
        await hands.adopt(folder / "bad.txt")
        searching = asyncio.ensure_future(call(hands, SEARCH, "k", pattern="((a|a)+)+b", path="bad.txt"))
        await until(lambda: runners(place.sessions / "s" / ".heartbeat"))
        searching.cancel()
        with suppress(asyncio.CancelledError):
            await searching
        started = time.monotonic()
        await hands.cancel(["k"])
        answer = await call(hands, SHELL, "next", command="echo fine")
        assert time.monotonic() - started < 8
        return answer

    assert place.during(attack, BRISK).text == "fine"


def test_a_call_that_comes_after_its_cancel_is_never_begun(place: Place) -> None:
    async def attack(pool: HandsPool) -> ToolResult:
        hands = pool.session("s")
        await hands.cancel(["k"])
        result = await call(hands, WRITE_FILE, "k", path="late", content="x")
        assert not (await hands.workspace() / "late").exists()
        return result

    result = place.during(attack)
    assert not result.ok
    assert "cancelled" in result.text


def test_a_call_that_its_worker_only_let_go_of_goes_on_and_its_result_is_taken_up(place: Place) -> None:
    async def attack(pool: HandsPool) -> ToolResult:
        hands = pool.session("s")
        command = "echo x > begun; while [ ! -e go ]; do sleep 0.02; done; echo made it"
        begun = await hands.workspace() / "begun"
        await left_alone(hands, SHELL, "k", begun, command=command)
        await asyncio.to_thread((begun.parent / "go").touch)
        return await call(hands, SHELL, "k", command=command)

    assert place.during(attack).text == "made it"


def test_the_sandbox_of_a_damaged_session_is_ended(place: Place) -> None:
    async def attack(pool: HandsPool) -> None:
        hands = pool.session("s")
        beat = await hands.workspace() / "beat"
        await left_alone(hands, SHELL, "k", beat, command=FAMILY)
        with (place.sessions / "s" / "outbound.db").open("r+b") as outbound:
            outbound.write(b"forged" * 20)
        with suppress(Corrupt):
            await hands.cancel(["k"])
        demand_still(beat)

    place.during(attack, BRISK)


ANOTHER = """
import asyncio, sys
from pathlib import Path
from rucher.engine.tools.workspace import SHELL
from rucher.protocol.clock import SystemClock
from rucher.protocol.conversation import ToolCall
from rucher.sandbox.bubblewrap import Bubblewrap
from rucher.sandbox.mailboxes import Mailboxes
from rucher.sandbox.options import SandboxOptions
from rucher.sandbox.pool import HandsPool

async def main(sessions, cache, command):
    options, clock = SandboxOptions(Path(cache)), SystemClock()
    with Mailboxes(Path(sessions), options) as mailboxes:
        pool = HandsPool(mailboxes, Bubblewrap(options, clock), clock)
        await pool.session("s").execute(ToolCall("k", SHELL.name, {"command": command}), SHELL, "k")

asyncio.run(main(*sys.argv[1:]))
"""


@contextmanager
def another_worker(place: Place, command: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process, as of a worker, whose sandbox runs the command under the key `k`."""
    cache = str(place.launcher.options.cache_dir)
    process = subprocess.Popen([sys.executable, "-c", ANOTHER, str(place.sessions), cache, command])
    try:
        asyncio.run(until(lambda: size(place.sessions / "s" / "workspace" / "beat") > 0))
        yield process
    finally:
        process.kill()
        process.wait()


async def cancelled_from_here(pool: HandsPool) -> None:
    await pool.session("s").cancel(["k"])


def test_the_runner_of_a_worker_that_stands_still_obeys_whoever_ends_the_run(place: Place) -> None:
    with another_worker(place, FAMILY) as worker:
        worker.send_signal(signal.SIGSTOP)
        place.during(cancelled_from_here)
        demand_still(place.sessions / "s" / "workspace" / "beat")
        assert len(runners(place.sessions / "s" / ".heartbeat")) == 1


def test_the_hanging_runner_of_a_worker_that_stands_still_is_killed(place: Place) -> None:
    with another_worker(place, FAMILY) as worker:
        heartbeat = place.sessions / "s" / ".heartbeat"
        worker.send_signal(signal.SIGSTOP)
        for process in runners(heartbeat):
            os.kill(process, signal.SIGSTOP)
        place.during(cancelled_from_here, BRISK)
        demand_still(heartbeat.parent / "workspace" / "beat")
        assert not runners(heartbeat)


def test_of_a_worker_that_was_killed_nothing_is_left_that_a_later_runner_would_begin(place: Place) -> None:
    with another_worker(place, FAMILY) as worker:
        worker.kill()
        worker.wait()
        place.during(cancelled_from_here)
        demand_still(place.sessions / "s" / "workspace" / "beat")
    assert state_in(place) is State.FAILED
