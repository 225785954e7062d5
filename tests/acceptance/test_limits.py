"""What an owner limits in rucher.toml holds, on a real daemon with a scripted model."""

from pathlib import Path

from tests.fakes.hive import resting

SCRIPT = r"""
[[rule]]
on = "user"
delay_ms = 150
call = [{ tool = "read_file", arguments = { path = "missing.txt" } }]

[[rule]]
on = "result"
answer = "done"
"""


def test_a_run_whose_minutes_are_over_ends_visibly(tmp_path: Path) -> None:
    with resting(tmp_path, SCRIPT) as hive:
        config = hive.root / "rucher.toml"
        config.write_text(config.read_text() + "\n[budget]\nminutes = 0.001\n")
        hive.start()
        assert "I stopped" in hive.rucher("send", "work", "--wait").stdout
        (run,) = hive.told("runs")
        assert run["state"] == "budget_exhausted"
        assert [step["kind"] for step in hive.told("runs", run["run_id"])["steps"]] == ["checkpoint", "model_call"]
