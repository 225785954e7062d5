"""`rucher events`: the journal's newest events, and those to come."""

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from typing import Any

import click

from rucher.cli.reading import LAST_SEQ, MOST_ROWS, read
from rucher.cli.show import clean, document, event_row, iso, line, short_id, table
from rucher.control.steps import short
from rucher.journal.store import StoreReader
from rucher.protocol.events import Event
from rucher.protocol.subjects import matches

POLL_S = 0.1
BATCH = 500
COLUMNS = ("SEQ", "RECORDED", "EVENT", "PRINCIPAL", "TRACE", "SAYS")


@click.command(name="events")
@click.option("--follow", "-f", is_flag=True, help="Go on printing what comes, until Ctrl-C.")
@click.option("--subject", default="ev.>", metavar="PATTERN", help="Only these, as in ev.*.cli.message or ev.*.agent.>")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, MOST_ROWS), help="The most to show.")
@click.option(
    "--after", type=click.IntRange(0, LAST_SEQ), metavar="SEQ", help="Begin after this event, not at the newest."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list; with --follow one object a line.")
@click.pass_context
def events(context: click.Context, *, follow: bool, subject: str, limit: int, after: int | None, as_json: bool) -> None:
    """Show what happened, newest last."""
    matches(subject, "ev")
    if follow:
        read(context.obj, lambda store: _until_ctrl_c(_follow(store, subject, limit, after, as_json=as_json)))
        return
    found = read(context.obj, lambda store: _begin(store, subject, limit, after))
    if as_json:
        document([event_row(event) for event in found])
    else:
        table(COLUMNS, [_row(event) for event in found])


async def _begin(store: StoreReader, subject: str, limit: int, after: int | None) -> Sequence[Event]:
    return await (store.newest(limit, subject) if after is None else store.read(after, limit, subject))


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


async def _follow(store: StoreReader, subject: str, limit: int, after: int | None, *, as_json: bool) -> None:
    seen = after
    if seen is None:
        seen = await store.head_seq()
        for event in await store.newest(limit, subject, seen):
            _tell(event, as_json=as_json)
    while True:
        if await store.changed():
            while batch := await store.events("event.after", seen, BATCH):
                for event in batch:
                    if matches(subject, event.subject):
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
