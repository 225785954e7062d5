"""Laws of steps as people see them: what was asked, what came of it, and nothing made up where no event tells it."""

from collections.abc import Mapping
from typing import Any

import pytest

from rucher.control.steps import SHORT, Step, short, steps_of, told
from rucher.kernel.contents import ARTIFACT
from rucher.protocol.events import Event, Trust

TOOL: Mapping[str, Any] = {"tool": "shell", "arguments": {"command": "ls"}}


def step_event(seq: int, type_: str, at: int, **body: Any) -> Event:
    return Event(
        id=str(seq),
        tenant="local",
        source="rucher",
        type=type_,
        principal="system:kernel",
        trust=Trust.OWNER,
        trace_id="T",
        occurred_at=at,
        recorded_at=at + 5,
        seq=seq,
        body={"run": "R", "step": "1", "kind": "tool_call", "attempt": 1, **body},
    )


INTENDED = step_event(1, "step.intended", 100, request=TOOL, effect="non_idempotent")
RECORDED = step_event(2, "step.recorded", 350, result={"ok": True, "text": "a\nb"})
REFUSED = step_event(2, "step.recorded", 350, result={"ok": False, "text": "no such file"})
REOPENED = step_event(3, "step.reopened", 400)
AGAIN = step_event(4, "step.intended", 500, request=TOOL, effect="non_idempotent")


@pytest.mark.parametrize(
    ("events", "state", "duration", "says"),
    [
        ([INTENDED], "open", None, ["shell", "no result yet"]),
        ([INTENDED, RECORDED], "done", 250, ["shell", "ok: a b"]),
        ([INTENDED, REFUSED], "failed", 250, ["failed: no such file"]),
        ([RECORDED], "done", None, ["ok: a b"]),
        ([INTENDED, REOPENED], "reopened", None, ["owner's word"]),
        ([INTENDED, REOPENED, AGAIN], "open", None, ["no result yet", "begun 2 times"]),
    ],
)
def test_a_step_says_what_its_events_tell(
    events: list[Event], state: str, duration: int | None, says: list[str]
) -> None:
    step = Step.of(events)
    assert (step.state, step.duration) == (state, duration)
    assert [part for part in says if part not in " | ".join(told(step))] == []


def test_a_model_call_says_its_tokens_and_what_it_calls() -> None:
    usage = {"input_tokens": 400, "output_tokens": 20}
    result = {"text": "", "calls": [{"name": "search"}], "model": "m", "usage": usage}
    step = Step.of([step_event(1, "step.recorded", 1, kind="model_call", result=result)])
    assert list(told(step)) == ["m", "400+20 tokens", "calls search"]


def test_the_steps_of_a_run_stand_by_number_and_those_of_a_branch_together() -> None:
    events = [
        step_event(1, "step.intended", 1, step="2"),
        step_event(2, "step.recorded", 2, step="3.2.1", result={}),
        step_event(3, "step.recorded", 3, step="3.1.1", result={}),
        step_event(4, "step.recorded", 4, step="3.2.2", result={}),
        step_event(5, "step.recorded", 5, step="2", result={}),
        step_event(6, "step.intended", 6, step="10"),
        step_event(7, "run.finished", 7),
    ]
    assert [(step.key, step.state, step.depth) for step in steps_of(events)] == [
        ("2", "done", 0), ("3.1.1", "done", 1), ("3.2.1", "done", 1), ("3.2.2", "done", 1), ("10", "open", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "request_", "result", "says"),
    [
        ("checkpoint", {"read": "context"}, {"persona": "p", "earlier": []}, ["reads its context"]),
        ("checkpoint", {"read": "steers"}, {"texts": ["be brief"]}, ["reads what its owner said", '"be brief"']),
        ("spawn", {"task": "x"}, {"run": "C"}, ["begins run C"]),
        ("join", {"runs": ["C"]}, {"outcomes": [{"state": "done", "reason": ""}]}, ["joins C", "ended done"]),
        ("wait_human", {}, {"outcomes": [{"approved": True, "reason": "fine"}, None]}, ["approved: fine"]),
        ("timer", {}, {"outcomes": [{"fired": True}]}, ["its time had come"]),
        ("tool_call", TOOL, {ARTIFACT: "sha256:0", "bytes": 9000, "preview": "a\nb", "ok": False},
         ['shell {"command": "ls"}', "failed: a b (9,000 bytes)"]),
    ],
)  # fmt: skip
def test_each_kind_of_step_says_what_came_of_it(
    kind: str, request_: dict[str, Any], result: dict[str, Any], says: list[str]
) -> None:
    step = Step.of([step_event(1, "step.recorded", 1, kind=kind, request=request_, result=result)])
    assert list(told(step)) == says


def test_what_a_step_cost_is_no_part_of_what_it_is() -> None:
    spent = step_event(3, "run.spent", 400, used={"turns": 1}, released={}, accounts=[])
    assert Step.of([INTENDED, RECORDED, spent]) == Step.of([INTENDED, RECORDED])
    assert Step.of([spent]).state == "open"


def test_a_step_that_a_fork_took_over_says_from_where() -> None:
    step = Step.of([step_event(1, "step.recorded", 1, result={"ok": True, "text": "x"}, **{"from": "OLD"})])
    assert list(told(step))[-1] == "taken from run OLD"


def test_a_shown_value_is_one_line_and_never_longer_than_it_may_be() -> None:
    assert short("a\n\n  b\tc") == "a b c"
    assert short({"command": "ls"}) == '{"command": "ls"}'
    assert len(short("x" * 1000)) == SHORT
    assert short("x" * SHORT) == "x" * SHORT
