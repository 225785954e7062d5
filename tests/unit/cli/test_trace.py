"""Laws of `rucher trace`: the story of a message, found by a unique beginning, drawn with rules, steps and times."""

import json
import re
from pathlib import Path

import pytest

from rucher.protocol.errors import BadInput
from tests.unit.cli.recorded import ANSWER, make_instance, record, rucher, say

DRAWN = [
    r"\+0\.0 ms  message from owner:owner  by cli, trust owner, \"What does the \[bold\]harbour\[/bold\] log say",
    r"\+1\.0 ms  └─ rule default  rules abcdef012345, to agent:scribe, acknowledged, session S1",
    r"     └─ run \w{26}  done, scribe, scripted, 840 tokens  \(11\.0 ms\)",
    r"        ├─ step 1  model_call, scripted, 400\+20 tokens, calls search  \(2\.0 ms\)",
    r"        ├─ step 2  tool_call, search {\"pattern\": \"harbour\"}, ok: log.txt: fog until noon",
    r"        └─ answer from agent:scribe  to group:cli:main, \"It says: fog until noon\.\"",
    r"           └─ rule r-cli-reply  rules abcdef012345, to surface:cli",
    r"              └─ delivery delivered  attempt 1, receipt .*main\.jsonl",
]


def test_the_drawing_tells_the_story_from_message_to_delivery(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    drawn = rucher(story.instance, "trace", story.trace_id).output
    places = [found.start() if (found := re.search(line, drawn)) else None for line in DRAWN]
    assert None not in places, drawn
    assert places == sorted(places, key=lambda place: place or 0)
    assert "\x1b" not in drawn


@pytest.mark.parametrize("length", [9, 26])
def test_a_trace_is_found_by_its_beginning_in_either_case_or_by_an_event(tmp_path: Path, length: int) -> None:
    story = record(tmp_path / "hive", waiting=True)
    for given in (story.trace_id[:length], story.trace_id[:length].lower(), story.message_id):
        assert rucher(story.instance, "trace", given).output.startswith(f"trace {story.trace_id}")


def test_a_beginning_that_several_traces_share_is_refused(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    say(instance, *map(str, range(40)))
    traces = [event["trace_id"] for event in json.loads(rucher(instance, "events", "--json").output)]
    shared = next(trace[0] for trace in traces if sum(other[0] == trace[0] for other in traces) > 1)
    result = rucher(instance, "trace", shared)
    assert isinstance(result.exception, BadInput)
    assert "several traces begin with" in str(result.exception)


def test_json_holds_the_same_nodes_and_all_events(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    told = json.loads(rucher(story.instance, "trace", story.trace_id, "--json").output)
    (message,) = told["nodes"]
    run = message["children"][0]["children"][0]
    assert (run["kind"], run["state"], run["duration_ms"]) == ("run", "done", 11.0)
    assert run["children"][-1]["label"][-1] == f'"{ANSWER}"'
    assert [event["trace_id"] for event in told["events"]] == [story.trace_id] * len(told["events"])
    assert len(told["events"]) == 18
