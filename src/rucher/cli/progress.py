"""Shows how far a long download is: a bar on a terminal, a line now and then elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

LINE_EACH = 0.1
"""The share of the whole after which another line is written where there is no terminal."""


@contextmanager
def bar() -> Iterator[Callable[[int, int, str], None]]:
    """A function to be told (bytes done, bytes in all, what is going on); nothing is shown before it is first called."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True))
    tasks: list[TaskID] = []

    def tell(done: int, total: int, what: str) -> None:
        if not tasks:
            progress.start()
            tasks.append(progress.add_task(what, total=total))
        progress.update(tasks[0], completed=done, total=total, description=what)
        if done >= total:
            progress.stop()
            tasks.clear()

    try:
        yield tell
    finally:
        progress.stop()


def _lines() -> Callable[[int, int, str], None]:
    shown = {"": -1.0}

    def tell(done: int, total: int, what: str) -> None:
        share = done / total if total else 0.0
        if share - shown.get(what, -1.0) >= LINE_EACH or (share >= 1 > shown.get(what, -1.0)):
            shown[what] = share
            click.echo(f"{what}: {share:.0%} of {total / 1e6:,.0f} MB", err=True)

    return tell
