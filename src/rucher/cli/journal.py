"""`rucher journal`: proof that nothing sealed was changed, views folded again, export, and retention in an archive."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from rucher.cli.moments import DATE, date_of
from rucher.cli.ownership import demand_idle, demand_own, public_key
from rucher.cli.reading import LAST_SEQ, read
from rucher.cli.show import clean, document
from rucher.daemon.lock import sole_daemon
from rucher.daemon.settings import find_instance, load_settings, store_place
from rucher.instance.layout import Instance
from rucher.journal.archive import HELD, Plan, Progress, archive, plan
from rucher.journal.artifacts import durable_file
from rucher.journal.cloudevents import cloudevent
from rucher.journal.history import all_events
from rucher.journal.seals import verify
from rucher.journal.selection import Wanted
from rucher.journal.statements import view_tables
from rucher.journal.store import StoreReader, open_store, read_store
from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import BadInput
from rucher.protocol.events import Event
from rucher.protocol.subjects import readable

DAY_US = 86_400_000_000


@click.group(name="journal")
def journal() -> None:
    """Verify, export or archive the journal, or fold its views again."""


@journal.command(name="verify")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def verified(context: click.Context, *, as_json: bool) -> None:
    """Check every event, archived ones too, against the signed seals; exit 1 when one was changed, removed or put in."""
    instance = find_instance(context.obj)
    public = public_key(instance)
    found = read(context.obj, lambda store: verify(store, public, instance.seal_head, instance.archive))
    archived = f", {found.archived} of them archived" if found.archived else ""
    if as_json:
        document(asdict(found) | {"ok": not found.fault})
    elif found.fault:
        click.echo(clean(f"broken: {found.fault}"))
        click.echo(f"good up to there: {found.events} events under {found.seals} seals{archived}")
    else:
        click.echo(f"good: {found.events} events under {found.seals} seals{archived}, {found.unsealed} not sealed yet")
    context.exit(1 if found.fault else 0)


@journal.command(name="rebuild")
@click.pass_context
def rebuild(context: click.Context) -> None:
    """Empty every view and fold it again from the events, archived ones too; daemon and workers must be stopped."""
    instance = find_instance(context.obj)
    place = store_place(instance, load_settings(instance))
    if isinstance(place, Path) and not place.is_file():
        raise BadInput(f"there is no journal at {instance.journal} yet; start the daemon with `rucher up`")

    async def rebuilding() -> int:
        async with read_store(place, SystemClock()) as store:
            await demand_own(instance, store)
            await demand_idle(instance, place, store)
        async with open_store(place, SystemClock(), instance.archive) as store:
            return await store.rebuild()

    with sole_daemon(instance.lock):
        count = asyncio.run(rebuilding())
    click.echo(f"folded {count} events again")


@journal.command(name="export")
@click.option("--since", metavar="DATE", help=f"Only what was recorded then or later: {DATE}.")
@click.option("--until", metavar="DATE", help="Only what was recorded before that.")
@click.option("--subject", default="ev.>", metavar="PATTERN", help="Only these, as in ev.*.cli.message or ev.*.agent.>")
@click.option(
    "--after", default=0, type=click.IntRange(0, LAST_SEQ), metavar="SEQ", help="Only what follows this event."
)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), metavar="FILE", help="Write there, not to the terminal."
)
@click.pass_context
def export(
    context: click.Context, *, since: str | None, until: str | None, subject: str, after: int, output: Path | None
) -> None:
    """Write events, archived ones too, as CloudEvents 1.0, one JSON object a line, in order.

    An event that no CloudEvent can hold is left out and named; the exit code is then 1.
    """
    instance = find_instance(context.obj)
    begin, end = _moment(since), _moment(until)
    wanted = Wanted(readable(subject), since=0 if begin is None else begin, until=LAST_SEQ if end is None else end)
    name = load_settings(instance).instance.name

    async def exporting(store: StoreReader, tell: Callable[[bytes], object]) -> int:
        refused = 0
        async for events in all_events(store, instance.archive, after):
            for event in filter(wanted.fits, events):
                refused += not _told(event, name, tell)
        return refused

    with _written_to(output) as tell:
        refused = read(context.obj, lambda store: exporting(store, tell))
    context.exit(1 if refused else 0)


@journal.command(name="archive")
@click.option("--before", metavar="DATE", help=f"Archive what was sealed before {DATE}.")
@click.option("--keep-days", type=click.IntRange(0, 36_500), metavar="N", help="Archive what is older than N days.")
@click.option("--dry-run", is_flag=True, help="Say what would be archived, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def archived(
    context: click.Context, *, before: str | None, keep_days: int | None, dry_run: bool, as_json: bool
) -> None:
    """Move old events out of the store into compressed files, where they are still verified, exported and traced.

    A daemon may run meanwhile. What is freed is used again by the store, whose own file does not become smaller.
    """
    instance = find_instance(context.obj)
    clock = SystemClock()
    if (before is None) == (keep_days is None):
        raise BadInput("say what is old: either --before DATE or --keep-days N")
    moment = _moment(before) if keep_days is None else clock.now() - keep_days * DAY_US
    done = asyncio.run(_archive(instance, clock, moment or 0, dry_run=dry_run))
    if as_json:
        told = {"folder": str(instance.archive), "dry_run": dry_run, "held_text": HELD[done.held]}
        document(asdict(done) | {"events": done.events} | told)
        return
    if not done.events:
        click.echo(f"nothing to archive: the events from {done.first_seq} on stay, as {HELD[done.held]}")
        return
    verb = "would archive" if dry_run else "archived"
    where = "" if dry_run else f" in {instance.archive}"
    click.echo(clean(f"{verb} {done.events} events, {done.first_seq} to {done.last_seq}{where}"))
    click.echo(f"the events from {done.last_seq + 1} on stay, as {HELD[done.held]}")


async def _archive(instance: Instance, clock: SystemClock, before_us: int, *, dry_run: bool) -> Plan:
    public = public_key(instance)
    place = store_place(instance, load_settings(instance))
    async with read_store(place, clock) as store:
        # A daemon may be writing: its store is used as it is, and surely not migrated.
        if await store.meta("views") != view_tables()[1]:
            raise BadInput("the store was last used by another version of Rucher; start this one once with `rucher up`")
        await demand_own(instance, store)
        planned = await plan(store, before_us)
    if dry_run or not planned.events:
        return planned
    async with open_store(place, clock, instance.archive) as store:
        await store.belong_to(bytes(public).hex())
        return await archive(store, instance.archive, public, clock, before_us, _telling())


def _telling() -> Progress:
    """Tells a person now and then how far it is; nothing when it is done in one go."""
    told = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal told
        if done / total - told >= 0.1 and done < total:  # noqa: PLR2004 - a line each tenth
            told = done / total
            click.echo(f"archived {done:,} of {total:,} events", err=True)

    return tell


def _moment(given: str | None) -> int | None:
    return None if given is None else date_of(given)


def _told(event: Event, instance: str, tell: Callable[[bytes], object]) -> bool:
    """Whether the event could be told; else what is wrong with it is said."""
    try:
        record: Mapping[str, Any] = cloudevent(event, instance)
        tell(json.dumps(record, separators=(",", ":")).encode() + b"\n")
    except BadInput as error:
        click.echo(clean(f"rucher: left out: {error}"), err=True)
        return False
    return True


@contextmanager
def _written_to(output: Path | None) -> Iterator[Callable[[bytes], object]]:
    """What writes bytes to the file, which is there as a whole at the end or not at all, or to standard output."""
    if output is None:
        yield lambda line: click.echo(line, nl=False)
        return
    if output.is_dir():
        raise BadInput(f"{output} is a folder; name a file")
    with durable_file(output) as file:
        yield file.write
