"""`rucher schedules`: what is said when, what came of it, and the owner's orders about it.

What is listed is read from the file and the journal, whether the daemon runs or not; orders go to the daemon.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import click

from rucher.cli.client import Daemon
from rucher.cli.reading import LAST_SEQ, MOST_ROWS, read
from rucher.cli.show import clean, document, iso, plain, table
from rucher.control.steps import short
from rucher.daemon.rulebook import destinations
from rucher.daemon.settings import find_instance, load_settings, store_place
from rucher.daemon.timetable import open_schedules
from rucher.instance.agents import load_agents
from rucher.instance.layout import Instance
from rucher.instance.text import text_of
from rucher.journal.store import StoreReader
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.errors import BadInput
from rucher.protocol.ids import ulid
from rucher.surfaces.schedules.due import next_planned
from rucher.surfaces.schedules.parse import warnings
from rucher.surfaces.schedules.plan import Plan, Schedule
from rucher.surfaces.schedules.times import micros, moment, moments, shown

COLUMNS = ("ID", "WHEN", "ZONE", "NEXT", "STATE", "LAST", "TO", "TEXT")
FIRE_COLUMNS = ("PLANNED", "SCHEDULE", "STATE", "TIMES", "LATE", "EVENT", "BY", "SAYS")
NEXT_COLUMNS = ("PLANNED", "UTC", "ID")
Row = Mapping[str, Any]
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(name="schedules")
def schedules() -> None:
    """List, check, pause or fire what is said by the clock."""


@schedules.command(name="list")
@AS_JSON
@click.pass_context
def listed(context: click.Context, *, as_json: bool) -> None:
    """List the schedules, with when each fires next and what came of it last."""
    plan = _plan(find_instance(context.obj))
    stand = _standing(context)
    rows = [_facts(one, stand, SystemClock().now()) for one in plan.schedules]
    if as_json:
        document(rows)
        return
    table(COLUMNS, [_cells(row) for row in rows])


@schedules.command(name="show")
@click.argument("name", metavar="ID")
@AS_JSON
@click.pass_context
def show(context: click.Context, name: str, *, as_json: bool) -> None:
    """Show all about one schedule: what the file says, its next times, and what came of the last."""
    one = _one(_plan(find_instance(context.obj)), name)
    stand = _standing(context)
    statement = "fires.of_schedule_before", name, LAST_SEQ, 10
    fires = read(context.obj, lambda store: store.rows(*statement)) if stand[0] else []
    now = SystemClock().now()
    facts = _facts(one, stand, now)
    facts["upcoming"] = [iso(at) for at in islice(moments(one.timing, now), 5)] if facts["next"] else []
    if as_json:
        document(facts | {"fires": [_fire_json(row) for row in fires]})
        return
    for key, value in facts.items():
        if value and key != "last":
            click.echo(clean(f"{key:<11} {', '.join(value) if isinstance(value, list) else value}"))
    click.echo()
    _show_fires(fires, {name: one.timing.zone})


@schedules.command(name="check")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.pass_context
def check(context: click.Context, file: Path | None) -> None:
    """Say whether FILE (the instance's own, if none is given) would be taken, as a daemon would; changes nothing."""
    instance = find_instance(context.obj)
    path = file or instance.schedules
    if file is not None:
        text_of(file, "put the schedules file there")
    plan = _plan(instance, path)
    click.echo(clean(f"{path}: good, {len(plan.schedules)} schedules, version {plan.version[:12]}"))
    for warning in warnings(plan, SystemClock().now()):
        click.echo(clean(f"warning: {warning}"))


@schedules.command(name="next")
@click.argument("name", metavar="[ID]", required=False)
@click.option("-n", "count", default=10, show_default=True, type=click.IntRange(1, 10_000), help="How many times.")
@AS_JSON
@click.pass_context
def upcoming(context: click.Context, name: str | None, *, count: int, as_json: bool) -> None:
    """List the next planned times of all schedules, or of ID."""
    plan = _plan(find_instance(context.obj))
    chosen = [_one(plan, name)] if name else plan.schedules
    now = SystemClock().now()
    times = sorted(
        (at, one.id, one.timing.zone) for one in chosen if one.enabled for at in islice(moments(one.timing, now), count)
    )[:count]
    if as_json:
        document([{"schedule": owner, "planned_at": iso(at), "zone": zone} for at, owner, zone in times])
        return
    table(NEXT_COLUMNS, [(shown(at, zone), iso(at)[:19] + "Z", owner) for at, owner, zone in times])


@schedules.command(name="fires")
@click.argument("name", metavar="[ID]", required=False)
@click.option("--limit", default=30, show_default=True, type=click.IntRange(1, MOST_ROWS), help="The most to list.")
@AS_JSON
@click.pass_context
def fires(context: click.Context, name: str | None, *, limit: int, as_json: bool) -> None:
    """List what came of the planned times of all schedules, or of ID, newest first."""
    statement = ("fires.of_schedule_before", name, LAST_SEQ, limit) if name else ("fires.before", LAST_SEQ, limit)
    rows = read(context.obj, lambda store: store.rows(*statement))
    if as_json:
        document([_fire_json(row) for row in rows])
        return
    _show_fires(rows, {one.id: one.timing.zone for one in _plan(find_instance(context.obj)).schedules})


@schedules.command(name="pause")
@click.argument("name", metavar="ID")
@click.pass_context
def pause(context: click.Context, name: str) -> None:
    """Let ID not fire until it is resumed; what is due meanwhile is not made up."""
    _order(context, name, "pause")
    click.echo(clean(f"{name} does not fire; let it fire again with: rucher schedules resume {name}"))


@schedules.command(name="resume")
@click.argument("name", metavar="ID")
@click.pass_context
def resume(context: click.Context, name: str) -> None:
    """Let ID, which was paused, fire again."""
    _order(context, name, "resume")
    planned = next_planned(_one(_plan(find_instance(context.obj)), name), SystemClock().now())
    then = "; it has no time to come" if planned is None else f", next at {iso(planned)}"
    click.echo(clean(f"{name} fires again{then}"))


@schedules.command(name="run")
@click.argument("name", metavar="ID")
@AS_JSON
@click.pass_context
def fire_now(context: click.Context, name: str, *, as_json: bool) -> None:
    """Fire ID once, now, whatever the clock and its gate say; its planned times stay."""
    fired = _order(context, name, "run")
    if as_json:
        document(fired)
    else:
        click.echo(clean(f"{name} fired; see what it causes: rucher trace {fired['trace_id']}"))


@schedules.command(name="propose")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--why", default="", help="The reason; kept with the proposal.")
@click.pass_context
def propose(context: click.Context, file: Path, why: str) -> None:
    """Propose the one [[schedule]] table in FILE, as agents do."""
    body = {"key": _key(), "text": text_of(file, "put the proposal there"), "why": why}
    number = _call(context, "proposals", body)["proposal"]
    click.echo(f"proposal {number} waits; take it with: rucher schedules apply {number}")


@schedules.command(name="proposals")
@AS_JSON
@click.pass_context
def proposals(context: click.Context, *, as_json: bool) -> None:
    """List the schedules that agents propose and nobody decided about."""
    rows = read(context.obj, lambda store: store.rows("schedule.proposals"))
    if as_json:
        document(
            [
                {
                    "number": row["seq"],
                    "by": row["principal"],
                    "at": iso(row["at"]),
                    "why": row["why"],
                    "text": row["text"],
                }
                for row in rows
            ]
        )
        return
    for row in rows:
        click.echo(clean(f"{row['seq']}  {row['principal']}  {iso(row['at'])}  {row['why']}"))
        plain(row["text"].rstrip("\n") + "\n")


@schedules.command(name="apply")
@click.argument("number", type=click.IntRange(1, LAST_SEQ))
@click.pass_context
def apply(context: click.Context, number: int) -> None:
    """Take proposal NUMBER: its table is added to schedules.toml, whose other bytes stay."""
    _call(context, f"proposals/{number}/apply")
    click.echo(f"proposal {number} stands in {clean(str(find_instance(context.obj).schedules))} now")


@schedules.command(name="refuse")
@click.argument("number", type=click.IntRange(1, LAST_SEQ))
@click.pass_context
def refuse(context: click.Context, number: int) -> None:
    """Put proposal NUMBER away."""
    _call(context, f"proposals/{number}/refuse")
    click.echo(f"proposal {number} is put away; the file stays as it is")


def _plan(instance: Instance, path: Path | None = None) -> Plan:
    known = destinations(load_agents(instance.agents))
    return open_schedules(instance, load_settings(instance), lambda: known, path).current


def _one(plan: Plan, name: str) -> Schedule:
    found = plan.schedule(name)
    if found is None:
        raise BadInput(f"there is no schedule {name[:60]!r} in {plan.path}; see `rucher schedules list`")
    return found


def _standing(context: click.Context) -> tuple[dict[str, Row], dict[str, Row]]:
    """Where each schedule stands; before the first start nowhere, and the file can be looked at nevertheless."""
    instance = find_instance(context.obj)
    place = store_place(instance, load_settings(instance))
    if isinstance(place, Path) and not place.exists():
        return {}, {}
    return read(context.obj, _stand)


async def _stand(store: StoreReader) -> tuple[dict[str, Row], dict[str, Row]]:
    """Where each schedule stands, and what came of each last, as the journal knows it."""
    rows, last = await store.rows("schedules.all"), await store.rows("fires.last_of_each")
    return {row["schedule"]: row for row in rows}, {row["schedule"]: row for row in last}


def _facts(one: Schedule, stand: tuple[dict[str, Row], dict[str, Row]], now: int) -> dict[str, Any]:
    row, last = stand[0].get(one.id), stand[1].get(one.id)
    planned = next_planned(one, now)
    state = "on" if planned is not None else "over"
    if row is not None and row["paused"]:
        state = "paused"
    elif not one.enabled:
        state = "off"
    return {
        "id": one.id, "when": one.timing.cron or _wall(one.timing.at or 0, one.timing.zone), "zone": one.timing.zone,
        "state": state, "next": iso(planned) if planned is not None and state == "on" else "", "to": one.to, "room": one.room,
        "thread": one.thread, "misfire": one.misfire.value, "catch_up": one.catch_up, "within_s": one.within_s,
        "jitter_s": one.jitter_s, "gate": one.gate, "gate_fails": one.gate_fails.value, "text": one.text,
        "last": None if last is None else _fire_json(last),
    }  # fmt: skip


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    last = row["last"]
    following = _wall(micros(datetime.fromisoformat(row["next"])), row["zone"]) if row["next"] else "-"
    return (
        row["id"], row["when"], row["zone"], following, row["state"],
        f"{last['state']} {last['planned_at'][:16]}Z" if last else "-", row["to"] or "the rules", short(row["text"]),
    )  # fmt: skip


def _show_fires(rows: Sequence[Row], zones: Mapping[str, str]) -> None:
    table(FIRE_COLUMNS, [_fire_cells(row, zones.get(row["schedule"], "UTC")) for row in rows])


def _fire_cells(row: Row, zone: str) -> tuple[str, ...]:
    late = f"{row['late_us'] / 1e6:.0f} s" if row["late_us"] else "-"
    said = row["event_id"] or "-", row["by_whom"] or "-", short(row["detail"])
    return (_wall(row["planned_at"], zone), row["schedule"], row["state"], str(row["times"]), late, *said)


def _wall(us: int, zone: str) -> str:
    """A moment on the wall clock of a zone, with its offset."""
    return moment(us).astimezone(ZoneInfo(zone)).isoformat(" ", "seconds")


def _fire_json(row: Row) -> dict[str, Any]:
    return {
        "schedule": row["schedule"], "planned_at": iso(row["planned_at"]), "state": row["state"],
        "first_at": iso(row["first_at"]), "times": row["times"], "late_us": row["late_us"], "event_id": row["event_id"],
        "by": row["by_whom"], "detail": row["detail"], "at": iso(row["at"]),
    }  # fmt: skip


def _order(context: click.Context, name: str, order: str) -> dict[str, Any]:
    """An order under a key of its own, so that the daemon obeys it once however often it arrives."""
    _one(_plan(find_instance(context.obj)), name)
    return _call(context, f"{name}/{order}", {"key": _key()})


def _call(context: click.Context, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    with Daemon(find_instance(context.obj)) as daemon:
        return daemon.call("POST", f"/schedules/{path}", json=body)


def _key() -> str:
    return ulid(SystemClock().now(), SystemEntropy().bytes(10))
