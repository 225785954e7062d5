"""What a machine or a person does to a mailbox, and what a runner's text may hold: one line for one session, no leak."""

import itertools
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rucher.mailbox.errors import MailboxCorrupt, MailboxUnavailable
from rucher.mailbox.host import HostMailbox, create
from rucher.mailbox.rows import Kind, Outcome
from rucher.mailbox.runner import RunnerMailbox

NOW = 1_700_000_000_000_000
LINKED = ("workspace", ".heartbeat", "inbound.db-journal", "outbound.db-journal")
_numbers = itertools.count(2)


@pytest.fixture
def session(tmp_path: Path) -> Path:
    create(tmp_path / "s1", "s1")
    return tmp_path / "s1"


def open_files() -> list[int]:
    return [int(path.name) for path in Path("/proc/self/fd").iterdir()]


def test_what_a_runner_could_not_store_is_made_visible_and_not_held_against_it(session: Path) -> None:
    host, runner = HostMailbox(session), RunnerMailbox(str(session), lambda: NOW)
    body = {"name": "shell", "arguments": {}, "effect": "non_idempotent", "timeout_s": 5}
    host.put(Kind.TOOL_CALL, "k", body, NOW)
    runner.finish(runner.open_calls()[0], Outcome.OK, "a\0b \ud800 c")
    result = host.result("k")
    runner.close()
    host.close()
    assert result is not None
    assert result.text == "a\ufffdb \\ud800 c"


def _folder_is_a_file(session: Path) -> None:
    shutil.rmtree(session)
    session.write_text("a file")


def _dangling(name: str) -> Callable[[Path], None]:
    def spoil(session: Path) -> None:
        path = session / name
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()
        path.symlink_to(session.parent / "elsewhere")

    return spoil


def _linked_workspace(session: Path) -> None:
    (session / "workspace").rmdir()
    (session.parent / "precious").mkdir()
    (session / "workspace").symlink_to(session.parent / "precious")


def _piped_journal(session: Path) -> None:
    (session / "outbound.db-journal").unlink()
    os.mkfifo(session / "outbound.db-journal")


def _journal_is_a_folder(session: Path) -> None:
    (session / "inbound.db-journal").unlink()
    (session / "inbound.db-journal").mkdir()


@pytest.mark.parametrize(
    "spoil",
    [
        _folder_is_a_file,
        *(pytest.param(_dangling(name), id=f"dangling {name}") for name in LINKED),
        _linked_workspace, _piped_journal, _journal_is_a_folder,
    ],
)  # fmt: skip
def test_anything_in_the_place_of_a_folder_or_file_stops_the_session_with_one_line(
    session: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(session)
    with pytest.raises(MailboxCorrupt, match=r"; see that") as caught:
        create(session, "s1")
    assert "\n" not in str(caught.value)
    assert not (session.parent / "elsewhere").exists()


def test_short_descriptors_are_unavailable_wherever_they_run_out_and_none_is_lost(session: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    outcomes = set()
    taken = open_files()
    free = next(number for number in itertools.count() if number not in taken)
    before = len(taken)
    try:
        for most in range(free, max(taken) + 9):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            try:
                _make_and_use(session)
                outcomes.add("used")
            except MailboxUnavailable:
                outcomes.add("unavailable")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert outcomes == {"used", "unavailable"}
    assert len(open_files()) == before


def _make_and_use(session: Path) -> None:
    for folder in (session, session.with_name(f"s{next(_numbers)}")):
        create(folder, folder.name)
        host = HostMailbox(folder)
        try:
            host.put(Kind.MESSAGE, "m", {}, NOW)
        finally:
            host.close()
    runner = RunnerMailbox(str(session), lambda: NOW)
    try:
        runner.recover()
    finally:
        runner.close()
