"""`rucher sessions`: where agents, rooms and threads cross, with their mailboxes and runs; a new beginning, a new sandbox."""

from collections.abc import Mapping
from typing import Any

import click

from rucher.cli.client import order
from rucher.cli.reading import LAST_SEQ, MOST_ROWS, read, spelled
from rucher.cli.show import document, iso, plain, short_id, table
from rucher.control.runstates import patterns, shown
from rucher.control.steps import short
from rucher.daemon.settings import find_instance
from rucher.instance.layout import Instance
from rucher.journal.store import StoreReader
from rucher.protocol.errors import BadInput

COLUMNS = ("SESSION", "AGENT", "GROUP", "THREAD", "STATE", "RUNS", "LAST RUN", "REASON")
_MOST_RUNS = 10
Row = Mapping[str, Any]


@click.group(name="sessions")
def sessions() -> None:
    """List sessions, or act on one: SESSION is its id, or the beginning of it."""


@sessions.command(name="list")
@click.option("--agent", default="", help="Only those of this agent.")
@click.option("--group", default="", metavar="ROOM", help="Only those of this room, as in cli:main.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, MOST_ROWS), help="The most to list.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def listed(context: click.Context, agent: str, group: str, *, limit: int, as_json: bool) -> None:
    """List sessions, the one that worked last first."""
    instance = find_instance(context.obj)

    async def work(store: StoreReader) -> list[dict[str, Any]]:
        rows = await store.rows("sessions.at_work", agent, group, limit)
        return [_session(row, await _last_run(store, row), instance) for row in rows]

    found = read(context.obj, work)
    if as_json:
        document(found)
        return
    table(COLUMNS, [_cells(session) for session in found])


@sessions.command(name="show")
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def show(context: click.Context, session: str, *, as_json: bool) -> None:
    """Show all about SESSION: where its files lie, and its last runs."""
    instance = find_instance(context.obj)

    async def work(store: StoreReader) -> tuple[Row, list[Row]]:
        row = await _found(store, session)
        return row, await store.rows("runs.before", LAST_SEQ, *patterns(""), row["session_id"], _MOST_RUNS)

    row, runs = read(context.obj, work)
    told = _facts(row, instance) | {"runs": [_run(run) for run in runs]}
    if as_json:
        document(told)
        return
    plain(f"session {told['session_id']}  {told['state']}")
    plain(f"  agent {told['agent']}, group {told['room'] or 'all'}, thread {told['thread'] or '-'}")
    plain(f"  opened {told['opened_at']}{', its history begins after a reset' if told['reset'] else ''}")
    if told["reason"]:
        plain(f"  {told['reason']}")
    plain(f"  mailbox and workspace: {told['folder']}{'' if told['on_disk'] else ' (made at its first run)'}")
    for run in told["runs"]:
        plain(f"  run {run['run_id']}  {run['state']}  {run['created_at']}  {short(run['reason'])}".rstrip())


@sessions.command(name="reset")
@click.argument("session")
@click.pass_context
def reset(context: click.Context, session: str) -> None:
    """Let the next message of SESSION begin with no history; the files of its workspace stay."""
    found = read(context.obj, lambda store: _found(store, session))["session_id"]
    order(context.obj, "/sessions/reset", {"who": found})
    click.echo(f"session {found} begins its next message with no history; its workspace stays")


@sessions.command(name="restart")
@click.argument("session")
@click.pass_context
def restart(context: click.Context, session: str) -> None:
    """End the sandbox of SESSION; its next tool call starts another.

    A tool call that was under way is settled by its effect: done again where that is safe, else you are asked.
    """
    found = read(context.obj, lambda store: _found(store, session))["session_id"]
    order(context.obj, "/sessions/restart", {"who": found})
    click.echo(f"the sandbox of session {found} is ended; the next tool call starts another")


async def _found(store: StoreReader, given: str) -> Row:
    text = spelled(given)
    rows = await store.rows("session.starting", text, text + "~")
    if len(rows) == 1:
        return rows[0]
    if rows:
        raise BadInput(f"several sessions begin with {text}; give more of the id")
    raise BadInput(f"there is no session {text} in this journal; see `rucher sessions list`")


async def _last_run(store: StoreReader, row: Row) -> Row | None:
    rows = await store.rows("run.at_seq", row["last_run_seq"])
    return rows[0] if rows else None


def _session(row: Row, last: Row | None, instance: Instance) -> dict[str, Any]:
    return _facts(row, instance) | {"runs": row["runs"], "last_run": None if last is None else _run(last)}


def _facts(row: Row, instance: Instance) -> dict[str, Any]:
    folder = instance.sessions / row["session_id"]
    names = ("session_id", "tenant", "agent", "room", "thread", "state", "reason")
    return {name: row[name] for name in names} | {
        "reset": bool(row["reset_seq"]), "opened_at": iso(row["opened_at"]), "folder": str(folder),
        "on_disk": folder.is_dir(),
    }  # fmt: skip


def _run(row: Row) -> dict[str, Any]:
    facts = {"run_id": row["run_id"], "state": shown(row), "reason": row["reason"]}
    return facts | {"created_at": iso(row["created_at"])}


def _cells(session: Row) -> tuple[str, ...]:
    last = session["last_run"]
    where = session["room"] or "(all)", session["thread"] or "-"
    run = f"{short_id(last['run_id'])} {last['state']}" if last else "-"
    ids = short_id(session["session_id"]), session["agent"]
    return *ids, *where, session["state"], str(session["runs"]), run, short(session["reason"])
