"""`rucher deliveries`: what went out to surfaces, part by part, and the owner's word about what is uncertain."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from rucher.cli.client import Daemon
from rucher.cli.onehop import gather, part_json
from rucher.cli.onehop import show as show_hop
from rucher.cli.reading import LAST_SEQ, MOST_ROWS, find_hop, read
from rucher.cli.show import document, short_id, span, table
from rucher.control.hops import VERDICTS
from rucher.control.steps import short
from rucher.daemon.settings import find_instance
from rucher.journal.store import StoreReader
from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import BadInput

COLUMNS = ("HOP", "PART", "STATE", "TO", "ATTEMPTS", "SINCE", "TRACE", "SAYS")
OPEN = frozenset({"pending", "sending"})
Row = Mapping[str, Any]


@click.group(name="deliveries")
def deliveries() -> None:
    """What was sent out, is being sent, or could not be."""


@deliveries.command(name="list")
@click.option("--open", "wanted", flag_value="open", help="Only what has not ended.")
@click.option("--uncertain", "wanted", flag_value="uncertain", help="Only what may or may not have been delivered.")
@click.option("--failed", "wanted", flag_value="failed", help="Only what was not delivered.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, MOST_ROWS), help="The most to list.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def list_deliveries(context: click.Context, wanted: str | None, *, limit: int, as_json: bool) -> None:
    """List deliveries part by part, newest first."""
    rows = read(context.obj, lambda store: _found(store, wanted, limit))
    if as_json:
        document([part_json(row) | {"trace_id": row["trace_id"], "dest": row["dest"]} for row in rows])
        return
    now = SystemClock().now()
    table(COLUMNS, [_cells(row, now) for row in rows])


@deliveries.command(name="show")
@click.argument("hop")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def show(context: click.Context, hop: str, *, as_json: bool) -> None:
    """Show all about the delivery of HOP: its id, or the beginning of it."""
    found = read(context.obj, lambda store: gather(store, hop))
    if not found.parts:
        raise BadInput(
            f"nothing of hop {found.row['hop_id']} was sent out; see `rucher hops show {found.row['hop_id']}`"
        )
    show_hop(found, as_json=as_json)


@deliveries.command(name="resolve")
@click.argument("hop", metavar="HOP[:PART]")
@click.argument("verdict", type=click.Choice(VERDICTS))
@click.pass_context
def resolve(context: click.Context, hop: str, verdict: str) -> None:
    """Say what became of a part that may or may not have been delivered; what was not is sent again."""
    given, _, number = hop.partition(":")
    if number and not (number.isascii() and number.isdigit() and int(number) > 0):
        raise BadInput(f"{number[:20]!r} is no part; write HOP:PART as in `rucher deliveries list`, PART from 1")
    row = read(context.obj, lambda store: find_hop(store, given))
    body = {"verdict": verdict, "part": int(number) if number else None}
    with Daemon(find_instance(context.obj)) as daemon:
        daemon.call("POST", f"/hops/{row['hop_id']}/resolve", json=body)
    goes = "it is sent again" if verdict == "not-delivered" else "what is left of it goes on"
    click.echo(f"noted; {goes}: rucher deliveries show {row['hop_id']}")


async def _found(store: StoreReader, wanted: str | None, limit: int) -> Sequence[Row]:
    if wanted is None:
        return await store.rows("deliveries.before", LAST_SEQ, limit)
    states = OPEN if wanted == "open" else {wanted}
    rows = await store.rows("deliveries.not_delivered", LAST_SEQ, MOST_ROWS)
    return [row for row in rows if row["state"] in states][:limit]


def _cells(row: Row, now: int) -> tuple[str, ...]:
    number = f"{row['part']}/{row['parts']}" if row["part"] else "-"
    since = span(max(0, now - row["updated_at"]))
    what = short_id(row["hop_id"]), number, row["state"], row["dest"], str(row["attempts"])
    return (*what, since, short_id(row["trace_id"]), short(row["detail"] or row["receipt"]))
