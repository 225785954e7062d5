"""Which time zone schedules have when they name none: never one that was guessed."""

from pathlib import Path

import pytest

from rucher.daemon.settings import InstanceSettings, Settings, load_settings, zone_of
from rucher.instance.layout import Instance
from rucher.protocol.errors import BadInput


def settings(zone: str = "") -> Settings:
    return Settings(instance=InstanceSettings(name="hive", zone=zone))


@pytest.fixture
def localtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine's localtime that is a link into a folder of zones, and no word of the environment."""
    monkeypatch.delenv("TZ", raising=False)
    zone = tmp_path / "zoneinfo" / "Europe" / "Paris"
    zone.parent.mkdir(parents=True)
    zone.touch()
    (tmp_path / "localtime").symlink_to(zone)
    return tmp_path / "localtime"


def test_the_settings_come_before_the_machine(localtime: Path) -> None:
    assert zone_of(settings("Asia/Tokyo"), localtime) == "Asia/Tokyo"


def test_the_machine_tells_its_zone_by_the_name_of_a_file(localtime: Path) -> None:
    assert zone_of(settings(), localtime) == "Europe/Paris"


@pytest.mark.parametrize("told", ["Asia/Tokyo", ":Asia/Tokyo", ":/usr/share/zoneinfo/Asia/Tokyo"])
def test_the_environment_may_name_another(localtime: Path, monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setenv("TZ", told)
    assert zone_of(settings(), localtime) == "Asia/Tokyo"


def test_a_mere_offset_and_a_nameless_file_are_no_zone(localtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    assert zone_of(settings(), localtime) == ""
    monkeypatch.delenv("TZ")
    localtime.unlink()
    localtime.touch()
    assert zone_of(settings(), localtime) == ""


def test_a_zone_that_does_not_exist_is_refused_in_the_settings(tmp_path: Path) -> None:
    (tmp_path / "rucher.toml").write_text('[instance]\nname = "hive"\nzone = "Mars/Olympus"\n')
    with pytest.raises(BadInput, match=r"instance\.zone: there is no time zone 'Mars/Olympus'"):
        load_settings(Instance(tmp_path))
