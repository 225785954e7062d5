"""Laws of `rucher doctor`: each trouble is found, told with what to do, and only what cannot work makes it fail."""

import json
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rucher.cli.checks import GIB, Check, judged_space, processor, python, sandbox, sqlite
from rucher.instance.layout import Instance
from rucher.sandbox.capability import Capability
from tests.unit.cli.recorded import make_instance, record, rucher


@pytest.mark.parametrize(
    ("check", "status"),
    [
        (python((3, 11, 0)), "ok"),
        (python((3, 10, 9)), "fail"),
        (sqlite("3.40.1"), "ok"),
        (sqlite("3.36.0"), "fail"),
        (judged_space(50 * GIB), "ok"),
        (judged_space(GIB), "warn"),
        (judged_space(1), "fail"),
        (processor("x86_64", "fpu avx avx2"), "ok"),
        (processor("x86_64", "fpu avx"), "fail"),
        (processor("aarch64", ""), "ok"),
        (sandbox(Capability(ok=True, reason="starts")), "ok"),
        (sandbox(Capability(ok=False, reason="forbidden")), "fail"),
    ],
)
def test_a_verdict_follows_from_its_facts_and_says_what_to_do(check: Check, status: str) -> None:
    assert check.status == status
    assert bool(check.todo) == (status != "ok")


SOUND = (
    "instance", "rucher.toml", "agents", "rules.toml", "secret files", "journal", "seals", "stopped sessions",
    "waiting runs", "failed hops, 7 days", "daemon",
)  # fmt: skip


def doctored(instance: Instance | Path) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in json.loads(rucher(instance, "doctor", "--json").output)}


def test_a_sound_instance_has_nothing_to_fail_for(tmp_path: Path) -> None:
    checks = doctored(record(tmp_path / "hive").instance)
    machine = {"python", "sqlite", "sandbox", "disk space"}
    assert {name: check["status"] for name, check in checks.items() if name not in machine} == dict.fromkeys(
        SOUND, "ok"
    )


def _open_token(instance: Instance) -> None:
    instance.token.chmod(0o644)


def _break_rules(instance: Instance) -> None:
    instance.rules.write_text('default = "agent:nobody"\n')


def _break_config(instance: Instance) -> None:
    instance.config.write_text("[instance\n")


def _break_journal(instance: Instance) -> None:
    instance.journal.write_bytes(b"this is no database at all, but long enough to be looked at" * 20)


def _lose_agents(instance: Instance) -> None:
    instance.agents.parent.unlink()


def _fail_a_hop(instance: Instance) -> None:
    with closing(sqlite3.connect(instance.journal)) as db:
        db.execute("UPDATE hops SET state = 'failed', detail = 'away', updated_at = 4000000000000000")
        db.commit()


def _stop_a_session(instance: Instance) -> None:
    with closing(sqlite3.connect(instance.journal)) as db:
        db.execute(
            "INSERT INTO sessions VALUES ('S1', 'local', 'scribe', 'main', '', 'stopped', 'a corrupt file', 0, 1, 1)"
        )
        db.commit()


@pytest.mark.parametrize(
    ("damage", "name", "status", "says"),
    [
        (_open_token, "secret files", "fail", "token"),
        (_break_rules, "rules.toml", "fail", "there is no agent:nobody"),
        (_break_config, "rucher.toml", "fail", "rucher.toml"),
        (_break_journal, "journal", "fail", "is not a journal or is damaged"),
        (_lose_agents, "agents", "fail", "there are no agents at"),
        (_fail_a_hop, "failed hops, 7 days", "warn", "surface:cli failed (away)"),
        (_stop_a_session, "stopped sessions", "warn", "S1 (a corrupt file)"),
    ],
)
def test_each_trouble_is_found(
    tmp_path: Path, damage: Callable[[Instance], None], name: str, status: str, says: str
) -> None:
    instance = record(tmp_path / "hive").instance
    damage(instance)
    found = doctored(instance)[name]
    assert found["status"] == status
    assert says in found["found"]
    assert found["todo"]


def test_a_waiting_run_is_shown(tmp_path: Path) -> None:
    story = record(tmp_path / "hive", waiting=True)
    assert story.waiting_run in doctored(story.instance)["waiting runs"]["found"]


def test_a_port_that_another_program_has_is_a_failure(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        instance = make_instance(tmp_path / "hive", other.getsockname()[1])
        found = doctored(instance)["daemon"]
        assert rucher(instance, "doctor").exit_code == 1
    assert found["status"] == "fail"
    assert "another program" in found["found"]


def test_a_folder_without_instance_is_told_and_the_machine_is_checked_all_the_same(tmp_path: Path) -> None:
    checks = doctored(tmp_path)
    assert checks["python"]["status"] == "ok"
    assert "there is no instance" in checks["instance"]["found"]
