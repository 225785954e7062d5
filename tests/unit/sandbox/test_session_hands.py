"""The pool of hands over real sandboxes: runners die in every way, and each call ends once, by its effect."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

from rucher.engine.tools.workspace import LIST_DIR, READ_FILE, SHELL, WRITE_FILE
from rucher.mailbox.host import HostMailbox, create
from rucher.mailbox.rows import Kind
from rucher.mailbox.runner import RunnerMailbox
from rucher.protocol.conversation import Effect, ToolCall, ToolResult, ToolSpec
from rucher.protocol.errors import BadInput, Corrupt, Denied, Retryable, Uncertain
from rucher.sandbox.bubblewrap import Bubblewrap, Sandbox
from rucher.sandbox.hands import SessionHands
from rucher.sandbox.options import Interpreter
from rucher.sandbox.patience import Patience
from rucher.sandbox.pool import HandsPool
from tests.escape.attack import Place

PYTHON = Interpreter.own().program
SHELL_AGAIN = replace(SHELL, effect=Effect.IDEMPOTENT_WRITE)
HURRIED = Patience(stuck_s=3.0, unclaimed_s=5.0, margin_s=0.5, idle_s=0.3, rest_s=30.0)


async def done(hands: SessionHands, spec: ToolSpec, key: str, **arguments: object) -> ToolResult:
    return await hands.execute(ToolCall(key, spec.name, arguments), spec, key)


async def until(condition: Callable[[], object], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.005)


async def killed_while_it_runs(hands: SessionHands, spec: ToolSpec, key: str, command: str) -> ToolResult:
    """The result of a command whose runner is killed by SIGKILL once the command has made the file `begun`."""
    begun = await hands.workspace() / "begun"
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(done(hands, spec, key, command=command))
        await until(begun.exists)
        assert hands.runner.pid is not None
        os.kill(hands.runner.pid, signal.SIGKILL)
        return await running


def test_a_key_that_has_a_result_is_answered_without_starting_anything(place: Place) -> None:
    async def first(pool: HandsPool) -> ToolResult:
        return await done(pool.session("s"), SHELL, "k", command="echo once | tee -a log")

    async def again(pool: HandsPool) -> tuple[ToolResult, int | None]:
        hands = pool.session("s")
        return await done(hands, SHELL, "k", command="echo once | tee -a log"), hands.runner.pid

    result = place.during(first)
    assert place.during(again) == (result, None)
    assert (place.sessions / "s" / "workspace" / "log").read_text() == "once\n"


def test_a_command_cut_off_by_a_dead_runner_is_uncertain_and_not_run_again(place: Place) -> None:
    async def attack(pool: HandsPool) -> tuple[str, bool]:
        hands = pool.session("s")
        with pytest.raises(ExceptionGroup) as caught:
            await killed_while_it_runs(hands, SHELL, "k", "echo ran >> log; touch begun; sleep 60")
        assert caught.group_contains(Uncertain)
        with pytest.raises(Uncertain):
            await done(hands, SHELL, "k", command="echo ran >> log; touch begun; sleep 60")
        return (await hands.workspace() / "log").read_text(), (await done(hands, LIST_DIR, "next", path=".")).ok

    assert place.during(attack) == ("ran\n", True)


def test_an_idempotent_write_cut_off_by_a_dead_runner_is_run_again(place: Place) -> None:
    async def attack(pool: HandsPool) -> ToolResult:
        command = "if test -e begun; then echo second; else touch begun; sleep 60; fi"
        return await killed_while_it_runs(pool.session("s"), SHELL_AGAIN, "k", command)

    assert place.during(attack).text == "second"


def test_claims_and_results_of_an_earlier_daemon_do_not_poison_the_next_start(place: Place) -> None:
    session = place.sessions / "s"
    create(session, "s")
    host = HostMailbox(session)
    body = {"name": "shell", "arguments": {"command": "touch never"}, "effect": "non_idempotent", "timeout_s": 9}
    for key in ("orphan-1", "orphan-2"):
        host.put(Kind.TOOL_CALL, key, body, 1)
    dead = RunnerMailbox(str(session), lambda: 1)
    dead.recover()
    dead.claim(dead.open_calls())
    dead.close()
    host.close()
    os.utime(session / ".heartbeat", (1, 1))

    async def attack(pool: HandsPool) -> bool:
        hands = pool.session("s")
        alive = (await done(hands, LIST_DIR, "k", path=".")).ok
        with pytest.raises(Uncertain):
            await done(hands, SHELL, "orphan-1", command="touch never")
        return alive

    assert place.during(attack, HURRIED)
    assert not (session / "workspace" / "never").exists()


def test_a_hot_journal_left_by_a_killed_runner_is_undone_in_the_sandbox(place: Place) -> None:
    async def before(pool: HandsPool) -> ToolResult:
        return await done(pool.session("s"), LIST_DIR, "kept", path=".")

    place.during(before)
    outbound = place.sessions / "s" / "outbound.db"
    script = """
import os, signal, sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("PRAGMA journal_mode = PERSIST"); c.execute("PRAGMA cache_size = 2"); c.execute("BEGIN IMMEDIATE")
for i in range(400):
    c.execute("INSERT INTO outbound VALUES (?, 'progress', 2, 'spill', 1, hex(zeroblob(500)))", (100001 + 2 * i,))
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script, str(outbound)], check=False)
    reader = sqlite3.connect(f"file:{outbound}?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError):
        reader.execute("SELECT count(*) FROM outbound").fetchone()
    reader.close()

    async def attack(pool: HandsPool) -> tuple[ToolResult, ToolResult]:
        hands = pool.session("s")
        return await done(hands, READ_FILE, "next", path="x"), await done(hands, LIST_DIR, "kept", path=".")

    following, kept = place.during(attack)
    assert "does not exist" in following.text
    assert kept.text == "[the folder is empty]"


def test_one_spoilt_session_stops_visibly_and_no_other(place: Place) -> None:
    async def attack(pool: HandsPool) -> bool:
        bad, good = pool.session("bad"), pool.session("good")
        await done(bad, LIST_DIR, "k1", path=".")
        await done(good, LIST_DIR, "k1", path=".")
        spoil = (
            "import sqlite3; c = sqlite3.connect('/session/outbound.db');"
            "c.execute('PRAGMA journal_mode = MEMORY'); c.execute('CREATE TABLE x(y)')"
        )
        with pytest.raises(Corrupt, match=r"bad/outbound\.db"):
            await done(bad, SHELL, "k2", command=f'{PYTHON} -c "{spoil}"')
        with pytest.raises(Corrupt, match=r"bad/outbound\.db"):
            await done(bad, LIST_DIR, "k3", path=".")
        return (await done(good, LIST_DIR, "k2", path=".")).ok

    assert place.during(attack)


def test_a_call_that_takes_too_long_is_a_failed_result_and_the_next_call_works(place: Place) -> None:
    async def attack(pool: HandsPool) -> list[ToolResult]:
        hands = pool.session("s")
        slow = replace(SHELL, timeout_s=0.5)
        return [await done(hands, slow, "k1", command="sleep 60"), await done(hands, LIST_DIR, "k2", path=".")]

    slow, following = place.during(attack)
    assert (slow.ok, following.ok) == (False, True)
    assert "longer than 0.5 s" in slow.text


def test_a_stuck_runner_is_ended_and_the_call_does_not_poison_the_session(place: Place) -> None:
    async def attack(pool: HandsPool) -> list[ToolResult]:
        hands = pool.session("s")
        await done(hands, WRITE_FILE, "k0", path="bad.txt", content="a" * 60)
        # This pattern keeps the interpreter busy for longer than anybody lives, and no heart beats meanwhile.
        stuck = ToolSpec("search", "", {}, Effect.READ, timeout_s=4.0)
        return [
            await done(hands, stuck, "k1", pattern="(a+)+$|(a|a)+b", path="bad.txt"),
            await done(hands, stuck, "k2", pattern="((a|a)+)+b", path="bad.txt"),
            await done(hands, LIST_DIR, "k3", path="."),
            await done(hands, stuck, "k2", pattern="((a|a)+)+b", path="bad.txt"),
        ]

    _, stuck, following, again = place.during(attack, HURRIED)
    assert (stuck.ok, following.ok, again.ok) == (False, True, False)
    assert "stopped by the host" in stuck.text


def test_a_cancelled_call_ends_soon_as_a_failed_one(place: Place) -> None:
    async def attack(pool: HandsPool) -> ToolResult:
        hands = pool.session("s")
        begun = await hands.workspace() / "begun"
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(done(hands, SHELL, "k", command="touch begun; sleep 60"))
            await until(begun.exists)
            await hands.cancel(["k"])
            return await running

    result = place.during(attack)
    assert not result.ok
    assert "cancelled" in result.text


def test_reads_and_writes_asked_for_at_once_all_end(place: Place) -> None:
    async def attack(pool: HandsPool) -> list[ToolResult]:
        hands = pool.session("s")
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(done(hands, spec, f"{spec.name}{number}", **arguments))
                for number in range(5)
                for spec, arguments in ((LIST_DIR, {"path": "."}), (SHELL, {"command": f"echo {number}"}))
            ]
        return [task.result() for task in running]

    results = place.during(attack)
    assert [result.text for result in results if result.name == "shell"] == ["0", "1", "2", "3", "4"]
    assert all(result.ok for result in results)


def test_an_idle_runner_is_stopped_and_comes_back_when_needed(place: Place) -> None:
    async def attack(pool: HandsPool) -> bool:
        hands = pool.session("s")
        await done(hands, LIST_DIR, "k1", path=".")
        pid = hands.runner.pid
        assert pid is not None
        hands.rest_if_idle()
        assert hands.runner.pid == pid, "it was used just now"
        await until(lambda: _rested(hands))
        await hands.runner.ended()
        assert not _exists(pid)
        return (await done(hands, LIST_DIR, "k2", path=".")).ok

    assert place.during(attack, HURRIED)


def test_a_tool_that_locks_the_mailbox_ends_with_its_sandbox_and_holds_up_nobody(place: Place) -> None:
    async def attack(pool: HandsPool) -> list[ToolResult | BaseException]:
        hands = pool.session("s")
        begun = await hands.workspace() / "begun"
        # The bytes that SQLite locks to read and to write: readers of a file may lock them too, though only to share.
        hold = (
            "import fcntl, time; i = open('/session/inbound.db'); o = open('/session/outbound.db', 'r+');"
            "fcntl.lockf(i, fcntl.LOCK_SH, 512, 0x40000000); fcntl.lockf(o, fcntl.LOCK_EX, 512, 0x40000000);"
            "open('begun', 'w'); time.sleep(60)"
        )
        locking = done(hands, SHELL, "k1", command=f'{PYTHON} -c "{hold}"')
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(_outcome(locking))
            await until(begun.exists)
            following = await _outcome(done(hands, LIST_DIR, "k2", path="."))
            return [await running, following]

    locking, following = place.during(attack)
    assert isinstance(locking, Uncertain)
    assert isinstance(following, ToolResult)
    assert following.ok


async def _outcome(act: Awaitable[ToolResult]) -> ToolResult | BaseException:
    try:
        return await act
    except Uncertain as error:
        return error


def _rested(hands: SessionHands) -> bool:
    hands.rest_if_idle()
    return hands.runner.pid is None


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


class Broken(Bubblewrap):
    """A launcher whose sandboxes die at once."""

    @override
    def start_runner(self, session_dir: Path) -> Sandbox:
        return self.start(["-c", "raise SystemExit('it cannot live here')"], None)


def test_a_sandbox_that_dies_again_and_again_is_given_a_rest_and_says_why(place: Place) -> None:
    broken = Broken(place.launcher.options, place.launcher._clock)  # noqa: SLF001 - the same clock

    async def attack(pool: HandsPool) -> float:
        hands = pool.session("s")
        with pytest.raises(Retryable, match=r"died 3 times in a row .*it cannot live here") as caught:
            await done(hands, LIST_DIR, "k", path=".")
        started = time.monotonic()
        with pytest.raises(Retryable):
            await done(hands, LIST_DIR, "k", path=".")
        assert time.monotonic() - started < 1
        return caught.value.retry_after or 0

    assert 0 < Place(place.folder, broken).during(attack) <= 30
    row_is_wanted_by_nobody = HostMailbox(place.sessions / "s")
    assert row_is_wanted_by_nobody.pending(Kind.TOOL_CALL) == []
    row_is_wanted_by_nobody.close()


class Forbidden(Bubblewrap):
    """A launcher on a machine that forbids sandboxes."""

    @override
    def start(self, interpreter_arguments: Sequence[str], session_dir: Path | None) -> Sandbox:
        raise Denied("user namespaces are forbidden here; run `sysctl ...`")


def test_where_no_sandbox_can_be_made_nothing_runs(place: Place) -> None:
    async def attack(pool: HandsPool) -> None:
        with pytest.raises(Denied, match="run `sysctl"):
            await done(pool.session("s"), SHELL, "k", command="touch ran")

    Place(place.folder, Forbidden(place.launcher.options, place.launcher._clock)).during(attack)  # noqa: SLF001 - the same clock
    assert list((place.sessions / "s" / "workspace").iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "a\0", "x" * 200])
def test_a_session_id_that_names_no_folder_is_refused(place: Place, name: str) -> None:
    async def attack(pool: HandsPool) -> None:
        with pytest.raises(BadInput):
            pool.session(name)

    place.during(attack)


DAEMON = """
import asyncio, sys
from pathlib import Path
from rucher.engine.tools.workspace import SHELL
from rucher.protocol.clock import SystemClock
from rucher.protocol.conversation import ToolCall
from rucher.sandbox.bubblewrap import Bubblewrap, Sandbox
from rucher.sandbox.mailboxes import Mailboxes
from rucher.sandbox.options import SandboxOptions
from rucher.sandbox.pool import HandsPool
clock = SystemClock()
options = SandboxOptions(Path(sys.argv[2]))
pool = HandsPool(Mailboxes(Path(sys.argv[1]), options), Bubblewrap(options, clock), clock)
asyncio.run(pool.session("s").execute(ToolCall("1", "shell", {"command": "touch begun; sleep 86421"}), SHELL, "k"))
"""


def _holding(marker: str) -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                if marker.encode() in (path / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(path.name))
            except OSError:
                continue
    return found


def test_everything_in_the_sandboxes_dies_with_a_daemon_that_is_killed(place: Place) -> None:
    source = Path(sys.modules["rucher"].__file__ or "").parents[1]
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON, str(place.sessions), str(place.launcher.options.cache_dir)],
        env={"PYTHONPATH": f"{source}{os.pathsep}{os.pathsep.join(sys.path)}"},
    )
    begun = place.sessions / "s" / "workspace" / "begun"
    try:
        asyncio.run(until(begun.exists))
        asyncio.run(until(lambda: _holding("86421")))
    finally:
        daemon.kill()
        daemon.wait()
    asyncio.run(until(lambda: not _holding("86421")))

    async def following(pool: HandsPool) -> bool:
        with pytest.raises(Uncertain):
            await done(pool.session("s"), SHELL, "k", command="anything")
        return (await done(pool.session("s"), LIST_DIR, "k2", path=".")).ok

    assert place.during(following)
