"""The registry of mailboxes: one open pair a session, bounded for ever, and a session's faults stay that session's."""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from rucher.mailbox.host import HostMailbox
from rucher.protocol.errors import BadInput, Corrupt, Retryable
from rucher.sandbox.mailboxes import Mailboxes
from rucher.sandbox.options import SandboxOptions

_T = TypeVar("_T")
# To no other user, so that the tests need not be root's.
OPTIONS = SandboxOptions(Path("unused"))


def using(folder: Path, act: Callable[[Mailboxes], Awaitable[_T]], most_open: int = 128) -> _T:
    async def run() -> _T:
        with Mailboxes(folder, OPTIONS, most_open) as mailboxes:
            return await act(mailboxes)

    return asyncio.run(run())


def open_below(folder: Path) -> int:
    count = 0
    for path in Path("/proc/self/fd").iterdir():
        try:
            count += str(path.readlink()).startswith(str(folder))
        except FileNotFoundError:
            continue
    return count


async def keys(mailboxes: Mailboxes, session_id: str) -> list[str]:
    return [row.key for row in await mailboxes.pending_messages(session_id)]


def test_any_number_of_sessions_keeps_a_bounded_number_of_files_open(tmp_path: Path) -> None:
    async def act(mailboxes: Mailboxes) -> tuple[int, list[str]]:
        most = 0
        for number in range(40):
            await mailboxes.put_message(f"s{number}", "k", {}, 1)
            most = max(most, open_below(tmp_path))
        return most, [key for number in range(40) for key in await keys(mailboxes, f"s{number}")]

    most, kept = using(tmp_path, act, most_open=5)
    assert 5 * 4 <= most <= 5 * 6
    assert kept == ["k"] * 40
    assert open_below(tmp_path) == 0


def test_uses_of_many_sessions_at_once_all_happen_and_each_mailbox_is_opened_once(tmp_path: Path) -> None:
    async def act(mailboxes: Mailboxes) -> tuple[list[list[str]], set[int]]:
        seen: set[int] = set()

        async def one(number: int) -> None:
            await mailboxes.put_message(f"s{number % 10}", f"k{number}", {}, 1)
            if number % 10 == 0:
                seen.add(await mailboxes.use("s0", id))

        async with asyncio.TaskGroup() as tasks:
            for number in range(100):
                tasks.create_task(one(number))
        return [await keys(mailboxes, f"s{number}") for number in range(10)], seen

    kept, seen = using(tmp_path, act)
    assert [len(each) for each in kept] == [10] * 10
    assert len(seen) == 1


def test_a_mailbox_in_use_is_not_closed_for_another(tmp_path: Path) -> None:
    async def act(mailboxes: Mailboxes) -> bool:
        begun, go_on = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(box: HostMailbox) -> bool:
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(10)
            return box.row("k") is None

        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(mailboxes.use("busy", slow))
            await begun.wait()
            for number in range(5):
                await mailboxes.put_message(f"s{number}", "k", {}, 1)
            go_on.set()
            return await running

    assert using(tmp_path, act, most_open=1)


def test_a_mailbox_that_met_a_fault_works_again_once_that_is_mended(tmp_path: Path) -> None:
    async def act(mailboxes: Mailboxes) -> list[str]:
        await mailboxes.put_message("s", "k1", {}, 1)
        holder = sqlite3.connect(tmp_path / "s" / "inbound.db", isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Retryable, match=r"inbound\.db.*retry"):
            await mailboxes.put_message("s", "k2", {}, 1)
        holder.execute("ROLLBACK")
        holder.close()
        await mailboxes.put_message("s", "k3", {}, 1)
        return await keys(mailboxes, "s")

    assert using(tmp_path, act) == ["k1", "k3"]


def test_a_spoilt_inbound_file_that_its_owner_removed_is_made_anew(tmp_path: Path) -> None:
    async def act(mailboxes: Mailboxes) -> list[str]:
        await mailboxes.put_message("s", "k1", {}, 1)
        inbound = tmp_path / "s" / "inbound.db"
        with inbound.open("r+b") as file:
            file.write(b"spoilt" * 2000)
        with pytest.raises(Corrupt, match=r"inbound\.db.*remove this file"):
            await mailboxes.put_message("s", "k2", {}, 1)
        inbound.unlink()
        await mailboxes.put_message("s", "k3", {}, 1)
        return await keys(mailboxes, "s")

    assert using(tmp_path, act) == ["k3"]


def test_locked_sessions_hold_up_nobody_but_themselves(tmp_path: Path) -> None:
    async def act(mailboxes: Mailboxes) -> float:
        await mailboxes.put_message("bad", "k", {}, 1)
        holder = sqlite3.connect(tmp_path / "bad" / "inbound.db", isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(_refused(mailboxes.put_message("bad", f"k{n}", {}, 1))) for n in range(40)]
            await asyncio.sleep(0)
            started = time.monotonic()
            await mailboxes.put_message("good", "k", {}, 1)
            took = time.monotonic() - started
            holder.execute("ROLLBACK")
            holder.close()
            for one in waiting:
                await one
        return took

    assert using(tmp_path, act) < 1.5, "the locked session waits two seconds for its lock"


async def _refused(act: Awaitable[None]) -> None:
    try:
        await act
    except Retryable:
        return


def test_a_session_whose_folder_is_a_file_stops_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("a file")

    async def act(mailboxes: Mailboxes) -> list[str]:
        with pytest.raises(Corrupt, match="bad"):
            await mailboxes.put_message("bad", "k", {}, 1)
        await mailboxes.put_message("good", "k", {}, 1)
        return await keys(mailboxes, "good")

    assert using(tmp_path, act) == ["k"]


def test_a_cancelled_use_is_finished_and_lets_go(tmp_path: Path) -> None:
    async def act(mailboxes: Mailboxes) -> list[str]:
        for number in range(20):
            async with asyncio.TaskGroup() as tasks:
                putting = tasks.create_task(mailboxes.put_message("s", f"k{number}", {}, 1))
                await asyncio.sleep(0)
                putting.cancel()
        await mailboxes.put_message("other", "k", {}, 1)
        return await keys(mailboxes, "other")

    assert using(tmp_path, act, most_open=1) == ["k"]
    assert open_below(tmp_path) == 0


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden"])
def test_an_id_that_names_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    async def act(mailboxes: Mailboxes) -> None:
        with pytest.raises(BadInput):
            await mailboxes.put_message(name, "k", {}, 1)

    using(tmp_path, act)
    assert list(tmp_path.iterdir()) == []


def test_a_session_that_cannot_be_given_to_its_tools_stops_alone(tmp_path: Path) -> None:
    impossible = replace(OPTIONS, uid=2**31, gid=2**31)

    async def act() -> None:
        with Mailboxes(tmp_path, impossible) as mailboxes:
            (tmp_path / "s").mkdir()
            (tmp_path / "s" / "workspace").symlink_to(tmp_path / "nowhere")
            with pytest.raises(Corrupt, match="workspace"):
                await mailboxes.put_message("s", "k", {}, 1)

    asyncio.run(act())
