"""Laws of rucher.toml: what it says is what holds, and what cannot hold is refused in one line that says what to do."""

from pathlib import Path

import pytest

from rucher.daemon.settings import Settings, load_settings
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
