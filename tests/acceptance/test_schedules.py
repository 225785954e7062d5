"""Schedules of a real daemon, as their owner sees them: from the file to the answer, through kill -9."""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.fakes.hive import Hive, resting, running, until

YEARLY = '[[schedule]]\nid = "yearly"\ncron = "0 9 1 1 *"\nzone = "Europe/Paris"\ntext = "A new year"\n'


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    with running(tmp_path) as started:
        yield started


def soon(name: str, seconds: float, keys: str = "") -> str:
    """A schedule that fires once, so many seconds from now."""
    at = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()  # noqa: TID251 - the daemon goes by the real clock
    return f'[[schedule]]\nid = "{name}"\nat = {at}\nzone = "UTC"\ntext = "{name} is due"\n{keys}\n'


def write(hive: Hive, text: str) -> None:
    (hive.root / "schedules.toml").write_text(text)


def taken(hive: Hive, count: int = 1) -> None:
    until(lambda: len(hive.events("ev.*.rucher.schedules.applied")) >= count, "the schedules file was not taken")


def fires(hive: Hive) -> dict[str, str]:
    return {row["schedule"]: row["state"] for row in hive.told("schedules", "fires")}


def test_killed_at_any_moment_around_its_fires_each_schedule_is_answered_exactly_once(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(16)]
    moments = random.Random(7)
    with resting(tmp_path) as hive:
        write(hive, "".join(soon(name, 8 + number / 3) for number, name in enumerate(names)))
        hive.start()
        taken(hive)
        hive.kill()
        for _ in range(4):
            hive.start()
            time.sleep(0.5 + moments.random())  # so that the kill comes at a moment that nothing chose
            hive.kill()
        hive.start()
        until(lambda: len(hive.delivered()) >= len(names), f"answers are missing: {hive.delivered()}")
        hive.stop()
        hive.start()
        assert Counter(hive.delivered()) == Counter(f"echo: {name} is due" for name in names)
        assert fires(hive) == dict.fromkeys(names, "fired")
        assert len(hive.events("ev.*.schedule.fire")) == len(names)
        hive.stop()


def test_what_passed_while_no_daemon_ran_is_made_up_or_shown_as_missed(tmp_path: Path) -> None:
    with resting(tmp_path) as hive:
        write(hive, soon("made-up", 12, "within_s = 0") + soon("skipped", 12, 'misfire = "skip"\nwithin_s = 0'))
        hive.start()
        taken(hive)
        hive.stop()
        assert fires(hive) == {}
        until(lambda: not hive.told("schedules", "next"), "the time did not come")
        hive.start()
        until(lambda: len(fires(hive)) == 2, "nothing was done about what passed")
        assert fires(hive) == {"made-up": "fired", "skipped": "missed"}
        until(lambda: hive.delivered() == ["echo: made-up is due"], "it was not answered")
        hive.stop()


def test_a_closed_gate_costs_no_run_and_a_reminder_needs_no_model(hive: Hive) -> None:
    (hive.root / "gate.sh").write_text("echo nothing new; exit 1\n")
    write(hive, soon("gated", 8, 'gate = "gate.sh"') + soon("reminder", 8, 'to = "group:cli:main"'))
    until(lambda: len(fires(hive)) == 2, "they did not come to an end")
    assert fires(hive) == {"gated": "gated", "reminder": "fired"}
    until(lambda: hive.delivered() == ["reminder is due"], "the reminder did not arrive")
    assert hive.told("runs") == []


def test_an_owner_lists_fires_pauses_and_resumes(hive: Hive) -> None:
    write(hive, YEARLY + 'to = "agent:scribe"\ngroup = "cli:garden"\n')
    taken(hive)
    (row,) = hive.told("schedules", "list")
    assert (row["id"], row["state"], row["zone"], row["next"][5:]) == (
        "yearly", "on", "Europe/Paris", "01-01T08:00:00.000000Z",
    )  # fmt: skip
    fired = hive.told("schedules", "run", "yearly")
    until(lambda: hive.delivered("garden") == ["echo: A new year"], "it was not answered")
    assert "fire from system:timer" in hive.rucher("trace", fired["trace_id"]).stdout
    (entry,) = hive.told("schedules", "fires", "yearly")
    assert (entry["state"], entry["by"], entry["event_id"]) == ("fired", "owner:owner", fired["event_id"])
    assert hive.rucher("schedules", "pause", "yearly").returncode == 0
    assert hive.told("schedules", "show", "yearly")["state"] == "paused"
    assert hive.rucher("schedules", "resume", "yearly").returncode == 0
    hive.stop()
    assert hive.told("schedules", "list")[0]["state"] == "on"
    assert [row["planned_at"][4:10] for row in hive.told("schedules", "next", "-n", "2")] == ["-01-01", "-01-01"]
    assert len(hive.told("schedules", "fires")) == 1


def test_a_proposal_is_taken_by_one_command(hive: Hive) -> None:
    proposal = hive.root / "proposal.toml"
    proposal.write_text(YEARLY)
    assert hive.rucher("schedules", "propose", str(proposal), "--why", "you asked").returncode == 0
    (row,) = hive.told("schedules", "proposals")
    assert (row["by"], row["why"], row["text"]) == ("owner:owner", "you asked", YEARLY)
    assert hive.rucher("schedules", "apply", str(row["number"])).returncode == 0
    taken(hive)
    assert [one["id"] for one in hive.told("schedules", "list")] == ["yearly"]
    assert hive.told("schedules", "proposals") == []


MISUSES = {
    ("show", "nightly"): "there is no schedule 'nightly'",
    ("pause", "nightly"): "there is no schedule 'nightly'",
    ("run", "../x"): "there is no schedule '../x'",
    ("apply", "7"): "there is no proposal 7",
    ("apply", "0"): "see rucher schedules apply --help",
    ("check", "absent.toml"): "absent.toml cannot be read",
    ("next", "-n", "0"): "see rucher schedules next --help",
}


def test_what_cannot_be_done_is_one_line_and_exit_code_2(hive: Hive) -> None:
    for command, says in MISUSES.items():
        done = hive.rucher("schedules", *command)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert says in done.stderr


def test_a_bad_file_stops_a_start_in_one_line_and_disturbs_no_running_daemon(tmp_path: Path) -> None:
    with resting(tmp_path) as hive:
        write(hive, YEARLY.replace("0 9 1 1", "0 21-5 1 1"))
        refused = hive.rucher("up")
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert "schedules.toml:3:1: cron '0 21-5 1 1 *': hour '21-5' runs backwards; write 21-23,0-5" in refused.stderr
        checked = hive.rucher("schedules", "check")
        assert (checked.returncode, checked.stderr) == (2, refused.stderr)
        write(hive, YEARLY)
        hive.start()
        taken(hive)
        write(hive, YEARLY.replace("Europe/Paris", "Europe/Pariss"))
        until(lambda: hive.events("ev.*.rucher.schedules.refused"), "the bad file was not refused")
        assert json.loads(hive.rucher("send", "hello", "--wait", "--json").stdout)["status"] == "answered"
        hive.stop()
