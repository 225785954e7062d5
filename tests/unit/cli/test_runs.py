"""Laws of `rucher runs`: newest first, every step, and what a run waits for, may use and came from."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rucher.instance.layout import Instance
from rucher.journal.store import JournalStore, open_store
from rucher.kernel.orders import Orders
from rucher.kernel.spec import RunSpec
from rucher.kernel.steps import RunSteps
from rucher.kernel.waits import approval, question, timer
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import BadInput, Suspended
from rucher.protocol.ports import StepKind
from tests.unit.cli.recorded import Ticking, asked, begin, giving, hop_of, make_instance, record, rucher, spec_of

LARGE = {"ok": True, "text": "fog " * 5000}
Tale = Callable[[JournalStore, Ticking, RunSpec], Awaitable[Any]]


def tell(instance: Instance, tale: Tale, **spec: Any) -> str:
    """A run of which something happens in the instance's journal; returns its id."""

    async def telling() -> str:
        clock = Ticking()
        async with open_store(instance.journal, clock) as store:
            draft = asked(clock, "tale", "tell")
            run = spec_of(await hop_of(store, clock, draft, "default", "agent:scribe"), draft, **spec)
            await tale(store, clock, run)
            return run.run_id

    return asyncio.run(telling())


def told(instance: Instance, *words: str) -> Any:
    result = rucher(instance, "runs", *words, "--json")
    assert result.exit_code == 0, result
    return json.loads(result.output)


def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    story = record(tmp_path / "hive", waiting=True)
    rows = told(story.instance)
    assert [(row["run_id"], row["state"]) for row in rows] == [(story.waiting_run, "waiting"), (story.run_id, "done")]
    assert (rows[1]["steps"], rows[1]["input_tokens"], rows[1]["output_tokens"]) == (3, 800, 40)
    assert len(told(story.instance, "--limit", "1")) == 1
    lines = rucher(story.instance, "runs").output.splitlines()
    assert [line.split()[1] for line in lines] == ["STATE", "waiting", "done"]


def test_a_list_can_be_of_one_state_or_of_one_session(tmp_path: Path) -> None:
    story = record(tmp_path / "hive", waiting=True)
    for words, expected in (
        (("--state", "waiting"), [story.waiting_run]),
        (("--state", "paused"), []),
        (("--session", "s1", "--state", "done"), [story.run_id]),
        (("--session", "S2"), []),
    ):
        assert [row["run_id"] for row in told(story.instance, *words)] == expected
    assert rucher(story.instance, "runs", "--state", "tired").exit_code == 2


def test_a_run_that_its_owner_paused_or_cancels_is_shown_so(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")

    async def paused(store: JournalStore, clock: Ticking, spec: RunSpec) -> None:
        run = await begin(store, clock, instance, spec)
        await Orders(store, clock, "owner:ana").pause(spec.run_id, "K")
        run.wish = "pause"
        with pytest.raises(Suspended):
            await RunSteps(run).perform(StepKind.TOOL_CALL, Effect.READ, {}, giving({}))

    run_id = tell(instance, paused)
    assert [row["run_id"] for row in told(instance, "--state", "paused")] == [run_id]
    shown = rucher(instance, "runs", run_id).output
    assert shown.startswith(f"run {run_id}  paused  its owner paused it\n")
    assert shown.rstrip().endswith(f"To go on: rucher run resume {run_id}")
    (row,) = told(instance)
    drawn = rucher(instance, "trace", row["trace_id"]).output
    assert "order: pause  by owner:ana" in drawn
    assert "stands still before step 1  its owner paused it" in drawn

    async def cancelling(store: JournalStore, clock: Ticking, spec: RunSpec) -> None:
        await Orders(store, clock, "owner:ana").cancel(spec.run_id, "K2", "enough")

    tell(instance, cancelling)
    assert [row["state"] for row in told(instance)] == ["cancelling"]


def test_a_run_shows_each_step_with_request_and_result(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    shown = rucher(story.instance, "runs", story.run_id[:10]).output
    assert [line for line in shown.splitlines() if line.startswith("step")] == [
        "step 1  model_call  done  2.0 ms  400+20 tokens",
        "step 2  tool_call  done  2.0 ms",
        "step 3  model_call  done  3.0 ms  400+20 tokens",
    ]
    assert '"pattern": "harbour"' in shown
    assert "fog until noon" in shown
    assert "rucher run " not in shown


def test_full_shows_what_is_otherwise_cut(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    assert '"cached_tokens": 0' not in rucher(story.instance, "runs", story.run_id).output
    assert '"cached_tokens": 0' in rucher(story.instance, "runs", story.run_id, "--full").output


def test_a_large_result_is_shown_by_its_beginning_and_its_file_and_whole_when_asked(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")

    async def large(store: JournalStore, clock: Ticking, spec: RunSpec) -> None:
        run = await begin(store, clock, instance, spec)
        await RunSteps(run).perform(StepKind.TOOL_CALL, Effect.READ, {"tool": "read"}, giving(LARGE))
        await run.finish("done", "")

    run_id = tell(instance, large)
    (step,) = told(instance, run_id)["steps"]
    path = Path(step["result"]["path"])
    assert json.loads(path.read_text()) == LARGE
    assert f" bytes) in {path}" in rucher(instance, "runs", run_id).output
    assert told(instance, run_id, "--full")["steps"][0]["result"] == LARGE
    assert str(LARGE["text"]) in rucher(instance, "runs", run_id, "--full").output
    path.unlink()
    assert "is missing" in told(instance, run_id, "--full")["steps"][0]["result"]["unreadable"]


def test_the_steps_of_branches_are_indented_beneath_their_step(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")

    async def branching(store: JournalStore, clock: Ticking, spec: RunSpec) -> None:
        run = await begin(store, clock, instance, spec)
        steps = RunSteps(run)
        for branch in reversed(steps.branches(2)):
            await branch.perform(StepKind.TOOL_CALL, Effect.READ, {"tool": "read"}, giving({"ok": True}))
        await steps.perform(StepKind.TOOL_CALL, Effect.READ, {"tool": "read"}, giving({"ok": True}))
        await run.finish("done", "")

    shown = rucher(instance, "runs", tell(instance, branching)).output.splitlines()
    heads = [line.split("  tool_call")[0] for line in shown if "tool_call" in line]
    assert heads == ["  step 1.1.1", "  step 1.2.1", "step 2"]


def test_a_waiting_run_says_exactly_which_command_resolves_it(tmp_path: Path) -> None:
    story = record(tmp_path / "hive", waiting=True)
    command = f"rucher run resolve {story.waiting_run} 1 ran|not-run|failed"
    shown = rucher(story.instance, "runs", story.waiting_run).output
    assert shown.rstrip().endswith(command)
    assert "the shell was interrupted." in shown
    found = told(story.instance, story.waiting_run)
    assert (found["resolve"], found["todo"]) == (command, command)
    assert [(step["step"], step["state"], step["effect"]) for step in found["steps"]] == [
        ("1", "open", "non_idempotent")
    ]


def test_a_run_says_all_that_it_waits_for_until_when_and_what_its_owner_can_do(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")

    async def waits(store: JournalStore, clock: Ticking, spec: RunSpec) -> None:
        steps = RunSteps(await begin(store, clock, instance, spec))
        items = [approval("a"), question("q", 1_900_000_000_000_000), timer(1_900_000_000_000_000)]
        with pytest.raises(Suspended):
            await steps.wait(StepKind.WAIT_HUMAN, {"ask": 1}, "may I?", items)
        await Orders(store, clock, "owner:ana").answer(spec.run_id, "1", {"text": "why not"})

    run_id = tell(instance, waits)
    waiting = told(instance, run_id)["waits"]
    assert [(each["kind"], each["state"], each["due_at"]) for each in waiting] == [
        ("approval", "open", None),
        ("question", "met", "2030-03-17T17:46:40.000000Z"),
        ("timer", "open", "2030-03-17T17:46:40.000000Z"),
    ]
    shown = rucher(instance, "runs", run_id).output
    assert "It waits at step 1: may I?" in shown
    assert f"approval: your decision: rucher run answer {run_id} 1 --approve|--refuse" in shown
    assert "timer: a moment, until 2030-03-17T17:46:40.000000Z" in shown


def test_a_run_says_what_it_may_use_and_what_it_used(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")

    async def spending(store: JournalStore, clock: Ticking, spec: RunSpec) -> None:
        run = await begin(store, clock, instance, spec)
        usage = {"input_tokens": 300, "output_tokens": 40, "nanodollars": 2_000_000}
        answer = {"text": "x", "usage": usage}
        steps = RunSteps(run)
        await steps.perform(StepKind.MODEL_CALL, Effect.MODEL_CALL, {}, giving(answer), most={"tokens": 500})
        await run.finish("done", "")

    limits = {"OWN": {"tokens": 4000, "nanodollars": 500_000_000}}
    run_id = tell(instance, spending, accounts=("OWN",), ceilings=limits)
    lines = {line["measure"]: line for line in told(instance, run_id)["budget"]}
    assert (lines["tokens"]["spent"], lines["tokens"]["reserved"], lines["tokens"]["ceiling"]) == (340, 0, 4000)
    shown = rucher(instance, "runs", run_id).output
    assert "300+40 tokens, $0.0020" in shown
    rows = [line.split() for line in shown.splitlines() if line.startswith("OWN")]
    assert ["OWN", "nanodollars", "$0.0020", "$0.0000", "$0.5000"] in rows
    assert ["OWN", "turns", "1", "0", "none"] in rows


def test_a_run_names_its_children_and_what_it_was_forked_from(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    ids: dict[str, str] = {}

    async def family(store: JournalStore, clock: Ticking, spec: RunSpec) -> None:
        run = await begin(store, clock, instance, spec)
        steps = RunSteps(run)
        await steps.note(StepKind.VERDICT, {"first": 1}, {"text": "fine"})

        def born(run_id: str) -> RunSpec:
            return RunSpec(
                run_id=run_id, tenant="local", agent="talker", model="m", trace_id=spec.trace_id, session="S1",
                lane=run_id, parent=spec.run_id, priority=3,
            )  # fmt: skip

        ids["child"] = await steps.spawn({"task": "x"}, born)
        ids["fork"] = (await Orders(store, clock, "owner:ana").fork(spec.run_id, "2", "K", "other way")).run_id

    run_id = tell(instance, family)
    assert [child["run_id"] for child in told(instance, run_id)["children"]] == [ids["child"]]
    assert f"parent of run {ids['child']}  ready  agent talker" in rucher(instance, "runs", run_id).output
    assert f"child of run {run_id}" in rucher(instance, "runs", ids["child"]).output
    listed = {row["run_id"]: row for row in told(instance)}
    assert (listed[ids["child"]]["priority"], listed[ids["child"]]["parent_id"]) == (3, run_id)
    shown = rucher(instance, "runs", ids["fork"]).output
    assert f"forked from run {run_id} at step 2" in shown
    assert f"step 1  verdict  done  taken from run {run_id}" in shown
    drawn = rucher(instance, "trace", listed[run_id]["trace_id"]).output
    lines = [line.split("─ ")[-1] for line in drawn.splitlines()]
    assert [line for line in lines if ids["child"] in line and line.startswith("run ")]
    assert 'order: told  by owner:ana, "other way"' in lines


def test_an_ambiguous_or_unknown_run_is_one_line(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    for given, told_ in (("7ZZZZZ", "there is no run"), ("../x", "is no id")):
        result = rucher(story.instance, "runs", given)
        assert isinstance(result.exception, BadInput)
        assert told_ in str(result.exception)
