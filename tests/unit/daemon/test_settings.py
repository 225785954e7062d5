"""Laws of rucher.toml: what it says is what holds, and what cannot hold is refused in one line that says what to do."""

from pathlib import Path

import pytest

from rucher.daemon.settings import Settings, load_settings, otel_headers
from rucher.instance.layout import CONFIG, Instance
from rucher.protocol.errors import BadInput


def told(folder: Path, budget: str) -> Settings:
    (folder / CONFIG).write_text(f'[instance]\nname = "hive"\n\n[budget]\n{budget}\n')
    return load_settings(Instance(folder))


def test_the_limits_of_a_run_are_its_ceilings_by_measure(tmp_path: Path) -> None:
    said = "tokens = 2000\nturns = 4\ntool_calls = 10\nminutes = 1.5"
    ceilings = {"tokens": 2000, "turns": 4, "tool_calls": 10, "wall_us": 90_000_000}
    assert told(tmp_path, said).budget.ceilings == ceilings
    assert told(tmp_path, "").budget.ceilings == {}


def test_no_limit_is_so_small_that_nothing_can_begin(tmp_path: Path) -> None:
    assert told(tmp_path, "minutes = 1e-12").budget.ceilings == {"wall_us": 1}


def test_a_limit_in_dollars_which_no_model_can_keep_is_refused_with_what_to_say_instead(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        told(tmp_path, "dollars = 2.5")
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{tmp_path / CONFIG}: budget: no model says its price, so `dollars`")
    assert all(word in line for word in ("tokens", "turns", "minutes"))
    assert "Value error" not in line


def traced(folder: Path, otel: str) -> Settings:
    (folder / CONFIG).write_text(f'[instance]\nname = "hive"\n\n[otel]\n{otel}\n')
    return load_settings(Instance(folder))


def test_traces_go_nowhere_unless_a_receiver_is_named(tmp_path: Path) -> None:
    given = traced(tmp_path, "").otel
    assert (given.endpoint, given.content, otel_headers(given)) == ("", False, {})


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "ftp://x", "http://", "http://a b", "http://x/?key=1"])
def test_an_endpoint_that_is_no_address_is_refused_by_name(tmp_path: Path, endpoint: str) -> None:
    with pytest.raises(BadInput, match=r"otel\.endpoint"):
        traced(tmp_path, f'endpoint = "{endpoint}"')


def test_headers_come_from_the_variable_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = traced(tmp_path, 'endpoint = "http://127.0.0.1:4318"\nheaders_env = "HIVE_HEADERS"').otel
    monkeypatch.setenv("HIVE_HEADERS", "Authorization=Bearer%20abc, x-team=ops ")
    assert otel_headers(given) == {"authorization": "Bearer abc", "x-team": "ops"}


@pytest.mark.parametrize("value", [None, "", "hush", "=hush", "a b=hush", "a=", "x=hush%0d%0ay:z"])
def test_headers_that_are_missing_or_unusable_are_refused_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    given = traced(tmp_path, 'endpoint = "http://127.0.0.1:4318"\nheaders_env = "HIVE_HEADERS"').otel
    monkeypatch.delenv("HIVE_HEADERS", raising=False)
    if value is not None:
        monkeypatch.setenv("HIVE_HEADERS", value)
    with pytest.raises(BadInput, match="HIVE_HEADERS") as refused:
        otel_headers(given)
    assert "hush" not in str(refused.value)
