"""Entry point of `rucher`: finds the command, imports only that one, and turns errors into one line and an exit code.

No command is imported for `rucher --help`, whose text stands in the map below.
"""

import importlib
import os
import sys
from pathlib import Path

import click
from typing_extensions import override

from rucher import __version__
from rucher.protocol.errors import BadInput, Retryable, RucherError

COMMANDS = {
    "new": ("rucher.cli.new", "new", "Make a new instance in a folder."),
    "up": ("rucher.cli.up", "up", "Start the instance and run it until Ctrl-C."),
    "send": ("rucher.cli.send", "send", "Send a message to the instance's agents."),
    "demo": ("rucher.cli.demo", "demo", "Watch a message travel through a throw-away instance."),
    "events": ("rucher.cli.events", "events", "Show what happened, newest last."),
    "trace": ("rucher.cli.trace", "trace", "Draw all that one message caused."),
    "runs": ("rucher.cli.runs", "runs", "List the runs of agents, or show all about one."),
    "run": ("rucher.cli.run", "run", "Pause, cancel, steer, fork or answer one run."),
    "hops": ("rucher.cli.hops", "hops", "List what goes where, or show all about one hop."),
    "deliveries": ("rucher.cli.deliveries", "deliveries", "List what went out, or say what became of it."),
    "deadletters": ("rucher.cli.deadletters", "deadletters", "Look at what failed; try it again or drop it."),
    "rules": ("rucher.cli.rules", "rules", "Check or list who wakes for what."),
    "sources": ("rucher.cli.sources", "sources", "Say who may hand events in from outside."),
    "destinations": ("rucher.cli.destinations", "destinations", "List, check and try where events can go outside."),
    "journal": ("rucher.cli.journal", "journal", "Verify, export or archive the journal."),
    "store": ("rucher.cli.store", "store", "Show, migrate or copy the store that holds the journal."),
    "doctor": ("rucher.cli.doctor", "doctor", "Check this machine and this instance, and say what to do."),
}
"""Each command's module, attribute and line of help, in the order in which a newcomer meets them."""

UNUSABLE = 2
LATER = 3
INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for number, argument in enumerate(args, 1):
            if not _is_unicode(argument):
                shown = argument.encode("utf-8", "backslashreplace").decode()
                raise BadInput(
                    f"argument {number} is not UTF-8 text ({shown[:60]}); write it as UTF-8; a folder with such a name "
                    "can be entered first"
                )
        return super().parse_args(ctx, args)

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, n=2)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"there is no command {name[:60]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])

    @override
    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever read the output went away: what Python still holds for it must not fail at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.Abort from None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--dir", "-C", "folder", type=click.Path(path_type=Path), metavar="DIR", help="The instance, if not around here."
)
@click.version_option(__version__, prog_name="rucher")
@click.pass_context
def cli(ctx: click.Context, folder: Path | None) -> None:
    """Rucher: a self-hosted operating system for AI agents."""
    ctx.obj = folder


def main() -> None:
    """Run the command line and exit.

    0 is done, 1 done and something is wrong, 2 cannot be used as it is, 3 may work later, 130 interrupted.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for as long as this process lives
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_exit_code())


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _exit_code() -> int:
    try:
        code = cli.main(prog_name="rucher", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as error:
        return _misused(error)
    except RucherError as error:
        return _refused(str(error), LATER if isinstance(error, Retryable) else UNUSABLE)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _refused(f"{where}{error.strerror or error}; check that it exists and is yours", UNUSABLE)
    return code if isinstance(code, int) else 0


def _misused(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "rucher"
    return _refused(f"{error.format_message().rstrip('.')}; see {path} --help", error.exit_code)


def _refused(text: str, code: int) -> int:
    from rucher.cli.show import clean

    click.echo(f"rucher: {clean(text)}", err=True)
    return code
