"""`rucher rules history` and `diff`: which rules were in force when, and what changed. Also reads rules for its neighbours."""

from collections.abc import Sequence
from pathlib import Path

import click

from rucher.cli.reading import read
from rucher.cli.show import clean, document, iso, plain, table
from rucher.daemon.outside import open_places
from rucher.daemon.rulebook import destinations
from rucher.daemon.settings import find_instance, load_settings
from rucher.instance.agents import load_agents
from rucher.instance.layout import Instance
from rucher.journal.history import whole_trace
from rucher.journal.store import StoreReader
from rucher.protocol.errors import BadInput
from rucher.protocol.events import Event
from rucher.router.proposals import Version, difference, versions
from rucher.router.records import rules_trace
from rucher.router.reload import RulesFile
from rucher.router.rules import Rules

COLUMNS = ("SEQ", "AT", "WHAT", "VERSION", "RULES", "SAYS")
_SHORT = 12
_HEX = frozenset("0123456789abcdef")


@click.command(name="history")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def history(context: click.Context, *, as_json: bool) -> None:
    """List every version of the rules that was in force, refused or proposed, oldest first."""
    told = past(context.obj)
    if as_json:
        document([_as_json(event) for event in told])
        return
    table(COLUMNS, [_cells(event) for event in told])


@click.command(name="diff")
@click.argument("old", metavar="[A", required=False)
@click.argument("new", metavar="[B]]", required=False)
@click.pass_context
def diff(context: click.Context, old: str | None, new: str | None) -> None:
    """Show how the rules file differs from the rules in force; version A from those in force; or A from B.

    A and B are versions as `rucher rules history` shows them, or as many of their first letters as make them unique.
    """
    instance = find_instance(context.obj)
    known = list(versions(past(context.obj)))
    if not known:
        raise BadInput("no rules were in force yet: start the instance with `rucher up`, or ask `rucher rules check`")
    if old is None:
        before, name = known[-1], str(instance.rules)
        after = read_text(instance.rules)
    else:
        before, newer = _version(known, old), _version(known, new) if new else known[-1]
        after, name = _text(newer), f"version {newer.version[:_SHORT]}"
    found = difference(_text(before), after, (f"version {before.version[:_SHORT]}", name))
    if found:
        plain(found.rstrip("\n"))
    else:
        click.echo("nothing differs")


def past(given: Path | None) -> Sequence[Event]:
    """All that happened to the rules of the instance that is meant, oldest first."""
    instance = find_instance(given)
    trace = rules_trace(load_settings(instance).instance.tenant)

    async def work(store: StoreReader) -> Sequence[Event]:
        return await whole_trace(store, instance.archive, trace)

    return read(given, work)


def taken_from(instance: Instance, path: Path) -> Rules:
    """The rules of a file, as a daemon of this instance would take them; raises BadInput as it would refuse them."""
    agents = load_agents(instance.agents)
    known = destinations(agents) | set(open_places(instance, agents).current.names)
    return RulesFile(path, lambda: known).current


def read_text(path: Path) -> str:
    """The text of a rules file, as it stands; raises BadInput when it is not UTF-8."""
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: this is not UTF-8 text; see `rucher rules check`") from error


def _version(known: Sequence[Version], given: str) -> Version:
    text = given.strip().lower()
    if not text or not set(text) <= _HEX:
        raise BadInput(f"{given[:60]!r} is no version; versions are in the list of `rucher rules history`")
    found = {one.version: one for one in known if one.version.startswith(text)}
    if len(found) > 1:
        raise BadInput(f"several versions begin with {text}; give more of it")
    if not found:
        raise BadInput(f"no version begins with {text}; see `rucher rules history`")
    return next(iter(found.values()))


def _text(version: Version) -> str:
    if version.text is None:
        raise BadInput(f"the text of version {version.version[:_SHORT]} was not kept")
    return version.text


def _cells(event: Event) -> tuple[str, ...]:
    body = event.body
    version = str(body.get("version") or body.get("base") or "")[:_SHORT]
    says = body.get("reason") or body.get("why") or body.get("verdict") or body.get("path") or ""
    what = event.type.removeprefix("rules.")
    return str(event.seq), iso(event.recorded_at), what, version, str(body.get("rules", "")), clean(str(says))


def _as_json(event: Event) -> dict[str, object]:
    what = event.type.removeprefix("rules.")
    return {"seq": event.seq, "id": event.id, "at": iso(event.recorded_at), "what": what, **event.body}
