"""`rucher hops`: what goes where by which rule, how far it got, and why not further."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from rucher.cli.onehop import gather, hop_json, why
from rucher.cli.onehop import show as show_hop
from rucher.cli.reading import LAST_SEQ, MOST_ROWS, find_trace, read
from rucher.cli.show import document, short_id, span, table
from rucher.control.hops import OPEN
from rucher.control.steps import short
from rucher.journal.store import StoreReader
from rucher.protocol.clock import SystemClock

COLUMNS = ("HOP", "STATE", "TO", "RULE", "AGE", "SINCE", "TRIES", "TRACE", "WHY")
Row = Mapping[str, Any]


@click.group(name="hops")
def hops() -> None:
    """One event on its way to one destination by one rule."""


@hops.command(name="list")
@click.option("--open", "only_open", is_flag=True, help="Only those that have not ended.")
@click.option("--trace", default="", metavar="TRACE", help="Only those of this trace; the beginning of its id will do.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, MOST_ROWS), help="The most to list.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def list_hops(context: click.Context, trace: str, *, only_open: bool, limit: int, as_json: bool) -> None:
    """List hops, newest first: AGE since it was made, SINCE it last changed."""
    rows = read(context.obj, lambda store: _found(store, trace, limit, only_open=only_open))
    print_hops(rows, as_json=as_json)


@hops.command(name="show")
@click.argument("hop")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def show(context: click.Context, hop: str, *, as_json: bool) -> None:
    """Show all about HOP: its id, or the beginning of it."""
    show_hop(read(context.obj, lambda store: gather(store, hop)), as_json=as_json)


def print_hops(rows: Sequence[Row], *, as_json: bool) -> None:
    """Print hops as a list."""
    if as_json:
        document([hop_json(row) for row in rows])
        return
    now = SystemClock().now()
    table(COLUMNS, [_cells(row, now) for row in rows])


async def _found(store: StoreReader, trace: str, limit: int, *, only_open: bool) -> Sequence[Row]:
    if trace:
        rows: Sequence[Row] = await store.rows("hops.of_trace", await find_trace(store, trace))
    elif only_open:
        rows = (await store.rows("hops.open", 0))[::-1]
    else:
        rows = await store.rows("hops.before", LAST_SEQ, limit)
    return [row for row in rows if row["state"] in OPEN or not only_open][:limit]


def _cells(row: Row, now: int) -> tuple[str, ...]:
    age, since = span(max(0, now - row["made_at"])), span(max(0, now - row["updated_at"]))
    where = short_id(row["hop_id"]), row["state"], row["dest"], row["rule_id"]
    return (*where, age, since, str(row["attempts"]), short_id(row["trace_id"]), short(why(row)))
