"""`rucher up`: run the instance's daemon in this terminal."""

import gc

import click

from rucher.cli.progress import bar
from rucher.daemon.settings import find_instance


@click.command(name="up")
@click.option(
    "--role", type=click.Choice(["all", "worker"]), default="all", show_default=True,
    help="worker: only work on runs, beside the instance's daemon; needs a PostgreSQL store.",
)  # fmt: skip
@click.pass_context
def up(context: click.Context, role: str) -> None:
    """Start the instance and run it until Ctrl-C."""
    instance = find_instance(context.obj)
    # The daemon's own imports take longer than finding out that there is no instance here. They make many objects and no
    # garbage, which a collector would look through again and again, now and for as long as the daemon runs.
    gc.disable()
    from rucher.daemon.daemon import run_daemon, run_worker
    from rucher.daemon.garbage import look_for_little

    look_for_little()
    with bar() as on_progress:
        (run_worker if role == "worker" else run_daemon)(instance, click.echo, on_progress)
