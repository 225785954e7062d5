"""`rucher runs`: the runs of agents, or the steps of one with what was asked and what came of it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from rucher.cli.reading import MOST_ROWS, find_run, read
from rucher.cli.show import clean, document, iso, short_id, span, table, toned
from rucher.control.steps import Step, short, steps_of
from rucher.journal.store import StoreReader
from rucher.kernel.recall import recall
from rucher.protocol.clock import SystemClock
from rucher.protocol.events import Event

COLUMNS = ("RUN", "STATE", "AGENT", "SESSION", "STEPS", "TOKENS", "AGE", "REASON")


@click.command(name="runs")
@click.argument("run_id", required=False)
@click.option("--limit", default=30, show_default=True, type=click.IntRange(1, MOST_ROWS), help="The most to list.")
@click.option("--full", is_flag=True, help="With RUN_ID: show requests and results whole.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list; with RUN_ID one object.")
@click.pass_context
def runs(context: click.Context, run_id: str | None, *, limit: int, full: bool, as_json: bool) -> None:
    """List runs, newest first; with RUN_ID, or the beginning of one, show its steps."""
    if run_id is None:
        _list(read(context.obj, lambda store: store.rows("runs.recent", limit)), as_json=as_json)
        return

    async def work(store: StoreReader) -> tuple[Mapping[str, Any], Sequence[Event]]:
        row = await find_run(store, run_id)
        return row, await store.run_log(row["run_id"])

    row, log = read(context.obj, work)
    if as_json:
        steps = [_step_json(step) for step in steps_of(log)]
        document(_run_json(row) | {"steps": steps, "resolve": _resolution(row["run_id"], log)})
    else:
        _show(row, log, full=full)


def _list(rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        document([_run_json(row) for row in rows])
        return
    now = SystemClock().now()
    table(COLUMNS, [_cells(row, now) for row in rows])


def _cells(row: Mapping[str, Any], now: int) -> tuple[str, ...]:
    tokens = f"{row['input_tokens']}+{row['output_tokens']}"
    age = span(max(0, now - row["created_at"]))
    ids = short_id(row["run_id"]), row["state"], row["agent"], short_id(row["session_id"])
    return (*ids, str(row["steps"]), tokens, age, short(row["reason"]))


def _show(row: Mapping[str, Any], log: Sequence[Event], *, full: bool) -> None:
    began = row["created_at"]
    click.echo(f"run {row['run_id']}  {toned(row['state'], row['state'])}  {clean(row['reason'])}".rstrip())
    click.echo(clean(f"agent {row['agent']}, model {row['model']}, session {row['session_id']}, begun {iso(began)}"))
    click.echo(f"trace {row['trace_id']}, {row['steps']} steps, {row['input_tokens']}+{row['output_tokens']} tokens")
    for step in steps_of(log):
        _show_step(step, full=full)
    if command := _resolution(row["run_id"], log):
        click.echo(
            f"\nIt waits for your word: {clean(recall(log).waiting_reason)}\nLook, then say what is true: {command}"
        )


def _show_step(step: Step, *, full: bool) -> None:
    took = f"  {span(step.duration)}" if step.duration is not None else ""
    tries = f"  begun {step.tries} times" if step.tries > 1 else ""
    usage = f"  {step.usage.get('input_tokens', 0)}+{step.usage.get('output_tokens', 0)} tokens" if step.usage else ""
    click.echo(f"\nstep {step.key}  {clean(step.kind)}  {toned(step.state, step.state)}{took}{usage}{tries}")
    for name, value in (("request", step.request), ("result", step.result)):
        if value is not None:
            click.echo(f"  {name}  {_value(value, full=full)}")


def _value(value: Mapping[str, Any], *, full: bool) -> str:
    if not full:
        return clean(short(value))
    return clean(json.dumps(value, ensure_ascii=False, indent=2), lines=True).replace("\n", "\n  ")


def _resolution(run_id: str, log: Sequence[Event]) -> str | None:
    step = recall(log).waiting_for
    return f"rucher run resolve {run_id} {step} ran|not-run|failed" if step else None


def _run_json(row: Mapping[str, Any]) -> dict[str, Any]:
    times = {"created_at": iso(row["created_at"]), "updated_at": iso(row["updated_at"])}
    return {name: row[name] for name in row.keys()} | times  # noqa: SIM118 - a database row iterates over its values


def _step_json(step: Step) -> dict[str, Any]:
    return {
        "step": step.key,
        "kind": step.kind,
        "state": step.state,
        "effect": step.effect,
        "tries": step.tries,
        "began_at": None if step.began_at is None else iso(step.began_at),
        "ended_at": None if step.ended_at is None else iso(step.ended_at),
        "request": step.request,
        "result": step.result,
        "usage": dict(step.usage),
    }
