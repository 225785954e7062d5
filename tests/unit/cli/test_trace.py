"""Laws of `rucher trace`: the story of a message, found by a unique beginning, drawn with rules, steps and times."""

import asyncio
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rucher.cli.drawing import as_json, drawn
from rucher.control.outline import WHOLE
from rucher.instance.layout import Instance
from rucher.journal.store import open_store
from rucher.protocol.errors import BadInput
from rucher.protocol.events import Event, Trust, control_event
from rucher.router.parse import parse
from tests.fakes.clock import ManualClock
from tests.unit.cli.recorded import ANSWER, asked, make_instance, record, rucher, say

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
    nodes = told["nodes"]
    assert [node["kind"] for node in nodes[:4]] == ["message", "hop", "run", "step"]
    assert [node["parent"] for node in nodes[:4]] == [None, 0, 1, 2]
    run = nodes[2]
    assert (run["kind"], run["state"], run["duration_ms"], run["level"]) == ("run", "done", 11.0, 2)
    said = next(node for node in nodes if node["kind"] == "emission")
    assert (said["parent"], said["label"][-1]) == (2, f'"{ANSWER}"')
    assert [event["trace_id"] for event in told["events"]] == [story.trace_id] * len(told["events"])
    assert len(told["events"]) == 18


def link(seq: int, parent: int | None) -> Event:
    return Event(
        id=f"e{seq}", tenant="local", source="cli", type="message", principal="owner:ana", trust=Trust.OWNER, trace_id="T",
        parent_id=f"e{parent}" if parent else None, occurred_at=seq, recorded_at=seq, seq=seq, body={"text": "x"},
    )  # fmt: skip


def test_a_chain_of_thousands_is_cut_where_the_next_part_can_be_asked_for() -> None:
    chain = [link(seq, seq - 1) for seq in range(1, 3001)]
    lines = list(drawn(chain))
    assert len(lines) == 62
    assert lines[-1].endswith("└─ ... 2,940 more: rucher trace T --under 60")
    assert list(drawn(chain, under=60))[-1].endswith("... 2,881 more: rucher trace T --under 119")
    whole = list(drawn(chain, cut=WHOLE))
    assert len(whole) == 3001
    assert max(map(len, whole)) < 300
    nodes = as_json(chain)["nodes"]
    assert (nodes[-1]["level"], nodes[-1]["parent"]) == (2999, 2998)
    json.dumps(nodes)


def test_a_node_with_many_children_shows_the_first_and_the_last_and_counts_the_others() -> None:
    wide = [link(1, None), *(link(seq, 1) for seq in range(2, 1002))]
    lines = list(drawn(wide))
    assert len(lines) == 63
    (cut,) = [line for line in lines if "more:" in line]
    assert cut.endswith("├─ ... 940 more: rucher trace T --under 1 --all")
    assert lines.index(cut) == 32
    assert len(list(drawn(wide, cut=WHOLE))) == 1002


@pytest.mark.timeout(60)
def test_a_trace_of_a_hundred_thousand_events_is_drawn_at_once_and_every_event_is_drawn_or_counted() -> None:
    events = [link(1, None), *(link(seq, seq // 3 + 1 if seq % 1000 else 1) for seq in range(2, 100_001))]
    lines = list(drawn(events))
    assert len(lines) <= 2002
    hidden = sum(
        int(found[1].replace(",", "")) for line in lines if (found := re.search(r"\.\.\. ([\d,]+) more:", line))
    )
    assert hidden + sum("more:" not in line for line in lines[1:]) == 100_000
    assert len(as_json(events)["nodes"]) == 100_000


def test_only_an_event_of_this_trace_can_be_asked_for(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    said = json.loads(rucher(story.instance, "events", "--json", "--type", "answer").output)[0]["seq"]
    _, first, *_ = rucher(story.instance, "trace", story.trace_id, "--under", str(said)).output.splitlines()
    assert re.search(r"ms  answer from agent:scribe", first)
    result = rucher(story.instance, "trace", story.trace_id, "--under", "999")
    assert isinstance(result.exception, BadInput)
    assert str(result.exception) == "event 999 is not in this trace; `rucher trace ID --json` lists its events"


def test_a_graph_and_reasons_are_not_mixed(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    for more in (["--json"], ["--why"]):
        assert isinstance(rucher(story.instance, "trace", story.trace_id, "--dot", *more).exception, BadInput)
    assert isinstance(rucher(story.instance, "trace", story.trace_id, "--why", "--under", "1").exception, BadInput)


def test_the_graph_holds_events_hops_runs_and_deliveries(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    drawing = rucher(story.instance, "trace", story.trace_id, "--dot").output
    assert drawing.startswith(f'digraph "trace {story.trace_id}" {{\n')
    assert drawing.count("->") == 5
    assert "step 1" not in drawing


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_reads_the_graph_and_shows_each_text_as_it_is(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    say(story.instance, 'a "b" \\N \\" <i>&lt;&#65;</i> {|} \\')
    newest = json.loads(rucher(story.instance, "events", "--json", "--limit", "1").output)[0]
    for trace, texts in ((newest["trace_id"], ['"a "b" \\N \\" <i>&lt;&#65;</i> {|} \\"']), (story.trace_id, [])):
        drawing = rucher(story.instance, "trace", trace, "--dot").output
        svg = subprocess.run(["dot", "-Tsvg"], input=drawing, capture_output=True, text=True, check=True, timeout=60)
        assert svg.stderr == ""
        for text in texts:
            assert text in _texts_of(svg.stdout)


def _texts_of(svg: str) -> list[str]:
    return [html.unescape(found).replace("\xa0", " ") for found in re.findall(r"<text[^>]*>(.*?)</text>", svg)]


RULES = """default = "agent:scribe"

[[rule]]
id = "r-ops"
match = { source = "cli", trust = "member", text = "fog" }
to = ["agent:talker", "surface:cli"]
"""


def judged(folder: Path, *, kept: bool) -> tuple[Instance, str]:
    """A message that a rule of an older rules file sent on; `kept` when the journal has that file's text."""
    instance = make_instance(folder)
    rules = parse(RULES, "rules.toml")

    async def telling() -> str:
        clock = ManualClock()
        async with open_store(instance.journal, clock) as store:
            (told,) = await store.append(asked(clock, "k", "is there fog?"))
            about = {"event": told.event.id, "event_seq": told.event.seq, "rule": "r-ops", "rules": rules.version}
            kinds: list[tuple[str, dict[str, Any]]] = [
                ("hop.made", {**about, "to": "agent:talker", "mode": "wake"}),
                ("hop.made", {**about, "to": "surface:cli", "mode": "context"}),
                ("hop.made", {**about, "rule": "default", "to": "agent:scribe"}),
                ("rule.faulted", {"rule": "r-bad", "event": told.event.id, "reason": "a number was too large"}),
            ]
            applied = {"version": rules.version, "text": RULES, "path": "rules.toml"}
            kinds += [("rules.applied", applied)] if kept else []
            kinds += [("rules.applied", {"version": f"later {number}", "rules": 1}) for number in range(45)]
            for number, (kind, body) in enumerate(kinds):
                trace = told.event.trace_id if kind != "rules.applied" else f"{number:026}"
                await store.append(control_event(
                    tenant="local", part="router", kind=kind, key=str(number), trace_id=trace, parent_id=told.event.id,
                    occurred_at=clock.now(), body=body,
                ))  # fmt: skip
            return told.event.trace_id

    return instance, asyncio.run(telling())


def test_why_names_rule_version_conditions_with_their_values_and_the_line_to_change(tmp_path: Path) -> None:
    instance, trace = judged(tmp_path / "hive", kept=True)
    told = rucher(instance, "trace", trace, "--why").output
    first, context, default, faulted = re.split(r"(?m)^event ", told)[1:]
    assert first.splitlines() == [
        "2: agent:talker is woken",
        "  what    message from owner:owner (trust owner), event 1",
        f"  rule    r-ops of rules {parse(RULES, 'rules.toml').version[:12]}",
        '  holds   source = "cli"; here: cli',
        '  holds   trust = "member"; here: owner',
        '  holds   text = "fog"; here: is there fog?',
        "  change  rules.toml:3",
    ]
    assert context.startswith("3: surface:cli keeps it as context")
    assert default.endswith("change  rules.toml:1\n")
    assert "a rule failed" in faulted
    assert "reason  a number was too large" in faulted
    rows = json.loads(rucher(instance, "trace", trace, "--why", "--json").output)["decisions"]
    assert [(row["to"], row["outcome"], row["place"]) for row in rows[:2]] == [
        ("agent:talker", "wake", "rules.toml:3"),
        ("surface:cli", "context", "rules.toml:3"),
    ]
    assert rows[0]["conditions"][1] == {"key": "trust", "wanted": "member", "found": "owner", "holds": True}


def test_a_version_that_nobody_kept_is_told_as_unknown_and_the_file_of_now_counts_only_if_it_is_that_one(
    tmp_path: Path,
) -> None:
    instance, trace = judged(tmp_path / "hive", kept=False)
    assert "is not in this journal" in rucher(instance, "trace", trace, "--why").output
    instance.rules.write_text(RULES)
    assert "change  rules.toml:3" in rucher(instance, "trace", trace, "--why").output


def test_a_trace_without_decisions_says_so(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    say(instance, "a")
    trace = json.loads(rucher(instance, "events", "--json").output)[0]["trace_id"]
    assert rucher(instance, "trace", trace, "--why").output == "nothing was decided in this trace yet\n"
