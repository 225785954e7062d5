import os
from pathlib import Path

import pytest

from rucher.protocol import livefile
from rucher.protocol.errors import BadInput
from rucher.protocol.livefile import MOST_BYTES, Refused, Reloaded
from rucher.router.reload import RulesFile
from tests.unit.router.builders import HEAD

RULE = '[[rule]]\nid = "{id}"\nmatch = {{ source = "{id}" }}\nto = "agent:scribe"\n'
KNOWN = {"agent:scribe", "surface:cli"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "rules.toml"
    file.write_text(HEAD)
    return file


def ids(file: RulesFile) -> list[str]:
    return [rule.id for rule in file.current.rules]


def test_a_file_that_cannot_be_used_at_first_is_an_error(path: Path) -> None:
    path.write_text("default = 3")
    with pytest.raises(BadInput, match="1:1: default must be"):
        RulesFile(path, lambda: KNOWN)
    path.unlink()
    with pytest.raises(BadInput, match="is missing"):
        RulesFile(path, lambda: KNOWN)
    path.mkdir()
    with pytest.raises(BadInput, match="not a regular file"):
        RulesFile(path, lambda: KNOWN)


def test_an_unchanged_or_merely_touched_file_is_nothing_new(path: Path) -> None:
    file = RulesFile(path, lambda: KNOWN)
    assert [file.check(), file.check()] == [None, None]
    os.utime(path, ns=(1, 1))
    path.chmod(0o600)
    assert [file.check(), file.check()] == [None, None]


@pytest.mark.parametrize("way", ["in place", "by renaming"])
def test_a_changed_file_is_taken_once(path: Path, way: str) -> None:
    file = RulesFile(path, lambda: KNOWN)
    target = path if way == "in place" else path.with_suffix(".new")
    target.write_text(HEAD + RULE.format(id="a"))
    target.replace(path)
    assert file.check() == Reloaded(file.current)
    assert ids(file) == ["a"]
    assert file.check() is None


def test_a_change_is_seen_though_the_file_system_s_clock_has_not_moved(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(livefile, "_identity", lambda _: (0, 0, 0, 0))
    file = RulesFile(path, lambda: KNOWN)
    for name in ("a", "b", "c"):
        path.write_text(HEAD + RULE.format(id=name))
        assert isinstance(file.check(), Reloaded)
        assert ids(file) == [name]


def test_a_change_that_keeps_size_and_modification_time_is_seen(path: Path) -> None:
    path.write_text(HEAD + RULE.format(id="a"))
    file = RulesFile(path, lambda: KNOWN)
    seen = path.stat()
    path.write_text(HEAD + RULE.format(id="b"))
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert isinstance(file.check(), Reloaded)
    assert ids(file) == ["b"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'[[rule]]\nid = "a', "not valid TOML"),
        (RULE.format(id="a").encode() * 2, "is taken"),
        (RULE.format(id="a").replace('source = "a"', 'text = "("').encode(), "not a regular expression"),
        (RULE.format(id="a").replace("agent:scribe", "agent:gone").encode(), "there is no agent:gone"),
        (b"# \xff", "is not UTF-8"),
        (b"#" * MOST_BYTES, "is larger than"),
    ],
)
def test_a_refused_file_leaves_the_old_rules_and_is_told_once(path: Path, bad: bytes, reason: str) -> None:
    path.write_text(HEAD + RULE.format(id="old"))
    file = RulesFile(path, lambda: KNOWN)
    path.write_bytes(HEAD.encode() + bad)
    refused = file.check()
    assert isinstance(refused, Refused)
    assert reason in refused.reason
    path.touch()
    assert [file.check(), file.check()] == [None, None]
    assert ids(file) == ["old"]
    path.write_text(HEAD + RULE.format(id="new"))
    assert isinstance(file.check(), Reloaded)
    assert ids(file) == ["new"]


def test_a_deleted_file_is_told_once_and_the_old_rules_go_on_until_it_is_back(path: Path) -> None:
    file = RulesFile(path, lambda: KNOWN)
    path.unlink()
    refused = file.check()
    assert isinstance(refused, Refused)
    assert "is missing" in refused.reason
    assert file.check() is None
    assert file.current.default == "agent:scribe"
    path.write_text(HEAD)
    assert file.check() == Reloaded(file.current)


def test_a_destination_that_appears_makes_a_refused_file_good_without_touching_it(path: Path) -> None:
    known = set(KNOWN)
    file = RulesFile(path, lambda: known)
    path.write_text(HEAD + RULE.format(id="a").replace("agent:scribe", "agent:new"))
    assert isinstance(file.check(), Refused)
    assert [file.check(), file.check()] == [None, None]
    known.add("agent:new")
    assert isinstance(file.check(), Reloaded)
    known.remove("agent:new")
    assert isinstance(file.check(), Refused)
    assert ids(file) == ["a"]
