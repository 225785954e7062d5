"""What is decided before a sandbox starts: its kit, its filter, whose files are whose, and why there is none."""

import asyncio
import os
from pathlib import Path

import pytest

from rucher.engine.tools.workspace import WORKSPACE_TOOLS
from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import Denied
from rucher.sandbox import kit as kits
from rucher.sandbox.bubblewrap import Bubblewrap
from rucher.sandbox.capability import explain
from rucher.sandbox.options import Interpreter, SandboxOptions
from rucher.sandbox.ownership import adopt
from rucher.sandbox.patience import Breaker, Patience, Pulse
from rucher.sandbox.seccomp import generate
from tests.escape.attack import Place, is_root


def test_the_shipped_filters_are_those_that_their_generator_makes() -> None:
    for machine in generate.ARCHITECTURES:
        assert (generate.FOLDER / f"{machine}.bpf").read_bytes() == generate.build(machine)


def test_the_same_installation_makes_one_kit_and_makes_it_once(tmp_path: Path) -> None:
    first = kits.prepare(tmp_path / "cache")
    stamp = Path(first.bwrap).stat().st_ino
    assert kits.prepare(tmp_path / "cache") == first
    assert Path(first.bwrap).stat().st_ino == stamp
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [Path(first.root).name]


def test_everybody_can_read_a_kit_and_only_its_maker_can_change_it(tmp_path: Path) -> None:
    kit = kits.prepare(tmp_path / "cache")
    for path in (Path(kit.root), *Path(kit.root).rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() or path.name == "bwrap" else 0o644)


def test_a_kit_that_others_can_change_is_not_used(tmp_path: Path) -> None:
    kit = kits.prepare(tmp_path / "cache")
    Path(kit.root).chmod(0o777)
    with pytest.raises(Denied, match="somebody else can change this folder"):
        kits.prepare(tmp_path / "cache")


def test_a_half_made_kit_of_a_killed_process_is_not_in_the_way(tmp_path: Path) -> None:
    kit = kits.prepare(tmp_path / "one")
    draft = tmp_path / "two" / f".{Path(kit.root).name}-{os.getpid()}"
    draft.mkdir(parents=True)
    (draft / "junk").touch()
    assert not (Path(kits.prepare(tmp_path / "two").root) / "junk").exists()


@pytest.mark.parametrize(
    ("said", "settings", "root", "cure"),
    [
        ("", {"kernel.unprivileged_userns_clone": "0"}, False, "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("", {"user.max_user_namespaces": "0"}, True, "sysctl -w user.max_user_namespaces=10000"),
        ("", {"kernel.apparmor_restrict_unprivileged_userns": "1"}, False, "apparmor_restrict_unprivileged_userns=0"),
        ("PermissionError: [Errno 1] Operation not permitted: 'unshare'", {}, True, "start Rucher as an ordinary user"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", {}, False, "systempaths=unconfined"),
        ("bwrap: something new", {"user.max_user_namespaces": "9"}, False, "bwrap: something new"),
        ("", {}, False, "ended without a word"),
    ],
)
def test_a_machine_that_cannot_sandbox_is_told_what_to_change(
    said: str, settings: dict[str, str], cure: str, *, root: bool
) -> None:
    reason = explain(said, settings, root=root)
    assert cure in reason
    assert "\n" not in reason


def test_a_sandbox_that_does_not_start_makes_the_machine_incapable_not_the_tools_unsandboxed(place: Place) -> None:
    launcher = Bubblewrap(place.launcher.options, SystemClock())
    launcher._interpreter = Interpreter("/nowhere/python", None)  # noqa: SLF001 - a broken machine
    capability = asyncio.run(launcher.capability())
    assert not capability.ok
    assert "no sandbox can be made here" in capability.reason or "nowhere" in capability.reason


def test_files_given_to_the_tools_are_given_without_following_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").touch()
    given = tmp_path / "given"
    (given / "deep").mkdir(parents=True)
    (given / "deep" / "file").touch()
    (given / "link").symlink_to(outside)
    (given / "deep" / "secret").symlink_to(outside / "secret")
    adopt(given, SandboxOptions(tmp_path, uid=4242, gid=4243))
    owners = {path: path.lstat().st_uid for path in (given, *given.rglob("*"))}
    # An ordinary user's tools run as that user, and there is nothing to give away.
    assert set(owners.values()) == {4242 if is_root() else os.geteuid()}
    assert (outside.stat().st_uid, (outside / "secret").stat().st_uid) == (os.geteuid(), os.geteuid())


def test_a_heartbeat_of_a_dead_runner_says_nothing_about_the_next(tmp_path: Path) -> None:
    heartbeat = tmp_path / ".heartbeat"
    heartbeat.touch()
    os.utime(heartbeat, (1, 1))
    pulse = Pulse(heartbeat, now=1000.0)
    assert pulse.silent_s(1009.0) == 9.0
    before = pulse.beaten
    os.utime(heartbeat, (2, 2))
    assert pulse.silent_s(1010.0) == 0.0
    assert (before, pulse.beaten) == (False, True)
    assert pulse.silent_s(1013.0) == 3.0


def test_the_breaker_opens_after_quick_deaths_in_a_row_and_tries_once_after_its_rest() -> None:
    breaker = Breaker(Patience(quick_s=10, deaths=3, rest_s=30))
    for now in (1.0, 2.0):
        breaker.died(1.0, now)
        assert breaker.rests_s(now) == 0
    breaker.died(1.0, 3.0)
    assert breaker.rests_s(3.0) == 30
    assert breaker.rests_s(33.0) == 0
    breaker.died(1.0, 34.0)
    assert breaker.rests_s(34.0) == 30
    breaker.worked()
    breaker.died(1.0, 100.0)
    assert breaker.rests_s(100.0) == 0


def test_deaths_of_old_age_do_not_open_the_breaker() -> None:
    breaker = Breaker(Patience(quick_s=10, deaths=3, rest_s=30))
    for now in range(0, 1000, 100):
        breaker.died(50.0, float(now))
        assert breaker.rests_s(float(now)) == 0


def test_every_declared_tool_has_an_effect_a_limit_and_a_closed_schema() -> None:
    assert {spec.name: spec.effect.value for spec in WORKSPACE_TOOLS} == {
        "read_file": "read",
        "list_dir": "read",
        "search": "read",
        "write_file": "idempotent_write",
        "shell": "non_idempotent",
    }
    for spec in WORKSPACE_TOOLS:
        assert spec.parameters["additionalProperties"] is False
        assert set(spec.parameters["required"]) <= set(spec.parameters["properties"])
        assert 0 < spec.timeout_s <= 120
