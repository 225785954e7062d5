"""Laws of `rucher runs`: newest first, each step with request and result, and a waiting run says how to go on."""

import json
from pathlib import Path

from tests.unit.cli.recorded import record, rucher


def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    story = record(tmp_path / "hive", waiting=True)
    rows = json.loads(rucher(story.instance, "runs", "--json").output)
    assert [(row["run_id"], row["state"]) for row in rows] == [(story.waiting_run, "waiting"), (story.run_id, "done")]
    assert (rows[1]["steps"], rows[1]["input_tokens"], rows[1]["output_tokens"]) == (3, 800, 40)
    assert len(json.loads(rucher(story.instance, "runs", "--json", "--limit", "1").output)) == 1
    lines = rucher(story.instance, "runs").output.splitlines()
    assert [line.split()[1] for line in lines] == ["STATE", "waiting", "done"]


def test_a_run_shows_each_step_with_request_and_result(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    shown = rucher(story.instance, "runs", story.run_id[:10]).output
    assert [line for line in shown.splitlines() if line.startswith("step")] == [
        "step 1  model_call  done  2.0 ms  400+20 tokens",
        "step 2  tool_call  done  2.0 ms",
        "step 3  model_call  done  2.0 ms  400+20 tokens",
    ]
    assert '"pattern": "harbour"' in shown
    assert "fog until noon" in shown
    assert "resolve" not in shown


def test_full_shows_what_is_otherwise_cut(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    assert '"cached_tokens": 0' not in rucher(story.instance, "runs", story.run_id).output
    assert '"cached_tokens": 0' in rucher(story.instance, "runs", story.run_id, "--full").output


def test_a_waiting_run_says_exactly_which_command_resolves_it(tmp_path: Path) -> None:
    story = record(tmp_path / "hive", waiting=True)
    command = f"rucher run resolve {story.waiting_run} 1 ran|not-run|failed"
    shown = rucher(story.instance, "runs", story.waiting_run).output
    assert shown.rstrip().endswith(command)
    assert "the shell was interrupted." in shown
    told = json.loads(rucher(story.instance, "runs", story.waiting_run, "--json").output)
    assert told["resolve"] == command
    assert [(step["step"], step["state"], step["effect"]) for step in told["steps"]] == [
        ("1", "open", "non_idempotent")
    ]
