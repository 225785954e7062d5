"""`rucher run`: what an owner does to one run."""

import click

from rucher.cli.client import Daemon
from rucher.cli.reading import find_run, read
from rucher.daemon.settings import find_instance


@click.group(name="run")
def run() -> None:
    """Act on one run."""


@run.command(name="resolve")
@click.argument("run_id")
@click.argument("step")
@click.argument("verdict", type=click.Choice(["ran", "not-run", "failed"]))
@click.pass_context
def resolve(context: click.Context, run_id: str, step: str, verdict: str) -> None:
    """Say what became of STEP, which was interrupted: it ran, it did not (do it again), or it failed.

    RUN_ID may be the beginning of a run's id.
    """
    found = read(context.obj, lambda store: find_run(store, run_id))["run_id"]
    with Daemon(find_instance(context.obj)) as daemon:
        daemon.call("POST", f"/runs/{found}/resolve", json={"step": step, "verdict": verdict})
    click.echo(f"noted; the run goes on: rucher runs {found}")
