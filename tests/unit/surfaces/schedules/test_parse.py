"""What a schedules file may say, and how a bad one is refused."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from rucher.protocol.errors import BadInput
from rucher.protocol.livefile import Refused, Reloaded
from rucher.surfaces.schedules.file import SchedulesFile
from rucher.surfaces.schedules.parse import Around, parse, warnings
from rucher.surfaces.schedules.plan import GateFailure, Misfire, Plan
from rucher.surfaces.schedules.times import micros

KNOWN = frozenset({"agent:scribe", "surface:cli"})
DAILY = 'id = "a"\ncron = "0 9 * * *"\ntext = "Good morning"\n'
NOW = micros(datetime(2026, 11, 30, 12, tzinfo=UTC))


def read(text: str, zone: str = "Europe/Paris") -> Plan:
    return parse(text, "schedules.toml", Around(KNOWN, zone, {"gates/news.sh"}.__contains__))


def one(keys: str) -> str:
    return f"[[schedule]]\n{DAILY}{keys}\n"


def test_every_key_says_what_the_page_says() -> None:
    text = """
[[schedule]]
id = "standup"
cron = "0  9 * *  1-5"
zone = "Asia/Shanghai"
text = "Ask everyone what is new"
to = "agent:scribe"
group = "cli:team"
thread = "daily"
misfire = "all"
catch_up = 3
within_s = 30
jitter_s = 120
gate = "gates/news.sh"
gate_fails = "fire"
enabled = false
"""
    (found,) = read(text).schedules
    assert (found.timing.cron, found.timing.zone) == ("0 9 * * 1-5", "Asia/Shanghai")
    assert (found.to, found.room, found.thread) == ("agent:scribe", "cli:team", "daily")
    assert (found.misfire, found.catch_up, found.within_s, found.jitter_s) == (Misfire.ALL, 3, 30, 120)
    assert (found.gate, found.gate_fails, found.enabled) == ("gates/news.sh", GateFailure.FIRE, False)


def test_what_is_left_out_is_as_the_page_says() -> None:
    (found,) = read(one("")).schedules
    assert (found.timing.zone, found.to, found.room, found.misfire) == ("Europe/Paris", "", "cli:main", Misfire.ONCE)
    assert (found.catch_up, found.within_s, found.jitter_s, found.gate, found.enabled) == (10, 60, 0, "", True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (one("").replace("0 9 * * *", "0 21-5 * * *"), "3:1: cron '0 21-5 * * *': hour '21-5' runs backwards"),
        (one("").replace("0 9 * * *", "0 0 30 2 *"), "3:1: cron '0 0 30 2 *' never fires"),
        (one('zone = "Europe/Pariss"'), "5:1: there is no time zone 'Europe/Pariss'; did you mean Europe/Paris"),
        (one('zone = "../x"'), "5:1: there is no time zone '../x'"),
        (one('zone = "Europe"'), "5:1: there is no time zone 'Europe'"),
        (one("") + one(""), "7:1: id 'a' is taken by an earlier schedule"),
        (one('crom = "x"'), "5:1: unknown key 'crom'; did you mean cron?"),
        ("[[schedul]]\n", "1:1: unknown key 'schedul'; did you mean schedule?"),
        ("schedule = 3\n", "1:1: schedule must be written as [[schedule]] tables"),
        (one("at = 2026-12-01T09:00:00"), "1:1: say when, either with cron"),
        (one("").replace("cron", "# cron"), "1:1: say when, either with cron"),
        (one("at = 2026-12-01").replace("cron", "# cron"), "5:1: at must be a date and a time"),
        (one('at = "tomorrow"').replace("cron", "# cron"), "5:1: at must be a date and a time"),
        (one("at = 0001-01-01T00:00:00").replace("cron", "# cron"), ""),
        (one("").replace('"Good morning"', '""'), "4:1: this schedule says nothing"),
        (one("").replace("Good", "x" * 70_000), "4:1: the text is longer than 65536 bytes"),
        (one("").replace('id = "a"', 'id = "A b"'), "2:1: an id is up to 61 small letters"),
        (one("").replace('id = "a"', ""), "1:1: this schedule has no id"),
        (one('to = "scribe"'), "5:1: 'scribe' is no address; write agent:NAME or group:SURFACE:GROUP"),
        (one('to = "agent:scrib"'), "5:1: there is no agent:scrib; did you mean agent:scribe?"),
        (one('to = "group:fax:main"'), "5:1: there is no surface:fax"),
        (one('group = "fax:main"'), "5:1: there is no surface:fax"),
        (one('group = "a b"'), "5:1: 'a b' is no group"),
        (one('thread = "a b"'), "5:1: 'a b' cannot be a thread"),
        (one('misfire = "twice"'), "5:1: misfire is one of skip, once, all"),
        (one("catch_up = 0"), "5:1: catch_up is between 1 and 1000"),
        (one("within_s = -1"), "5:1: within_s is between 0 and 604800"),
        (one("jitter_s = 1.5"), "5:1: jitter_s must be a whole number"),
        (one("jitter_s = true"), "5:1: jitter_s must be a whole number"),
        (one('enabled = "no"'), "5:1: enabled must be true or false"),
        (one('gate = "gates/none.sh"'), "5:1: there is no file 'gates/none.sh' in the instance's folder"),
        (one('gate = ""'), "5:1: there is no file ''"),
        ("[[schedule]\n", "1:11: not valid TOML"),
        (one("") * 2001, "1:1: there are 2001 schedules; at most 2000 are taken"),
        (one("cron = 3"), "not valid TOML"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_with_its_place(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=r"^schedules\.toml:") as refused:
        read(text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_machine_that_tells_no_zone_makes_the_owner_name_one() -> None:
    with pytest.raises(BadInput, match="this machine does not tell its time zone by name"):
        read(one(""), zone="")
    assert read(one('zone = "UTC"'), zone="").schedules


def test_a_moment_in_the_past_is_taken_with_a_warning() -> None:
    plan = read(one("at = 2026-11-30T09:00:00").replace("cron", "# cron"))
    assert warnings(plan, NOW) == ["schedule 'a' will not fire: 2026-11-30 09:00:00+01:00 Europe/Paris is in the past"]
    assert warnings(read(one("at = 2026-12-30T09:00:00").replace("cron", "# cron")), NOW) == []


def test_a_refused_file_leaves_the_old_schedules_running_and_none_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "schedules.toml"
    file = SchedulesFile(path, tmp_path, lambda: KNOWN, "UTC")
    assert not file.current.schedules
    path.write_text(one(""))
    assert isinstance(file.check(), Reloaded)
    path.write_text(one("catch_up = 0"))
    assert isinstance(file.check(), Refused)
    assert [one.id for one in file.current.schedules] == ["a"]


def test_a_gate_must_lie_in_the_instance(tmp_path: Path) -> None:
    (tmp_path / "hive").mkdir()
    (tmp_path / "outside.sh").write_text("exit 0")
    (tmp_path / "hive" / "link.sh").symlink_to(tmp_path / "outside.sh")
    (tmp_path / "hive" / "inside.sh").write_text("exit 0")
    path = tmp_path / "hive" / "schedules.toml"
    (tmp_path / "hive" / "state").mkdir()
    (tmp_path / "hive" / "state" / "token").write_text("secret")
    (tmp_path / "hive" / "way.sh").symlink_to(tmp_path / "hive" / "state" / "token")
    for gate in (
        "../outside.sh", "link.sh", str(tmp_path / "outside.sh"), "\\u0000", "state/token", "way.sh", "schedules.toml",
    ):  # fmt: skip
        path.write_text(one(f'gate = "{gate}"'))
        with pytest.raises(BadInput, match="there is no file"):
            SchedulesFile(path, path.parent, lambda: KNOWN, "UTC")
    path.write_text(one('gate = "inside.sh"'))
    assert SchedulesFile(path, path.parent, lambda: KNOWN, "UTC").current.schedules
