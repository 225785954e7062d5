"""`rucher groups`: the rooms that messages came from, and what becomes of unknown senders there."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from rucher.cli.client import order
from rucher.cli.reading import read
from rucher.cli.show import clean, document, iso, plain, table
from rucher.daemon.settings import find_instance, load_settings
from rucher.journal.store import StoreReader
from rucher.protocol.errors import BadInput

COLUMNS = ("GROUP", "NAME", "UNKNOWN SENDERS", "FIRST SEEN", "LAST SEEN")
MEANS = {"strict": "are dropped", "ask": "are held until you admit them", "public": "are heard"}
"""What becomes of unknown senders, by policy."""
_DAY = len("2027-01-31")
_MOST_SESSIONS = 1000
Row = Mapping[str, Any]


@click.group(name="groups")
def groups() -> None:
    """List the rooms. A ROOM is SURFACE:GROUP, as in cli:main."""


@groups.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def listed(context: click.Context, *, as_json: bool) -> None:
    """List all rooms that were seen or spoken of."""
    default = _default(context.obj)
    found = [_room(row, default) for row in read(context.obj, lambda store: store.rows("rooms.all"))]
    if as_json:
        document(found)
        return
    table(COLUMNS, [_cells(room) for room in found])


@groups.command(name="show")
@click.argument("room")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def show(context: click.Context, room: str, *, as_json: bool) -> None:
    """Show all about ROOM, with the sessions that agents have there."""

    async def work(store: StoreReader) -> tuple[Row, list[Row]]:
        rows = await store.rows("room.get", room)
        if not rows:
            raise BadInput(f"there is no group {room[:60]!r}; see `rucher groups list`")
        return rows[0], await store.rows("sessions.at_work", "", room, _MOST_SESSIONS)

    row, sessions = read(context.obj, work)
    found = _room(row, _default(context.obj)) | {"sessions": [session["session_id"] for session in sessions]}
    if as_json:
        document(found)
        return
    plain(f"{room}  {found['given_name']}".rstrip())
    plain(f"  first seen {_day(found['first_seen_at'])}, last seen {_day(found['last_seen_at'])}")
    plain(f"  unknown senders {MEANS[found['policy']]} ({_said(found)})")
    for session in sessions:
        plain(f"  session {session['session_id']}  agent {session['agent']}  thread {session['thread'] or '-'}")


@groups.command(name="name")
@click.argument("room")
@click.argument("name")
@click.pass_context
def name(context: click.Context, room: str, name: str) -> None:
    """Call ROOM by this NAME; with an empty one, by none."""
    order(context.obj, "/groups/name", {"who": room, "name": name})
    click.echo(clean(f"{room} is called {name}" if name else f"{room} has no name any more"))


@groups.command(name="policy")
@click.argument("room")
@click.argument("policy", type=click.Choice(["strict", "ask", "public", "default"]))
@click.pass_context
def policy(context: click.Context, room: str, policy: str) -> None:
    """Say what becomes of unknown senders in ROOM: dropped, held until you admit them, or heard."""
    order(context.obj, "/groups/policy", {"who": room, "policy": policy})
    seen = read(context.obj, lambda store: store.rows("room.get", room))[0]["first_seen_at"] is not None
    found = MEANS[_default(context.obj) if policy == "default" else policy]
    click.echo(clean(f"unknown senders in {room} {found}{'' if seen else '; nothing was said there yet'}"))


def _default(given: Path | None) -> str:
    return load_settings(find_instance(given)).instance.unknown_senders


def _room(row: Row, default: str) -> dict[str, Any]:
    """A room as JSON; `policy` is what is in force there, `own_policy` whether the room says so itself."""
    seen = {name: None if row[name] is None else iso(row[name]) for name in ("first_seen_at", "last_seen_at")}
    policy = {"policy": row["policy"] or default, "own_policy": bool(row["policy"])}
    return {"room": row["room"], "given_name": row["given_name"], **policy, **seen}


def _cells(room: Row) -> tuple[str, ...]:
    seen = _day(room["first_seen_at"]), _day(room["last_seen_at"])
    return room["room"], room["given_name"], f"{room['policy']} ({_said(room)})", *seen


def _said(room: Row) -> str:
    return "its own policy" if room["own_policy"] else "by default"


def _day(moment: str | None) -> str:
    return moment[:_DAY] if moment else "never"
