"""`rucher store`: which store an instance has, its schema brought up to date, and a copy of it in another database."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from rucher.cli.ownership import demand_idle, demand_own, public_key, workers
from rucher.cli.show import clean, document, span
from rucher.daemon.lock import sole_daemon
from rucher.daemon.settings import find_instance, load_settings, store_place
from rucher.instance.layout import Instance
from rucher.journal.copying import copy, differences, finish
from rucher.journal.places import Facts, facts_of, place_of, shown
from rucher.journal.statements import SCHEMA_VERSION, USE_NEWER, view_tables
from rucher.journal.store import Place, open_store, read_store
from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import BadInput

TELL_S = 5.0
"""Seconds after which a command that still works says so again."""
_TOLD_EACH = 0.1
Row = Mapping[str, Any]
T = TypeVar("T")


@click.group(name="store")
def store() -> None:
    """Where the journal is kept: a file, or a PostgreSQL database."""


@store.command(name="status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def status(context: click.Context, *, as_json: bool) -> None:
    """Say which store this instance has, and what is in it."""
    instance = find_instance(context.obj)
    place = store_place(instance, load_settings(instance))
    told = asyncio.run(_status(instance, place))
    if as_json:
        document(told)
        return
    for name, value in told.items():
        if name == "workers" and value is not None:
            click.echo(f"workers     {len(value)}")
            for worker in value:
                click.echo(
                    clean(f"            {worker['worker']}  {worker['role']} on {worker['host']}  {worker['state']}")
                )
        elif value is not None:
            click.echo(
                clean(f"{name.replace('_', ' '):<10}  {value:,}" if isinstance(value, int) else f"{name:<10}  {value}")
            )


@store.command(name="migrate")
@click.pass_context
def migrate(context: click.Context) -> None:
    """Bring the store to the schema that this Rucher writes; the daemon must be stopped."""
    instance = find_instance(context.obj)
    place = store_place(instance, load_settings(instance))
    with sole_daemon(instance.lock):
        click.echo(clean(asyncio.run(_migrate(instance, place))))


@store.command(name="copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.pass_context
def copied(context: click.Context, source: str, target: str) -> None:
    """Copy this instance's store FROM a path or URL TO an empty one, and prove that nothing is lost.

    The daemon must be stopped. FROM is only read. A copy that was interrupted goes on when it is asked for again.
    """
    instance = find_instance(context.obj)
    here, there = place_of(source), place_of(target)
    if here == there:
        raise BadInput("FROM and TO are the same store; name an empty one to copy into")
    clock = SystemClock()
    began = clock.monotonic()
    with sole_daemon(instance.lock):
        faults, events = asyncio.run(_copy(instance, here, there))
    if faults:
        for fault in faults:
            click.echo(clean(f"different: {fault}"))
        click.echo(clean(f"{shown(there)} is no faithful copy and stays unusable; {shown(here)} is as it was"))
        context.exit(1)
    took = span(round((clock.monotonic() - began) * 1e6))
    click.echo(clean(f"copied {events:,} events to {shown(there)} in {took}: the same events, seals and views"))
    for text in _what_now(instance, there):
        click.echo(clean(text))


async def _status(instance: Instance, place: Place) -> dict[str, Any]:
    facts = await _existing(place)
    told: dict[str, Any] = {
        "store": facts.kind, "place": facts.place, "schema": facts.schema, "writes": SCHEMA_VERSION, "size": facts.size,
        "todo": None, "instance": None, "events": None, "archived": None, "head": None, "views": None, "seals": None,
        "sealed_to": None, "archives": None, "workers": None,
    }  # fmt: skip
    if facts.schema != SCHEMA_VERSION:
        return told | {"todo": USE_NEWER if facts.newer else "rucher store migrate"}
    async with read_store(place, SystemClock()) as reader:
        count = (await reader.rows("event.count"))[0]
        seals, archives = await reader.rows("seals.all"), await reader.rows("archives.all")
        current = await reader.meta("views") == view_tables()[1]
        return told | {
            "todo": None if current else "rucher store migrate", "instance": await reader.meta("instance") or None,
            "events": count["count"], "archived": archives[-1]["last_seq"] if archives else 0, "head": await reader.head_seq(),
            "views": "current" if current else "of another version; folded again at the next start", "seals": len(seals),
            "sealed_to": seals[-1]["last_seq"] if seals else 0, "archives": len(archives),
            "workers": workers(instance, place, await reader.rows("workers.all")),
        }  # fmt: skip


async def _existing(place: Place) -> Facts:
    facts = await facts_of(place)
    if not facts.schema:
        raise BadInput(f"there is no journal at {facts.place} yet; the daemon makes it: `rucher up`")
    return facts


async def _migrate(instance: Instance, place: Place) -> str:
    facts = await _existing(place)
    if facts.newer:
        raise facts.newer
    if facts.schema == SCHEMA_VERSION:
        async with read_store(place, SystemClock()) as reader:
            await demand_own(instance, reader)
            if await reader.meta("views") == view_tables()[1]:
                return f"nothing to do: {facts.place} has schema {facts.schema}, which is what this Rucher writes"
            await demand_idle(instance, place, reader)
    clock = SystemClock()
    began = clock.monotonic()

    async def opening() -> int:
        async with open_store(place, clock, instance.archive) as opened:
            return int((await opened.rows("event.count"))[0]["count"])

    count = await _telling(f"bringing {facts.place} from schema {facts.schema} to {SCHEMA_VERSION}", opening())
    took = span(round((clock.monotonic() - began) * 1e6))
    return f"{facts.place} has schema {SCHEMA_VERSION} now; its views were folded from {count:,} events in {took}"


async def _copy(instance: Instance, here: Place, there: Place) -> tuple[list[str], int]:
    public = public_key(instance)
    key = bytes(public).hex()
    facts = await _existing(here)
    if facts.newer:
        raise facts.newer
    into = await facts_of(there)
    if into.schema not in (0, SCHEMA_VERSION):
        raise BadInput(f"the store to copy into is in use: {into.place} has schema {into.schema}; give an empty one")
    clock = SystemClock()
    async with read_store(here, clock) as source:
        await demand_own(instance, source)
        await demand_idle(instance, here, source)
        with _counted() as tell:
            async with open_store(there, clock, instance.archive) as target:
                await copy(source, target, key, tell)
                faults = await differences(source, target, public, instance.seal_head, instance.archive, tell)
                if faults:
                    return faults, 0
                await demand_idle(instance, here, source)
                if await source.head_seq() != await target.head_seq():
                    return ["somebody wrote into the source meanwhile; stop its workers and copy again"], 0
                await finish(source, target, key)
                return [], int((await source.rows("event.count"))[0]["count"])


def _what_now(instance: Instance, there: Place) -> Iterator[str]:
    if isinstance(there, Path):
        if there != instance.journal:
            yield f"To use it: move it to {instance.journal}, and take store.url out of {instance.config}"
        else:
            yield f"To use it: take store.url out of {instance.config}"
        return
    yield f"To use it: put this into {instance.config}, then `rucher up`:"
    yield ""
    yield "[store]"
    yield f'url = "{shown(there)}"'
    if shown(there) != there:
        yield ""
        yield "A password belongs into ~/.pgpass, or the whole URL into the environment variable RUCHER_STORE_URL."


async def _telling(what: str, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; what goes on is said now, and again every few seconds as long as it lasts."""
    clock = SystemClock()
    began = clock.monotonic()
    click.echo(clean(what), err=True)
    task = asyncio.ensure_future(work)
    while not (await asyncio.wait([task], timeout=TELL_S))[0]:
        click.echo(clean(f"{what}: for {clock.monotonic() - began:.0f} s so far"), err=True)
    return task.result()


@contextmanager
def _counted() -> Iterator[Callable[[int, int, str], None]]:
    """A function to be told how far a copy is: one line that changes on a terminal, a line now and then elsewhere."""
    here = sys.stderr.isatty()
    told = {"": 0.0}

    def tell(done: int, total: int, what: str) -> None:
        share = done / total if total else 1.0
        if here or what not in told or share - told[what] >= _TOLD_EACH or share >= 1 > told[what]:
            told[what] = share
            click.echo(f"{what}: {done:,} of {total:,}" + ("\r" if here and share < 1 else "\n"), nl=False, err=True)

    yield tell
