"""`rucher events`: the journal's newest events, and those to come."""

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from rucher.cli.moments import moment_of
from rucher.cli.reading import LAST_SEQ, MOST_ROWS, read, trace_of
from rucher.cli.show import clean, document, event_row, iso, line, short_id, table
from rucher.control.steps import short
from rucher.daemon.settings import find_instance
from rucher.journal.history import whole_trace
from rucher.journal.selection import Wanted, newest, oldest
from rucher.journal.store import StoreReader
from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import BadInput
from rucher.protocol.events import Event
from rucher.protocol.subjects import readable

POLL_S = 0.1
BATCH = 500
COLUMNS = ("SEQ", "RECORDED", "EVENT", "PRINCIPAL", "TRACE", "SAYS")


@dataclass(frozen=True, slots=True)
class Asked:
    """Which events are asked for: what they must be, of which trace (empty: of any), how many, from where on."""

    wanted: Wanted
    trace: str
    limit: int
    after: int | None
    archive: Path


@click.command(name="events")
@click.option("--follow", "-f", is_flag=True, help="Go on printing what comes, until Ctrl-C.")
@click.option("--subject", default="ev.>", metavar="PATTERN", help="Only these, as in ev.*.cli.message or ev.*.agent.>")
@click.option("--type", "kind", default="", metavar="TYPE", help="Only these, as in hop.made; the whole type.")
@click.option("--trace", default="", metavar="TRACE_ID", help="Only of this trace; the beginning of its id will do.")
@click.option("--since", metavar="WHEN", help="Recorded then or later: 2027-01-15T08:00 (UTC), or an age as in 2h.")
@click.option("--until", metavar="WHEN", help="Recorded before then.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, MOST_ROWS), help="The most to show.")
@click.option(
    "--after", type=click.IntRange(0, LAST_SEQ), metavar="SEQ", help="Begin after this event, not at the newest."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list; with --follow one object a line.")
@click.pass_context
def events(  # noqa: PLR0913 - the options of a command
    context: click.Context, *, follow: bool, subject: str, kind: str, trace: str, since: str | None, until: str | None,
    limit: int, after: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Show what happened, newest last; also what was archived."""
    if follow and until:
        raise BadInput("--follow shows what is still to come; leave --until out")
    now = SystemClock().now()
    begin, end = moment_of(since, now) if since else 0, moment_of(until, now) if until else LAST_SEQ
    if begin >= end:
        raise BadInput(f"nothing is recorded from {since} until before {until}; exchange them")
    asked = Asked(Wanted(readable(subject), kind, begin, end), trace, limit, after, find_instance(context.obj).archive)
    if follow:
        read(context.obj, lambda store: _until_ctrl_c(_follow(store, asked, as_json=as_json)))
        return
    found = read(context.obj, lambda store: _begin(store, asked))
    if as_json:
        document([event_row(event) for event in found])
    else:
        table(COLUMNS, [_row(event) for event in found])


async def _begin(store: StoreReader, asked: Asked, up_to: int = LAST_SEQ - 1) -> Sequence[Event]:
    if asked.trace:
        trace = await trace_of(store, asked.archive, asked.trace)
        found = [event for event in await whole_trace(store, asked.archive, trace) if asked.wanted.fits(event)]
        if asked.after is None:
            return [event for event in found if event.seq <= up_to][-asked.limit :]
        return [event for event in found if event.seq > asked.after][: asked.limit]
    if asked.after is None:
        return await newest(store, asked.archive, asked.limit, asked.wanted, up_to)
    return await oldest(store, asked.archive, asked.limit, asked.wanted, asked.after)


async def _until_ctrl_c(work: Coroutine[Any, Any, None]) -> None:
    """Do the work until Ctrl-C, which ends it between two steps of the loop; Python's own way can meet a half-settled one."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _follow(store: StoreReader, asked: Asked, *, as_json: bool) -> None:
    trace = await trace_of(store, asked.archive, asked.trace) if asked.trace else ""
    seen = asked.after
    if seen is None:
        seen = await store.head_seq()
        for event in await _begin(store, asked, seen):
            _tell(event, as_json=as_json)
    while True:
        if await store.changed():
            while batch := await store.events("event.after", seen, BATCH):
                for event in batch:
                    if asked.wanted.fits(event) and trace in ("", event.trace_id):
                        _tell(event, as_json=as_json)
                seen = batch[-1].seq
        await asyncio.sleep(POLL_S)


def _tell(event: Event, *, as_json: bool) -> None:
    if as_json:
        line(event_row(event))
        return
    seq, at, what, who, trace, says = _row(event)
    click.echo(clean(f"{seq:>6}  {at}  {what:<24}  {who:<18}  {trace}  {says}"))


def _row(event: Event) -> tuple[str, str, str, str, str, str]:
    text = event.body.get("text", event.body)
    what = f"{event.source}.{event.type}"
    return str(event.seq), iso(event.recorded_at), what, event.principal, short_id(event.trace_id), short(text)
