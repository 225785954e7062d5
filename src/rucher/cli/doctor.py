"""`rucher doctor`: everything that commonly goes wrong, looked at once, each with what to do about it."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from rucher.cli.checks import FAIL, WARN, Check, machine
from rucher.cli.health import instance_checks
from rucher.cli.show import clean, document, toned
from rucher.daemon.settings import find_instance
from rucher.protocol.errors import RucherError


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def doctor(context: click.Context, *, as_json: bool) -> None:
    """Check this machine and this instance, and say what to do; exit 1 when something cannot work."""
    checks = [*machine(), *_instance(context.obj)]
    if as_json:
        document([asdict(check) for check in checks])
    else:
        _show(checks)
    context.exit(1 if any(check.status == FAIL for check in checks) else 0)


def _instance(given: Path | None) -> Sequence[Check]:
    try:
        return list(instance_checks(find_instance(given)))
    except RucherError as error:
        return [Check("instance", FAIL if given else WARN, str(error), "the checks of an instance were left out")]


def _show(checks: Sequence[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        click.echo(f"{toned(f'{check.status:<4}', check.status)}  {check.name:<{width}}  {clean(check.found)}")
        if check.todo:
            click.echo(f"{'':<{width + 6}}  -> {clean(check.todo)}")
