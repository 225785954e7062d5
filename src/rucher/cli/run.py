"""`rucher run`: what an owner orders about one run. The daemon decides; here is only said what happens next."""

import sys
from collections.abc import Mapping, Sized
from typing import Any

import click

from rucher.cli.client import Daemon
from rucher.cli.reading import find_run, read
from rucher.cli.show import clean, document
from rucher.control.runstates import shown
from rucher.control.steps import called
from rucher.daemon.settings import find_instance
from rucher.kernel.spec import TERMINAL
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.errors import BadInput
from rucher.protocol.ids import ulid

Row = Mapping[str, Any]


@click.group(name="run")
def run() -> None:
    """Act on one run: RUN_ID is its id, or the beginning of it."""


@run.command(name="cancel")
@click.argument("run_id")
@click.option("--reason", default="", help="Why; kept with the order.")
@click.pass_context
def cancel(context: click.Context, run_id: str, reason: str) -> None:
    """End RUN_ID and the runs that it began."""
    found = _found(context, run_id)
    children = read(context.obj, lambda store: store.rows("run.children", found["run_id"]))
    _order(context, found, "cancel", {"reason": reason})
    open_ones = sum(row["state"] not in TERMINAL for row in children)
    with_it = f" after the {open_ones} that it began" if open_ones else ""
    click.echo(f"run {found['run_id']} ends{with_it}; see it end: rucher runs {found['run_id']}")


@run.command(name="pause")
@click.argument("run_id")
@click.pass_context
def pause(context: click.Context, run_id: str) -> None:
    """Let RUN_ID go no further than the step that it is in."""
    found = _found(context, run_id)
    _order(context, found, "pause")
    stops = "stops before its next step" if found["state"] == "running" else "does not go on"
    click.echo(f"run {found['run_id']} {stops}; let it go on with: rucher run resume {found['run_id']}")


@run.command(name="resume")
@click.argument("run_id")
@click.pass_context
def resume(context: click.Context, run_id: str) -> None:
    """Let RUN_ID, which was paused, go on."""
    found = _found(context, run_id)
    _order(context, found, "resume")
    goes = "waits again for what it waited for" if found["state"] == "waiting" else "goes on"
    click.echo(f"run {found['run_id']} {goes}; see it: rucher runs {found['run_id']}")


@run.command(name="steer")
@click.argument("run_id")
@click.argument("text")
@click.pass_context
def steer(context: click.Context, run_id: str, text: str) -> None:
    """Tell RUN_ID something, which its agent reads before its next turn."""
    found = _found(context, run_id)
    _order(context, found, "steer", {"text": _said(text)})
    once = {"paused": " once it is resumed", "waiting": " once it goes on"}.get(shown(found), "")
    click.echo(f"run {found['run_id']} reads this before its next turn{once}; see it: rucher runs {found['run_id']}")


@run.command(name="fork")
@click.argument("run_id")
@click.argument("step")
@click.option("--steer", "text", default="", help="Tell the new run something.")
@click.option("--yes", is_flag=True, help="Begin it, although it may repeat side effects.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; asks nothing.")
@click.pass_context
def fork(context: click.Context, run_id: str, step: str, text: str, *, yes: bool, as_json: bool) -> None:
    """Begin a new run with the steps of RUN_ID that come before STEP.

    What RUN_ID did from STEP on, the new run may do again: such side effects are shown, and you are asked first.
    """
    found = _found(context, run_id)
    body = {"key": _key(), "step": step, "text": text}
    with Daemon(find_instance(context.obj)) as daemon:
        path = f"/runs/{found['run_id']}/fork"
        forked = daemon.call("POST", path, json=body | {"confirmed": yes})
        if not as_json:
            _show_repeats(forked)
        if not forked["forked"]:
            if as_json:
                document(forked)
            if as_json or not at_a_terminal():
                raise BadInput(
                    f"a fork of run {found['run_id']} at step {step} may repeat {_counted(forked['repeats'], 'side effect')}; "
                    "look at what is shown, then say --yes"
                )
            if not click.confirm("Begin it?"):
                click.echo("nothing was begun")
                context.exit(1)
            forked = daemon.call("POST", path, json=body | {"confirmed": True})
    if as_json:
        document(forked)
    else:
        click.echo(
            f"run {forked['run_id']} begins with {_counted(range(forked['kept']), 'step')}: rucher runs {forked['run_id']}"
        )


@run.command(name="migrate")
@click.argument("run_id")
@click.pass_context
def migrate(context: click.Context, run_id: str) -> None:
    """Let RUN_ID, which another version of Rucher or of its agent began, go on with this one."""
    found = _found(context, run_id)
    _post(context, found, "migrate")
    click.echo(f"run {found['run_id']} goes on with this version: rucher runs {found['run_id']}")


@run.command(name="answer")
@click.argument("run_id")
@click.argument("step")
@click.argument("text", default="")
@click.option("--approve/--refuse", "approved", default=None, help="Decide an approval; TEXT is then the reason.")
@click.pass_context
def answer(context: click.Context, run_id: str, step: str, text: str, *, approved: bool | None) -> None:
    """Answer what RUN_ID asks at STEP with TEXT, or decide it with --approve or --refuse."""
    found = _found(context, run_id)
    if approved is None:
        text = _said(text)
    _post(context, found, "answer", {"step": step, "text": text, "approved": approved})
    said = "noted" if approved is None else "approved" if approved else "refused"
    click.echo(f"{said}; {_goes_on(found)}")


@run.command(name="resolve")
@click.argument("run_id")
@click.argument("step")
@click.argument("verdict", type=click.Choice(["ran", "not-run", "failed"]))
@click.pass_context
def resolve(context: click.Context, run_id: str, step: str, verdict: str) -> None:
    """Say what became of STEP, which was interrupted: it ran, it did not (do it again), or it failed."""
    found = _found(context, run_id)
    _post(context, found, "resolve", {"step": step, "verdict": verdict})
    click.echo(f"noted; {_goes_on(found)}")


def at_a_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def _found(context: click.Context, run_id: str) -> Row:
    return read(context.obj, lambda store: find_run(store, run_id))


def _order(context: click.Context, row: Row, order: str, body: Mapping[str, Any] | None = None) -> None:
    """An order under a key of its own, so that the daemon obeys it once however often it arrives."""
    _post(context, row, order, {"key": _key(), **(body or {})})


def _post(context: click.Context, row: Row, order: str, body: Mapping[str, Any] | None = None) -> None:
    with Daemon(find_instance(context.obj)) as daemon:
        daemon.call("POST", f"/runs/{row['run_id']}/{order}", json=body)


def _key() -> str:
    return ulid(SystemClock().now(), SystemEntropy().bytes(10))


def _said(text: str) -> str:
    if not text.strip():
        raise BadInput("there is nothing to say; give it as TEXT")
    return text


def _counted(things: Sized, what: str) -> str:
    return f"{len(things)} {what}{'' if len(things) == 1 else 's'}"


def _goes_on(row: Row) -> str:
    if shown(row) == "paused":
        return f"the run is paused: rucher run resume {row['run_id']}"
    return f"the run goes on: rucher runs {row['run_id']}"


def _show_repeats(forked: Mapping[str, Any]) -> None:
    if forked["repeats"]:
        click.echo("the new run may repeat:")
    for repeat in forked["repeats"]:
        click.echo(clean(f"  step {repeat['step']}  {repeat['effect']}  {called(repeat['request'])}"))
