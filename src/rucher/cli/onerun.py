"""All about one run, for a terminal or as JSON. Called by `rucher runs RUN_ID`; what it shows is read from the journal."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from rucher.cli.show import clean, iso, span, table, toned
from rucher.control.runstates import Waiting, shown, waiting
from rucher.control.steps import Step, short, steps_of
from rucher.journal.artifacts import Artifacts
from rucher.journal.store import StoreReader
from rucher.kernel.contents import ARTIFACT
from rucher.kernel.spec import ENGINE_VERSION
from rucher.protocol.errors import RucherError
from rucher.protocol.events import Event

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OneRun:
    """A run: its row, its log, and what the views say about it."""

    row: Row
    log: Sequence[Event]
    waits: Sequence[Waiting]
    budget: Sequence[Row]
    children: Sequence[Row]

    @property
    def forked(self) -> Mapping[str, str] | None:
        """The run and the step that it was forked from."""
        forked: Mapping[str, str] | None = self.log[0].body.get("forked") if self.log else None
        return forked


async def gather(store: StoreReader, row: Row) -> OneRun:
    """All about the run of this row."""
    run_id = row["run_id"]
    waits = [waiting(each) for each in await store.rows("run.waits", run_id)]
    accounts: list[str] = json.loads(row["accounts"])
    budget = [line for account in accounts for line in await store.rows("run.budget", account)]
    return OneRun(row, await store.run_log(run_id), waits, budget, await store.rows("run.children", run_id))


def in_json(run: OneRun, artifacts: Artifacts, *, full: bool) -> dict[str, Any]:
    """What is to be said beside the columns of its row."""
    command = _command(run)
    return {
        "forked": run.forked,
        "children": [{"run_id": row["run_id"], "state": shown(row), "agent": row["agent"]} for row in run.children],
        "waits": [asdict(each) | {"due_at": _time(each.due_at)} for each in run.waits],
        "budget": [
            {name: row[name] for name in ("account", "measure", "ceiling", "spent", "reserved")} for row in run.budget
        ],
        "resolve": command if command and command.startswith("rucher run resolve") else None,
        "todo": command,
        "steps": [_step_json(step, artifacts, full=full) for step in steps_of(run.log)],
    }


def show(run: OneRun, artifacts: Artifacts, *, full: bool) -> None:
    """Print it; what its owner can do comes last."""
    for line in _head(run):
        click.echo(clean(line))
    if run.budget:
        click.echo()
        table(("BUDGET", "MEASURE", "SPENT", "RESERVED", "CEILING"), [_budget(run, line) for line in run.budget])
    for step in steps_of(run.log):
        _show_step(step, artifacts, full=full)
    if run.waits:
        click.echo(f"\nIt waits at step {run.waits[0].step or '(its start)'}: {clean(run.row['reason'])}")
        for each in run.waits:
            click.echo(f"  {clean(_waits(each))}")
    if command := _command(run):
        click.echo(f"\nTo go on: {clean(command)}")


def _head(run: OneRun) -> Iterator[str]:
    row = run.row
    state = shown(row)
    yield f"run {row['run_id']}  {state}  {row['reason']}".rstrip()
    yield f"agent {row['agent']}, model {row['model']}, session {row['session_id']}, begun {iso(row['created_at'])}"
    used = f"{row['input_tokens']}+{row['output_tokens']} tokens"
    yield f"trace {row['trace_id']}, {row['steps']} steps, {used}, {_cost(row)}, priority {row['priority']}"
    now = "" if row["engine_version"] == ENGINE_VERSION else f" (now {ENGINE_VERSION})"
    prompt, tools = row["prompt_hash"] or "unknown", row["tools_hash"] or "unknown"
    yield f"engine {row['engine_version']}{now}, prompt {prompt}, tools {tools}"
    if run.forked:
        yield f"forked from run {run.forked['run']} at step {run.forked['step']}"
    if row["mission"]:
        yield f"mission {row['mission']}"
    if row["parent_id"]:
        yield f"child of run {row['parent_id']}"
    for child in run.children:
        yield f"parent of run {child['run_id']}  {shown(child)}  agent {child['agent']}"


def _cost(row: Row) -> str:
    known = f"${row['nanodollars'] / 1e9:.4f}"
    if not row["unpriced"]:
        return known
    return f"{known} and {row['unpriced']} calls at an unknown price" if row["nanodollars"] else "price unknown"


def _budget(run: OneRun, line: Row) -> tuple[str, ...]:
    whose = "this run" if line["account"] == run.row["run_id"] else line["account"]
    ceiling = "none" if line["ceiling"] is None else _amount(line["measure"], line["ceiling"])
    return (
        whose,
        line["measure"],
        _amount(line["measure"], line["spent"]),
        _amount(line["measure"], line["reserved"]),
        ceiling,
    )


def _amount(measure: str, amount: int) -> str:
    match measure:
        case "nanodollars":
            return f"${amount / 1e9:.4f}"
        case "wall_us":
            return span(amount)
        case _:
            return f"{amount:,}"


def _waits(each: Waiting) -> str:
    until = f", until {_time(each.due_at)}" if each.due_at is not None else ""
    state = " (there)" if each.state == "met" else ""
    todo = f": {each.command}" if each.command and each.state != "met" else ""
    return f"{each.kind}: {each.what}{until}{state}{todo}"


def _command(run: OneRun) -> str | None:
    """What its owner can do to make it go on; None when it goes on by itself, or has ended."""
    if shown(run.row) in ("paused", "pausing"):
        return f"rucher run resume {run.row['run_id']}"
    asked = (each.command for each in run.waits if each.state == "open" and each.command.startswith("rucher run "))
    return next(asked, None)


def _show_step(step: Step, artifacts: Artifacts, *, full: bool) -> None:
    took = f"  {span(step.duration)}" if step.duration is not None else ""
    tries = f"  begun {step.tries} times" if step.tries > 1 else ""
    taken = f"  taken from run {step.taken_from}" if step.taken_from else ""
    usage = f"  {step.usage.get('input_tokens', 0)}+{step.usage.get('output_tokens', 0)} tokens" if step.usage else ""
    indent = "  " * step.depth
    head = f"step {step.key}  {clean(step.kind)}  {toned(step.state, step.state)}{took}{usage}{tries}{taken}"
    click.echo(f"\n{indent}{head}")
    for name, value in (("request", step.request), ("result", step.result)):
        if value is not None:
            text = _value(value, artifacts, full=full).replace("\n", f"\n  {indent}")
            click.echo(f"  {indent}{name}  {text}")


def _value(value: Mapping[str, Any], artifacts: Artifacts, *, full: bool) -> str:
    if not full:
        where = f" in {artifacts.path(value[ARTIFACT])}" if ARTIFACT in value else ""
        return clean(short(value) + where)
    return clean(json.dumps(_whole(value, artifacts), ensure_ascii=False, indent=2), lines=True)


def _whole(value: Mapping[str, Any], artifacts: Artifacts) -> Any:
    """The value, read from its file if it is in one; what is known of it, and why not more, when that cannot be read."""
    if ARTIFACT not in value:
        return value
    try:
        return json.loads(artifacts.get(value[ARTIFACT]))
    except RucherError as error:
        return {**value, "unreadable": str(error)}


def _step_json(step: Step, artifacts: Artifacts, *, full: bool) -> dict[str, Any]:
    def told(value: Mapping[str, Any] | None) -> Any:
        if value is None or ARTIFACT not in value:
            return value
        return _whole(value, artifacts) if full else {**value, "path": str(artifacts.path(value[ARTIFACT]))}

    return {
        "step": step.key,
        "kind": step.kind,
        "state": step.state,
        "effect": step.effect,
        "tries": step.tries,
        "began_at": _time(step.began_at),
        "ended_at": _time(step.ended_at),
        "request": told(step.request),
        "result": told(step.result),
        "usage": dict(step.usage),
        "taken_from": step.taken_from or None,
    }


def _time(us: int | None) -> str | None:
    return None if us is None else iso(us)
