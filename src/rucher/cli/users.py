"""`rucher users`: who was seen or spoken of, what each is here, and whose messages wait for the owner's word.

Reading looks into the journal; an order goes to the daemon, which decides.
"""

from collections.abc import Mapping
from typing import Any

import click

from rucher.cli.client import order
from rucher.cli.reading import read
from rucher.cli.show import clean, document, iso, plain, short_id, table
from rucher.control.steps import short
from rucher.journal.store import StoreReader
from rucher.protocol.errors import BadInput

COLUMNS = ("PRINCIPAL", "NAME", "ROLES", "FIRST SEEN", "LAST SEEN", "HELD")
HELD_COLUMNS = ("EVENT", "PRINCIPAL", "GROUP", "HELD SINCE", "TEXT")
_DAY, _SECOND = len("2027-01-31"), len("2027-01-31T08:00:00")
Row = Mapping[str, Any]


@click.group(name="users")
def users() -> None:
    """Say who is who. A PRINCIPAL is user:SURFACE:NAME, as in user:telegram:ana."""


@users.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def listed(context: click.Context, *, as_json: bool) -> None:
    """List all users that were seen or spoken of."""
    found = read(context.obj, _all)
    if as_json:
        document(found)
        return
    table(COLUMNS, [_cells(user) for user in found])


@users.command(name="show")
@click.argument("principal")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def show(context: click.Context, principal: str, *, as_json: bool) -> None:
    """Show all about PRINCIPAL, with the messages of theirs that wait."""
    user = read(context.obj, lambda store: _one(store, principal))
    if as_json:
        document(user)
        return
    plain(f"{user['principal']}  {_called(user)}".rstrip())
    plain(
        f"  first seen {_day(user['first_seen_at'])}, last seen {_day(user['last_seen_at'])}, group {user['room'] or '-'}"
    )
    if user["blocked"]:
        plain(f"  blocked; undo with: rucher users unblock {principal}")
    for role in user["roles"]:
        where = f"with agent {role['agent']}" if role["agent"] else "with all agents"
        plain(f"  {role['role']} {where}, granted {_day(role['granted_at'])} by {role['granted_by']}")
    if not user["roles"] and not user["blocked"]:
        plain(f"  no role; grant one with: rucher users grant {principal} member")
    for held in user["held"]:
        plain(f'  held: {held["event_id"]}  "{short(held["text"])}"')


@users.command(name="held")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def held(context: click.Context, *, as_json: bool) -> None:
    """List the messages of unknown senders that wait for your word, oldest first."""
    found = read(context.obj, lambda store: _held(store, ""))
    if as_json:
        document(found)
        return
    table(HELD_COLUMNS, [_held_cells(row) for row in found])


@users.command(name="name")
@click.argument("principal")
@click.argument("name")
@click.pass_context
def name(context: click.Context, principal: str, name: str) -> None:
    """Call PRINCIPAL by this NAME; with an empty one, as their surface does."""
    order(context.obj, "/users/name", {"who": principal, "name": name})
    click.echo(clean(f"{principal} is called {name}" if name else f"{principal} has no name of yours any more"))


@users.command(name="grant")
@click.argument("principal")
@click.argument("role", type=click.Choice(["owner", "admin", "member"]))
@click.option("--agent", default="", help="With this agent only, instead of with all.")
@click.pass_context
def grant(context: click.Context, principal: str, role: str, agent: str) -> None:
    """Give PRINCIPAL a ROLE; messages of theirs that were held go on."""
    told = order(context.obj, "/users/grant", {"who": principal, "role": role, "agent": agent})
    where = f" with agent {agent}" if agent else ""
    click.echo(clean(f"{principal} is {role}{where}{_released(told)}"))


@users.command(name="admit")
@click.argument("principal")
@click.pass_context
def admit(context: click.Context, principal: str) -> None:
    """Make PRINCIPAL, who was seen, a member; messages of theirs that were held go on."""
    told = order(context.obj, "/users/admit", {"who": principal})
    click.echo(clean(f"{principal} is member{_released(told)}"))


@users.command(name="revoke")
@click.argument("principal")
@click.option("--agent", default="", help="The role with this agent, instead of the one with all.")
@click.pass_context
def revoke(context: click.Context, principal: str, agent: str) -> None:
    """Take PRINCIPAL's role away."""
    order(context.obj, "/users/revoke", {"who": principal, "agent": agent})
    where = f" with agent {agent}" if agent else ""
    click.echo(clean(f"{principal} has no role{where} any more"))


@users.command(name="block")
@click.argument("principal")
@click.pass_context
def block(context: click.Context, principal: str) -> None:
    """Hear PRINCIPAL no more, and take all roles away; messages of theirs that were held are dropped."""
    told = order(context.obj, "/users/block", {"who": principal})
    dropped = f"; held messages that are dropped: {told['dropped']}" if told.get("dropped") else ""
    click.echo(clean(f"{principal} is blocked{dropped}"))


@users.command(name="unblock")
@click.argument("principal")
@click.pass_context
def unblock(context: click.Context, principal: str) -> None:
    """Treat PRINCIPAL as any other unknown sender again."""
    order(context.obj, "/users/unblock", {"who": principal})
    click.echo(clean(f"{principal} is not blocked any more, and has no role"))


def _released(told: Row) -> str:
    return f"; held messages that go on: {told['released']}" if told.get("released") else ""


async def _all(store: StoreReader) -> list[dict[str, Any]]:
    roles: dict[str, list[Row]] = {}
    for row in await store.rows("roles.all"):
        roles.setdefault(row["principal"], []).append(row)
    held: dict[str, int] = {}
    for row in await store.rows("held.all"):
        held[row["principal"]] = held.get(row["principal"], 0) + 1
    return [
        _user(row, roles.get(row["principal"], ())) | {"held": held.get(row["principal"], 0)}
        for row in await store.rows("users.all")
    ]


async def _one(store: StoreReader, principal: str) -> dict[str, Any]:
    rows = await store.rows("user.get", principal)
    if not rows:
        raise BadInput(f"there is no user {principal[:60]!r}; see `rucher users list`")
    return _user(rows[0], await store.rows("roles.of", principal)) | {"held": await _held(store, principal)}


async def _held(store: StoreReader, principal: str) -> list[dict[str, Any]]:
    """The held messages of one sender, or of all where that is empty."""
    rows = await store.rows("held.of", principal) if principal else await store.rows("held.all")
    found = []
    for row in rows:
        event = await store.event(row["event_id"])
        text = str(event.body.get("text", "")) if event else ""
        facts = {name: row[name] for name in ("event_id", "seq", "principal", "room", "reason")}
        found.append(facts | {"held_at": iso(row["held_at"]), "text": text})
    return found


def _user(row: Row, roles: Any) -> dict[str, Any]:
    facts = {name: row[name] for name in ("principal", "name", "given_name", "room")}
    granted = [
        {name: role[name] for name in ("agent", "role", "granted_by")} | {"granted_at": iso(role["granted_at"])}
        for role in roles
    ]
    seen = {name: None if row[name] is None else iso(row[name]) for name in ("first_seen_at", "last_seen_at")}
    return facts | seen | {"blocked": bool(row["blocked"]), "roles": granted}


def _cells(user: Row) -> tuple[str, ...]:
    roles = ", ".join(f"{role['role']}@{role['agent']}" if role["agent"] else role["role"] for role in user["roles"])
    what = "blocked" if user["blocked"] else roles or "-"
    seen = _day(user["first_seen_at"]), _day(user["last_seen_at"])
    return user["principal"], _called(user), what, *seen, str(user["held"] or "")


def _held_cells(row: Row) -> tuple[str, ...]:
    return short_id(row["event_id"]), row["principal"], row["room"], row["held_at"][:_SECOND], short(row["text"])


def _called(user: Row) -> str:
    return str(user["given_name"] or user["name"])


def _day(moment: str | None) -> str:
    """The day of a moment, as no more than that is known of when somebody was last seen."""
    return moment[:_DAY] if moment else "never"
