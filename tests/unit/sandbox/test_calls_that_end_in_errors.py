"""Calls without a runner: what was reported as not run is not run later, and half commits are undone for whoever waits."""

import asyncio
import gc
import os
import signal
import sqlite3
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

from rucher.engine.tools.workspace import LIST_DIR, READ_FILE, SHELL
from rucher.mailbox.host import HostMailbox, create
from rucher.mailbox.rows import Kind, Outcome
from rucher.mailbox.runner import RunnerMailbox
from rucher.protocol.conversation import Effect, ToolSpec
from rucher.protocol.errors import Corrupt, Denied, Retryable, Uncertain
from rucher.sandbox.bubblewrap import Bubblewrap, Sandbox
from rucher.sandbox.capability import Capability
from rucher.sandbox.mailboxes import Mailboxes
from rucher.sandbox.pool import HandsPool
from tests.escape.attack import Place
from tests.unit.mailbox.killed import kill_in_commit
from tests.unit.sandbox.test_session_hands import HURRIED, PYTHON, SHELL_AGAIN, done, until

RESTLESS = replace(HURRIED, rest_s=0.1)
BODY = {"name": "shell", "arguments": {"command": "touch ran"}, "effect": "non_idempotent", "timeout_s": 9}


class Faint(Bubblewrap):
    """A launcher whose first sandboxes die before they look at anything."""

    deaths = 3

    @override
    def start_runner(self, session_dir: Path) -> Sandbox:
        if self.deaths == 0:
            return super().start_runner(session_dir)
        self.deaths -= 1
        return self.start(["-c", "raise SystemExit('too faint')"], None)


def faint(place: Place) -> Place:
    return Place(place.folder, Faint(place.launcher.options, place.launcher._clock))  # noqa: SLF001 - the same clock


@pytest.mark.parametrize("spec", [SHELL, SHELL_AGAIN], ids=["once", "repeatable"])
def test_a_call_reported_as_one_that_could_not_run_is_not_run_by_a_later_runner(place: Place, spec: ToolSpec) -> None:
    async def attack(pool: HandsPool) -> bool:
        hands = pool.session("s")
        with pytest.raises(Retryable, match="too faint"):
            await done(hands, spec, "k1", command="touch ran")
        await asyncio.sleep(hands.runner.rests_s())
        following = await done(hands, SHELL, "k2", command="ls")
        assert following.ok
        return "ran" in following.text

    assert not faint(place).during(attack, RESTLESS)
    assert not (place.sessions / "s" / "workspace" / "ran").exists()


def test_the_same_call_asked_for_again_runs_then(place: Place) -> None:
    async def attack(pool: HandsPool) -> str:
        hands = pool.session("s")
        with pytest.raises(Retryable):
            await done(hands, SHELL, "k", command="echo once | tee -a log")
        await asyncio.sleep(hands.runner.rests_s())
        return (await done(hands, SHELL, "k", command="echo once | tee -a log")).text

    assert faint(place).during(attack, RESTLESS) == "once"
    assert (place.sessions / "s" / "workspace" / "log").read_text() == "once\n"


class Forbidden(Bubblewrap):
    """A launcher on a machine that has come to forbid sandboxes."""

    @override
    async def capability(self) -> Capability:
        return Capability(ok=False, reason="sandboxes are forbidden here; run `sysctl ...`")


def forbidden(place: Place) -> Place:
    return Place(place.folder, Forbidden(place.launcher.options, place.launcher._clock))  # noqa: SLF001 - the same clock


async def left_pending(mailboxes: Mailboxes, key: str, *, claimed: bool) -> None:
    """A call of a daemon that died, begun by its runner or not."""
    await mailboxes.use("s", lambda box: box.put(Kind.TOOL_CALL, key, BODY, 1))
    if claimed:
        runner = RunnerMailbox(str(mailboxes.folder("s")), lambda: 1)
        runner.recover()
        runner.claim(runner.open_calls())
        runner.close()


def test_a_call_of_an_earlier_daemon_that_is_denied_now_is_not_run_when_sandboxes_are_back(place: Place) -> None:
    async def denied(pool: HandsPool, mailboxes: Mailboxes) -> None:
        await left_pending(mailboxes, "k", claimed=False)
        with pytest.raises(Denied, match="sysctl"):
            await done(pool.session("s"), SHELL, "k", command="touch ran")

    async def following(pool: HandsPool) -> bool:
        return (await done(pool.session("s"), LIST_DIR, "k2", path=".")).ok

    forbidden(place).with_mailboxes(denied)
    assert place.during(following)
    assert not (place.sessions / "s" / "workspace" / "ran").exists()


def test_a_call_that_had_been_begun_and_cannot_be_settled_is_uncertain(place: Place) -> None:
    async def denied(pool: HandsPool, mailboxes: Mailboxes) -> None:
        await left_pending(mailboxes, "k", claimed=True)
        for _ in range(2):
            with pytest.raises(Uncertain):
                await done(pool.session("s"), SHELL, "k", command="touch ran")

    forbidden(place).with_mailboxes(denied)


def test_uncertain_about_what_may_be_done_again_is_a_failed_result(place: Place) -> None:
    async def attack(pool: HandsPool, mailboxes: Mailboxes) -> list[bool]:
        body = BODY | {"effect": "read"}
        await mailboxes.use("s", lambda box: [box.put(Kind.TOOL_CALL, key, body, 1) for key in ("read", "write")])
        liar = RunnerMailbox(str(mailboxes.folder("s")), lambda: 1)
        for call in liar.open_calls():
            liar.finish(call, Outcome.UNCERTAIN, "who knows")
        liar.close()
        hands = pool.session("s")
        read = await done(hands, READ_FILE, "read", path="x")
        write = await done(hands, replace(READ_FILE, effect=Effect.IDEMPOTENT_WRITE), "write", path="x")
        return [read.ok, write.ok]

    assert place.with_mailboxes(attack) == [False, False]


async def killed_runner_with_a_half_commit(pool: HandsPool, folder: Path) -> None:
    hands = pool.session("s")
    assert (await done(hands, LIST_DIR, "before", path=".")).ok
    assert hands.runner.pid is not None
    os.kill(hands.runner.pid, signal.SIGKILL)
    await until(lambda: not Path(f"/proc/{hands.runner.pid}/exe").exists())
    kill_in_commit(folder / "outbound.db", "outbound")


def test_a_message_reaches_a_session_whose_runner_was_killed_in_a_commit(place: Place) -> None:
    async def attack(pool: HandsPool, mailboxes: Mailboxes) -> tuple[list[str], bool]:
        await killed_runner_with_a_half_commit(pool, mailboxes.folder("s"))
        await mailboxes.put_message("s", "m", {"text": "hello"}, 1)
        kept = [row.key for row in await mailboxes.pending_messages("s")]
        return kept, (await done(pool.session("s"), LIST_DIR, "before", path=".")).ok

    assert place.with_mailboxes(attack) == (["m"], True)


def test_messages_that_wait_for_the_same_recovery_all_arrive(place: Place) -> None:
    async def attack(pool: HandsPool, mailboxes: Mailboxes) -> int:
        await killed_runner_with_a_half_commit(pool, mailboxes.folder("s"))
        async with asyncio.TaskGroup() as tasks:
            for number in range(10):
                tasks.create_task(mailboxes.put_message("s", f"m{number}", {}, 1))
        return len(await mailboxes.pending_messages("s"))

    assert place.with_mailboxes(attack) == 10


def test_a_half_commit_that_a_live_runner_does_not_look_at_is_undone_too(place: Place) -> None:
    async def attack(pool: HandsPool, mailboxes: Mailboxes) -> list[str]:
        assert (await done(pool.session("s"), LIST_DIR, "before", path=".")).ok
        kill_in_commit(mailboxes.folder("s") / "outbound.db", "outbound")
        await mailboxes.put_message("s", "m", {}, 1)
        return [row.key for row in await mailboxes.pending_messages("s")]

    assert place.with_mailboxes(attack) == ["m"]


def test_where_no_sandbox_can_be_had_a_half_commit_is_no_corruption_and_says_why(place: Place) -> None:
    create(place.sessions / "s", "s")
    kill_in_commit(place.sessions / "s" / "outbound.db", "outbound")

    async def attack(_pool: HandsPool, mailboxes: Mailboxes) -> None:
        with pytest.raises(Retryable, match=r"outbound\.db.*sysctl"):
            await mailboxes.put_message("s", "m", {}, 1)

    forbidden(place).with_mailboxes(attack)


def test_a_tool_that_leaves_a_half_commit_on_purpose_wedges_nobody(place: Place) -> None:
    leave = (
        "import os, sqlite3; c = sqlite3.connect('/session/outbound.db', isolation_level=None);"
        "c.execute('PRAGMA journal_mode = PERSIST'); c.execute('PRAGMA cache_size = 2'); c.execute('BEGIN IMMEDIATE');"
        "[c.execute('INSERT INTO outbound VALUES (?, ?, 2, ?, 1, hex(zeroblob(500)))', (100001 + 2 * i, 'progress', 'x'))"
        " for i in range(400)]; open('begun', 'w'); os.kill(os.getpid(), 9)"
    )

    async def attack(pool: HandsPool, mailboxes: Mailboxes) -> tuple[list[str], bool]:
        hands = pool.session("s")
        begun = await hands.workspace() / "begun"
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(
                done(hands, SHELL, "k1", command=f'{PYTHON} -c "{leave}"; while ! test -e go; do sleep 0.01; done')
            )
            await until(begun.exists)
            with pytest.raises(Retryable, match=r"outbound\.db"):
                await mailboxes.put_message("s", "m1", {}, 1)
            (begun.parent / "go").touch()
            await running
        await mailboxes.put_message("s", "m2", {}, 1)
        kept = [row.key for row in await mailboxes.pending_messages("s")]
        return kept, (await done(hands, LIST_DIR, "k2", path=".")).ok

    assert place.with_mailboxes(attack, replace(HURRIED, recovery_s=0.5)) == (["m2"], True)


@pytest.mark.parametrize("text", ["\\ud800", "\\u0000"])
def test_a_result_that_no_journal_could_hold_stops_its_session_only(place: Place, text: str) -> None:
    async def attack(pool: HandsPool, mailboxes: Mailboxes) -> bool:
        await left_pending(mailboxes, "k", claimed=True)
        await mailboxes.use("s", _forge(mailboxes.folder("s"), f'{{"outcome": "ok", "text": "{text}"}}'))
        with pytest.raises(Corrupt, match=r"s/outbound\.db"):
            await done(pool.session("s"), SHELL, "k", command="true")
        return (await done(pool.session("other"), LIST_DIR, "k", path=".")).ok

    assert place.with_mailboxes(attack)


def _forge(folder: Path, body: str) -> Callable[[HostMailbox], None]:
    def forge(_: HostMailbox) -> None:
        connection = sqlite3.connect(folder / "outbound.db")
        connection.execute("INSERT INTO outbound VALUES (99, 'result', 2, 'k', 1, ?)", (body,))
        connection.commit()
        connection.close()

    return forge


def test_hands_that_nobody_uses_are_forgotten_and_those_in_use_are_the_same_for_all(place: Place) -> None:
    async def attack(pool: HandsPool) -> Sequence[bool]:
        held, unheld = pool.session("held"), weakref.ref(pool.session("unheld"))
        gc.collect()
        never_used = unheld() is None
        await done(pool.session("used"), LIST_DIR, "k", path=".")
        gc.collect()
        used = weakref.ref(pool.session("used"))
        await done(held, LIST_DIR, "k", path=".")
        kept_while_warm = used() is pool.session("used")

        async def swept() -> None:
            while held.runner.pid is not None or used() is not None:
                await pool.sweep()
                await asyncio.sleep(0.01)

        await asyncio.wait_for(swept(), 15)
        return [
            never_used,
            kept_while_warm,
            pool.session("held") is held,
            (await done(held, LIST_DIR, "k2", path=".")).ok,
        ]

    assert place.during(attack, HURRIED) == [True] * 4
