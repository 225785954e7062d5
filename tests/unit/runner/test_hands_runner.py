"""The runner's decisions and acts without a sandbox around them; tests/unit/sandbox and tests/escape have one."""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from rucher.mailbox.host import HostMailbox, create
from rucher.mailbox.rows import Call, Kind, Outcome, ResultRow
from rucher.mailbox.runner import RunnerMailbox
from rucher.runner.files import list_dir, read_file, write_file
from rucher.runner.hands import Clock, Hands, Run, Settle, next_step, pause
from rucher.runner.results import OUTPUT_BYTES, Failure
from rucher.runner.search import search
from rucher.runner.shell import Output

REAL = Clock(lambda: 1, time.monotonic, time.sleep)


def call(key: str, effect: str, *, claimed: bool = False) -> Call:
    return Call(int(key) * 2, key, "any", {}, effect, 1.0, claimed)


def nobody(_: str) -> bool:
    return False


def test_reads_that_stand_together_run_together_and_writes_run_alone() -> None:
    calls = [call("1", "read"), call("2", "read"), call("3", "idempotent_write"), call("4", "read")]
    assert next_step(calls, nobody) == Run((calls[0], calls[1]))
    assert next_step(calls[2:], nobody) == Run((calls[2],))
    assert next_step([call("1", "non_idempotent"), call("2", "read")], nobody) == Run((call("1", "non_idempotent"),))


@pytest.mark.parametrize(
    ("effect", "again"),
    [("read", True), ("idempotent_write", True), ("non_idempotent", False), ("unheard_of", False)],
)
def test_a_call_that_another_runner_had_begun_runs_again_only_if_its_effect_allows(effect: str, *, again: bool) -> None:
    one = call("1", effect, claimed=True)
    step = next_step([one], nobody)
    if again:
        assert step == Run((one,))
    else:
        assert isinstance(step, Settle)
        assert step.outcome is Outcome.UNCERTAIN


def test_a_call_cancelled_before_it_began_ends_without_acting() -> None:
    step = next_step([call("1", "non_idempotent")], lambda key: key == "1")
    assert isinstance(step, Settle)
    assert step.outcome is Outcome.ERROR


def test_a_runner_looks_every_2_ms_while_busy_and_every_200_ms_when_idle() -> None:
    assert pause(0.0) == 0.002
    assert pause(10.0) == pytest.approx(0.05)
    assert pause(3600.0) == 0.2


class Served:
    """A session whose runner serves in this process until it has nothing to do."""

    def __init__(self, folder: Path) -> None:
        create(folder, "s1")
        self.folder = folder
        self.host = HostMailbox(folder)
        self.count = 0

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    def put(self, name: str, arguments: Mapping[str, Any], effect: str, timeout_s: float = 20) -> str:
        self.count += 1
        body = {"name": name, "arguments": dict(arguments), "effect": effect, "timeout_s": timeout_s}
        self.host.put(Kind.TOOL_CALL, f"k{self.count}", body, 1)
        return f"k{self.count}"

    def serve(self, idle_exit_s: float = 0.1) -> None:
        mailbox = RunnerMailbox(str(self.folder), lambda: 1)
        mailbox.recover()
        Hands(mailbox, str(self.workspace), REAL).serve(idle_exit_s)
        mailbox.close()

    def done(self, name: str, arguments: Mapping[str, Any], effect: str = "read", timeout_s: float = 20) -> ResultRow:
        key = self.put(name, arguments, effect, timeout_s)
        self.serve()
        result = self.host.result(key)
        assert result is not None
        return result


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    one = Served(tmp_path / "s1")
    monkeypatch.chdir(one.workspace)
    yield one
    one.host.close()


def test_calls_are_answered_in_order_and_each_once(served: Served) -> None:
    keys = [served.put("shell", {"command": f"echo {n} >> log"}, "non_idempotent") for n in range(5)]
    served.serve()
    served.serve()
    assert (served.workspace / "log").read_text().split() == ["0", "1", "2", "3", "4"]
    assert [served.host.claimed(key) for key in keys] == [True] * 5


def test_an_unknown_tool_and_broken_arguments_are_results_not_deaths(served: Served) -> None:
    assert "no tool named" in served.done("fly", {}).text
    assert served.done("read_file", {"path": 7}).outcome is Outcome.ERROR
    assert served.done("search", {"pattern": ""}).outcome is Outcome.ERROR
    assert served.done("shell", {"command": "a\0b"}).outcome is Outcome.ERROR


def test_a_heart_beats_while_a_tool_runs(served: Served) -> None:
    heartbeat = served.folder / ".heartbeat"
    os.utime(heartbeat, (1, 1))
    served.done("shell", {"command": "stat -c %Y ../.heartbeat > beat; sleep 1.3; stat -c %Y ../.heartbeat >> beat"})
    first, last = (int(line) for line in (served.workspace / "beat").read_text().split())
    assert 1 < first < last + 1
    assert heartbeat.stat().st_mtime_ns > 1_000_000_000


def test_a_command_that_takes_too_long_is_ended_with_its_output_kept(served: Served) -> None:
    started = time.monotonic()
    result = served.done("shell", {"command": "echo so far; sleep 60"}, "non_idempotent", timeout_s=0.3)
    assert time.monotonic() - started < 5
    assert result.outcome is Outcome.ERROR
    assert "so far" in result.text
    assert "longer than 0.3 s" in result.text


def test_a_cancelled_command_is_ended(served: Served) -> None:
    key = served.put("shell", {"command": "touch begun; sleep 60"}, "non_idempotent")
    runner = threading.Thread(target=served.serve)
    runner.start()
    deadline = time.monotonic() + 10
    while not (served.workspace / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    served.host.cancel(key, 1)
    runner.join(10)
    result = served.host.result(key)
    assert result is not None
    assert "cancelled" in result.text


@pytest.mark.parametrize(("name", "arguments"), [("shell", {"command": "sleep 60"}), ("search", {"pattern": "needle"})])
def test_a_call_cancelled_just_before_it_begins_is_ended(
    served: Served, name: str, arguments: Mapping[str, Any]
) -> None:
    class ToldLate(RunnerMailbox):
        """Says that a call is not cancelled, and learns right afterwards that it is."""

        @override
        def cancelled(self, key: str) -> bool:
            before = super().cancelled(key)
            served.host.cancel(key, 1)
            return before

    (served.workspace / "hay").write_text("needle")
    key = served.put(name, arguments, "read" if name == "search" else "non_idempotent", timeout_s=3)
    mailbox = ToldLate(str(served.folder), lambda: 1)
    mailbox.recover()
    Hands(mailbox, str(served.workspace), REAL).serve(0.1)
    mailbox.close()
    result = served.host.result(key)
    assert result is not None
    assert result.outcome is Outcome.ERROR
    assert "longer than" not in result.text


def test_a_background_child_that_holds_the_output_open_does_not_hold_the_answer(served: Served) -> None:
    started = time.monotonic()
    assert served.done("shell", {"command": "sleep 30 & echo done"}, "non_idempotent").text == "done"
    assert time.monotonic() - started < 5


def test_a_failed_command_says_so_and_how(served: Served) -> None:
    result = served.done("shell", {"command": "echo no >&2; exit 3"}, "non_idempotent")
    assert result.outcome is Outcome.ERROR
    assert result.text == "no\n[the command ended with exit code 3]"
    assert "signal 9" in served.done("shell", {"command": "kill -9 $$"}, "non_idempotent").text


def test_a_command_gets_no_input_and_a_small_environment(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "sings")
    text = served.done("shell", {"command": "cat; env"}, "non_idempotent").text
    assert "CANARY" not in text
    assert {line.split("=")[0] for line in text.splitlines()} <= {"PATH", "HOME", "LANG", "TERM", "PWD", "SHLVL", "_"}


def test_a_flood_keeps_its_start_and_its_end_in_bounded_memory() -> None:
    output = Output()
    output.add(b"start")
    for _ in range(100):
        output.add(b"x" * 100_000)
    output.add(b"end")
    text = output.text()
    assert output.truncated
    assert text.startswith("start")
    assert text.endswith("end")
    assert len(text) < OUTPUT_BYTES + 100
    assert f"{10_000_008 - OUTPUT_BYTES} bytes left out" in text


def test_what_fits_is_kept_to_the_byte() -> None:
    for size in (0, 1, OUTPUT_BYTES // 2, OUTPUT_BYTES // 2 + 1, OUTPUT_BYTES):
        output = Output()
        output.add(b"y" * size)
        assert output.text() == "y" * size
        assert not output.truncated


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "notes").mkdir()
    (root / "notes" / "club.txt").write_text("Members\nThe treasurer of the club is Ada.\nDues: 12 euros\n")
    (root / "notes" / "menu.txt").write_text("soup\nbread\n")
    (tmp_path / "secret").write_text("outside")
    return root


@pytest.mark.parametrize(
    "path", ["../secret", "notes/../../secret", "/etc/passwd", "", ".", "a\0b", "link", "folder/secret"]
)
def test_no_path_leads_out_of_the_workspace(workspace: Path, path: str) -> None:
    (workspace / "link").symlink_to("../secret")
    (workspace / "folder").symlink_to("..")
    with pytest.raises(Failure):
        read_file({"path": path}, str(workspace))
    with pytest.raises(Failure):
        write_file({"path": path, "content": "x"}, str(workspace))
    assert (workspace.parent / "secret").read_text() == "outside"


def test_paths_are_taken_relative_and_absolute_within(workspace: Path) -> None:
    for path in ("notes/menu.txt", "./notes/menu.txt", "notes/../notes/menu.txt", f"{workspace}/notes/menu.txt"):
        assert read_file({"path": path}, str(workspace)).text == "soup\nbread\n"


def test_lines_are_counted_from_one_and_both_ends_are_included(workspace: Path) -> None:
    (workspace / "ten").write_text("".join(f"{n}\n" for n in range(1, 11)))
    assert read_file({"path": "ten", "start": 3, "end": 4}, str(workspace)).text == "3\n4\n"
    assert read_file({"path": "ten", "start": 10}, str(workspace)).text == "10\n"
    with pytest.raises(Failure, match="only 10 lines"):
        read_file({"path": "ten", "start": 11}, str(workspace))


def test_a_long_file_is_cut_at_a_line_and_says_where_to_go_on(workspace: Path) -> None:
    lines = [f"{n} " + "é" * 500 for n in range(1, 201)]
    (workspace / "long").write_text("\n".join(lines))
    shown: list[str] = []
    start = 1
    while start:
        acted = read_file({"path": "long", "start": start}, str(workspace))
        body, _, note = acted.text.partition("\n[cut: ")
        shown += body.rstrip("\n").split("\n")
        start = int(note.rstrip("]").rpartition("=")[2]) if acted.truncated else 0
    assert shown == lines


def test_one_endless_line_is_cut_without_being_read_whole(workspace: Path) -> None:
    with (workspace / "line").open("wb") as file:
        file.truncate(0)
        file.write(b"a" * 300_000 + b"\nnext\n")
    acted = read_file({"path": "line"}, str(workspace))
    assert acted.truncated
    assert acted.text.endswith("go on with start=2]")
    assert read_file({"path": "line", "start": 2}, str(workspace)).text == "next\n"


def test_binary_and_strange_text_are_told_apart(workspace: Path) -> None:
    (workspace / "binary").write_bytes(b"\x7fELF\0\0")
    (workspace / "latin").write_bytes("café".encode("latin-1"))
    os.mkfifo(workspace / "pipe")
    with pytest.raises(Failure, match="binary"):
        read_file({"path": "binary"}, str(workspace))
    assert read_file({"path": "latin"}, str(workspace)).text == "caf\ufffd"
    with pytest.raises(Failure, match="not a regular file"):
        read_file({"path": "pipe"}, str(workspace))
    with pytest.raises(Failure, match="use list_dir"):
        read_file({"path": "notes"}, str(workspace))


def test_a_folder_lists_names_that_are_not_text_and_ends_somewhere(workspace: Path) -> None:
    (workspace / os.fsdecode(b"caf\xe9")).touch()
    (workspace / "link").symlink_to("/etc")
    text = list_dir({}, str(workspace)).text
    assert text == "caf\\xe9  0\nlink -> /etc\nnotes/"
    for number in range(1500):
        (workspace / "notes" / f"{number}").touch()
    acted = list_dir({"path": "notes"}, str(workspace))
    assert acted.truncated
    assert acted.text.endswith("[502 more entries are not shown; name a folder, or use shell]")


def test_a_file_is_written_whole_or_not_at_all_and_keeps_its_mode(workspace: Path) -> None:
    (workspace / "tool.sh").write_text("old")
    (workspace / "tool.sh").chmod(0o755)
    (workspace / ".rucher-write-tool.sh").write_text("left by a dead runner")
    write_file({"path": "tool.sh", "content": "new é"}, str(workspace))
    assert (workspace / "tool.sh").read_text() == "new é"
    assert (workspace / "tool.sh").stat().st_mode & 0o777 == 0o755
    write_file({"path": "deep/er/file", "content": ""}, str(workspace))
    assert (workspace / "deep" / "er" / "file").read_text() == ""
    assert sorted(path.name for path in workspace.iterdir()) == ["deep", "notes", "tool.sh"]


def found(workspace: Path, pattern: str, path: str = ".") -> str:
    return search({"pattern": pattern, "path": path}, str(workspace), lambda: False).text


def test_search_finds_in_any_letter_case_and_names_place_and_line(workspace: Path) -> None:
    assert found(workspace, "TREASURER") == "notes/club.txt:2: The treasurer of the club is Ada."
    assert found(workspace, r"dues:\s+\d+", "notes") == "notes/club.txt:3: Dues: 12 euros"
    assert found(workspace, "soup", "notes/menu.txt") == "notes/menu.txt:1: soup"


def test_a_pattern_that_is_no_regular_expression_is_searched_as_it_is(workspace: Path) -> None:
    (workspace / "code").write_text("f(x[1)")
    assert found(workspace, "f(x[") == "code:1: f(x[1)"


def test_words_that_stand_apart_are_found_where_most_of_them_are_and_it_says_so(workspace: Path) -> None:
    text = found(workspace, "club treasurer name")
    assert text == (
        "[no line holds 'club treasurer name' as a whole; these hold 2 of its 3 words]\n"
        "notes/club.txt:2: The treasurer of the club is Ada."
    )
    assert "no line matches" in found(workspace, "zebra")


def test_search_does_not_follow_links_and_ends_when_its_time_is_up(workspace: Path) -> None:
    (workspace / "out").symlink_to("..")
    (workspace / "secret-link").symlink_to("../secret")
    assert "no line matches" in found(workspace, "outside")
    with pytest.raises(Failure, match="too long"):
        search({"pattern": "soup"}, str(workspace), lambda: True)
