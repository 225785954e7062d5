"""Laws of the command line as a whole: it starts fast, says in one line what is wrong, and its exit code says which."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rucher.cli.main import COMMANDS
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
    [(["evnts"], "did you mean events?"), (["xyzzy"], "see rucher --help"), (["runs", "--limt", "3"], "--limit")],
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
    assert "folder.md: Is a directory" in err


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
