"""`rucher up`: run the instance's daemon in this terminal."""

import click

from rucher.cli.progress import bar
from rucher.daemon.settings import find_instance


@click.command(name="up")
@click.pass_context
def up(context: click.Context) -> None:
    """Start the instance and run it until Ctrl-C."""
    instance = find_instance(context.obj)
    # The daemon's own imports take longer than finding out that there is no instance here.
    from rucher.daemon.daemon import run_daemon

    with bar() as on_progress:
        run_daemon(instance, click.echo, on_progress)
