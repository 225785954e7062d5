"""`rucher runs`: the runs of agents, or all about one: its steps, what it waits for, what it may use and what it came from."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from rucher.cli.onerun import OneRun, gather, in_json, show
from rucher.cli.reading import LAST_SEQ, MOST_ROWS, find_run, read, spelled
from rucher.cli.show import document, iso, short_id, span, table
from rucher.control.runstates import SHOWN, patterns, shown
from rucher.control.steps import short
from rucher.daemon.settings import find_instance
from rucher.journal.artifacts import Artifacts
from rucher.journal.store import StoreReader
from rucher.protocol.clock import SystemClock

COLUMNS = ("RUN", "STATE", "AGENT", "SESSION", "PRIORITY", "PARENT", "STEPS", "TOKENS", "AGE", "REASON")
_PAGE = 1000
Row = Mapping[str, Any]


@click.command(name="runs")
@click.argument("run_id", required=False)
@click.option("--state", type=click.Choice(SHOWN), default=None, help="Only those in this state.")
@click.option("--session", default="", help="Only those of this session; the beginning of its id will do.")
@click.option("--limit", default=30, show_default=True, type=click.IntRange(1, MOST_ROWS), help="The most to list.")
@click.option("--full", is_flag=True, help="With RUN_ID: show requests and results whole.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list; with RUN_ID one object.")
@click.pass_context
def runs(  # noqa: PLR0913 - one parameter an option
    context: click.Context,
    run_id: str | None,
    state: str | None,
    session: str,
    *,
    limit: int,
    full: bool,
    as_json: bool,
) -> None:
    """List runs, newest first; with RUN_ID, or the beginning of one, show all about it."""
    if run_id is None:
        prefix = spelled(session) if session else ""
        _list(read(context.obj, lambda store: _found(store, state or "", prefix, limit)), as_json=as_json)
        return

    async def work(store: StoreReader) -> OneRun:
        return await gather(store, await find_run(store, run_id))

    artifacts = Artifacts(find_instance(context.obj).artifacts)
    run = read(context.obj, work)
    if as_json:
        document(_run_json(run.row) | in_json(run, artifacts, full=full))
    else:
        show(run, artifacts, full=full)


async def _found(store: StoreReader, state: str, session: str, limit: int) -> list[Row]:
    """The newest `limit` runs that are shown in this state, of sessions whose id begins so; all where these are empty."""
    found: list[Row] = []
    before = LAST_SEQ
    page = limit if not state else _PAGE
    while len(found) < limit:
        rows = await store.rows("runs.before", before, *patterns(state), f"{session}%", page)
        found += [row for row in rows if state in ("", shown(row))]
        if len(rows) < page:
            break
        before = rows[-1]["seq"]
    return found[:limit]


def _list(rows: Sequence[Row], *, as_json: bool) -> None:
    if as_json:
        document([_run_json(row) for row in rows])
        return
    now = SystemClock().now()
    table(COLUMNS, [_cells(row, now) for row in rows])


def _cells(row: Row, now: int) -> tuple[str, ...]:
    tokens = f"{row['input_tokens']}+{row['output_tokens']}"
    ids = short_id(row["run_id"]), shown(row), row["agent"], short_id(row["session_id"])
    kin = str(row["priority"]), short_id(row["parent_id"]) or "-"
    return (*ids, *kin, str(row["steps"]), tokens, span(max(0, now - row["created_at"])), short(row["reason"]))


def _run_json(row: Row) -> dict[str, Any]:
    facts = {name: row[name] for name in row.keys()}  # noqa: SIM118 - a database row iterates over its values
    times = {"created_at": iso(row["created_at"]), "updated_at": iso(row["updated_at"])}
    return facts | times | {"state": shown(row), "accounts": json.loads(row["accounts"])}
