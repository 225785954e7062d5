"""Laws of the command line as a whole: it starts fast, says in one line what is wrong, and its exit code says which."""

import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from rucher.cli.main import COMMANDS
from rucher.daemon.lock import sole_daemon
from tests.fakes.hive import until
from tests.unit.cli.recorded import make_instance, process, record, rucher, say

HELP_CPU_S = 0.15


def ended(child: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = child.communicate(timeout=60)
    return child.returncode, out, err


def test_help_names_every_command_and_imports_none(tmp_path: Path) -> None:
    code = (
        "import sys; from rucher.cli.main import cli; cli(['--help'], standalone_mode=False); "
        "print([name for name in sys.modules if name.startswith('rucher.cli.')], 'rich' in sys.modules)"
    )
    source = Path(sys.modules["rucher"].__file__ or "").parents[1]
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(source)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [name for name in COMMANDS if f"\n  {name} " not in told] == []
    assert told.rstrip().endswith("['rucher.cli.main'] False")


def test_help_costs_less_cpu_than_a_person_notices(tmp_path: Path) -> None:
    spent = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert ended(process("--help", folder=tmp_path))[0] == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < HELP_CPU_S


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["events"], "rucher: there is no instance in"),
        (["--dir", "nowhere", "runs"], "rucher: there is no instance at nowhere"),
        (["-C", "hive", "trace", "ZZ"], "rucher: there is no trace and no event ZZ"),
        (["-C", "hive", "trace", "a b"], "rucher: 'a b' is no id"),
        (["-C", "hive", "runs", "ZZ"], "rucher: there is no run ZZ"),
        (["-C", "hive", "events", "--subject", "a..b"], "rucher: subject pattern 'a..b'"),
        (["new", "hive"], "is an instance already"),
        (["-C", "hive", "send", "hello"], "is not running; start it with `rucher up`"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_2(tmp_path: Path, words: list[str], says: str) -> None:
    if "hive" in words:
        record(tmp_path / "hive")
    code, out, err = ended(process(*words, folder=tmp_path))
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["evnts"], "did you mean events"),
        (["xyzzy"], "there is no command 'xyzzy'"),
        (["runs", "--limt", "3"], "--limit"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_nearest(tmp_path: Path, words: list[str], says: str) -> None:
    result = rucher(tmp_path, *words)
    assert result.exit_code == 2
    assert says in result.output


def test_a_file_that_cannot_be_read_is_one_line_naming_it(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    instance.agents.parent.unlink()
    (instance.agents / "folder.md").mkdir(parents=True)
    code, _, err = ended(process("rules", "list", folder=instance.root))
    assert (code, err.count("\n")) == (2, 1)
    assert "folder.md: this is not a regular file" in err


@pytest.mark.parametrize(
    "words",
    [
        [b"send", b"\xff"],
        [b"send", b"--group", b"\xff", b"hello"],
        [b"-C", b"\xff", b"events"],
        [b"events", b"--subject", b"\xff"],
        [b"trace", b"\xed\xa0\x80"],
        [b"runs", b"\xff"],
        [b"run", b"resolve", b"\xff", b"1", b"ran"],
        [b"rules", b"check", b"\xff"],
        [b"new", b"\xff"],
        [b"\xff"],
    ],
)
def test_an_argument_that_is_not_utf_8_is_one_line(tmp_path: Path, words: list[bytes]) -> None:
    instance = make_instance(tmp_path / "hive")
    code, out, err = ended(process(*map(os.fsdecode, words), folder=instance.root))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "is not UTF-8 text" in err


@pytest.mark.parametrize(
    "words",
    [["events", "--limit", "9" * 30], ["events", "--after", "9" * 30], ["runs", "--limit", "9" * 30]],
)
def test_a_number_that_nothing_can_hold_is_refused(tmp_path: Path, words: list[str]) -> None:
    story = record(tmp_path / "hive")
    result = rucher(story.instance, *words)
    assert (result.exit_code, "is not in the range" in result.output) == (2, True), result.output


def test_a_folder_that_leads_to_itself_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for place in ("loop", "loop/deeper"):
        code, _, err = ended(process("new", place, folder=tmp_path))
        assert (code, err.count("\n"), "through links" in err) == (2, 1, True), err


def interrupted(child: "subprocess.Popen[str]") -> tuple[int, str]:
    child.send_signal(signal.SIGINT)
    code, _, err = ended(child)
    return code, err.strip()


@pytest.mark.parametrize("words", [["xyzzy"], ["runs", "--limit", "0"], ["run", "steer"], ["send", "--nope"]])
def test_words_that_cannot_be_understood_are_answered_by_one_line(tmp_path: Path, words: list[str]) -> None:
    child = process(*words, folder=tmp_path)
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err.count("\n"), err[:8]) == (2, 1, "rucher: "), err
    assert err.endswith(" --help\n")


def test_ctrl_c_ends_what_follows_quietly(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    say(instance, "one")
    child = process("events", "--follow", "--json", folder=instance.root)
    assert child.stdout is not None
    assert child.stdout.readline()
    assert interrupted(child) == (130, "")


def test_ctrl_c_ends_what_waits_for_standard_input_quietly(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    reading, writing = os.pipe()
    child = process("send", "-", folder=instance.root, stdin=reading)
    os.write(writing, b"a")
    until(lambda: not unread(reading), "standard input was never read")
    assert interrupted(child) == (130, "")
    os.close(reading)
    os.close(writing)


def test_ctrl_c_ends_what_waits_for_a_daemon_quietly(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        instance = make_instance(tmp_path / "hive", silent.getsockname()[1])
        with sole_daemon(instance.lock):
            child = process("send", "hello", "--wait", folder=instance.root)
            silent.settimeout(60)
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(4)
                assert interrupted(child) == (130, "")


def unread(pipe: int) -> int:
    """How many bytes nobody has taken out of a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_reader_that_goes_away_ends_the_command_quietly(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    say(instance, *map(str, range(50)))
    reading, writing = os.pipe()
    child = process("events", "--json", "--limit", "50", folder=instance.root, stdout=writing)
    os.close(reading)
    os.close(writing)
    code, _, err = ended(child)
    assert (code, err) == (130, "")


def test_the_version_is_printed(tmp_path: Path) -> None:
    assert rucher(tmp_path, "--version").output.startswith("rucher, version 0.")
