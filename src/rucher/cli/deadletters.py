"""`rucher deadletters`: the hops that failed, to be looked at, tried again or dropped. The daemon decides and acts."""

from collections.abc import Mapping
from typing import Any

import click

from rucher.cli.client import Daemon
from rucher.cli.hops import print_hops
from rucher.cli.onehop import gather
from rucher.cli.onehop import show as show_hop
from rucher.cli.reading import LAST_SEQ, MOST_ROWS, find_hop, read
from rucher.daemon.settings import find_instance
from rucher.protocol.errors import BadInput


@click.group(name="deadletters")
def deadletters() -> None:
    """What failed for good: nothing more is done about it until you say so."""


@deadletters.command(name="list")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, MOST_ROWS), help="The most to list.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def list_letters(context: click.Context, *, limit: int, as_json: bool) -> None:
    """List them, newest first; what may or may not have been delivered is in `rucher deliveries list --uncertain`."""
    rows = read(context.obj, lambda store: store.rows("hops.dead", LAST_SEQ, MOST_ROWS))
    print_hops([row for row in rows if row["state"] == "failed"][:limit], as_json=as_json)


@deadletters.command(name="show")
@click.argument("hop")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def show(context: click.Context, hop: str, *, as_json: bool) -> None:
    """Show all about HOP: its id, or the beginning of it."""
    found = read(context.obj, lambda store: gather(store, hop))
    if found.row["state"] not in ("failed", "dropped"):
        raise BadInput(
            f"hop {found.row['hop_id']} is no dead letter, it is {found.row['state']}; see `rucher hops show`"
        )
    show_hop(found, as_json=as_json)


@deadletters.command(name="retry")
@click.argument("hop")
@click.pass_context
def retry(context: click.Context, hop: str) -> None:
    """Let HOP be tried again at once, from the first part that was not delivered on."""
    hop_id = _order(context, hop, "retry")
    click.echo(f"hop {hop_id} is tried again; see it: rucher hops show {hop_id}")


@deadletters.command(name="drop")
@click.argument("hop")
@click.option("--reason", default="", help="Why; kept with the order.")
@click.pass_context
def drop(context: click.Context, hop: str, reason: str) -> None:
    """Have done with HOP; it stays in the journal."""
    hop_id = _order(context, hop, "drop", {"reason": reason})
    click.echo(f"hop {hop_id} is dropped; `rucher deadletters retry {hop_id}` still brings it back")


def _order(context: click.Context, hop: str, order: str, body: Mapping[str, Any] | None = None) -> str:
    row = read(context.obj, lambda store: find_hop(store, hop))
    with Daemon(find_instance(context.obj)) as daemon:
        daemon.call("POST", f"/hops/{row['hop_id']}/{order}", json=body)
    return str(row["hop_id"])
