"""All about one hop, for a terminal or as JSON. Called by `rucher hops`, `deliveries` and `deadletters`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from rucher.cli.reading import find_hop
from rucher.cli.show import clean, document, event_row, iso, span, table
from rucher.control.hops import OPEN
from rucher.control.steps import short
from rucher.journal.store import StoreReader
from rucher.protocol.clock import SystemClock
from rucher.protocol.events import CONTROL_PLANE, Event

PARTS = ("PART", "STATE", "ATTEMPTS", "BEGAN", "CHANGED", "SAYS")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OneHop:
    """A hop: its row, the message that it carries, the parts of its delivery and what happened to it, in order."""

    row: Row
    event: Event | None
    parts: Sequence[Row]
    story: Sequence[Event]


async def gather(store: StoreReader, given: str) -> OneHop:
    """All about the hop whose id begins so; raises BadInput."""
    row = await find_hop(store, given)
    hop = row["hop_id"]
    trace = await store.trace(row["trace_id"])
    story = [event for event in trace if event.source == CONTROL_PLANE and hop in (event.id, event.body.get("hop"))]
    return OneHop(row, await store.event(row["event_id"]), await store.rows("deliveries.of_hop", hop), story)


def why(row: Row) -> str:
    """Why a hop is where it is."""
    if row["detail"]:
        return str(row["detail"])
    match row["state"]:
        case "made":
            return f"{row['dest']} has not taken it yet"
        case "sending":
            return f"{row['dest']} has not answered yet"
        case "acknowledged":
            return "its run has not ended"
        case _:
            return ""


def todo(row: Row) -> str:
    """What its owner can do about it; empty when there is nothing to do."""
    match row["state"]:
        case "uncertain":
            return f"rucher deliveries resolve {row['hop_id']} delivered | not-delivered"
        case "failed":
            return f"rucher deadletters retry {row['hop_id']}"
        case _:
            return ""


def hop_json(row: Row) -> dict[str, Any]:
    """A hop as commands print it as JSON; `since` is when it became what it is."""
    names = (
        "hop_id", "seq", "event_id", "trace_id", "rule_id", "dest", "mode", "session_id", "state", "attempts", "retries",
    )  # fmt: skip
    times = {"made_at": iso(row["made_at"]), "since": iso(row["updated_at"])}
    facts = {name: row[name] for name in names} | times
    return facts | {"open": row["state"] in OPEN, "why": why(row), "todo": todo(row)}


def part_json(row: Row) -> dict[str, Any]:
    """A part of a delivery as commands print it as JSON."""
    names = ("hop_id", "part", "parts", "surface", "state", "attempts", "detail", "receipt")
    times = {"began_at": iso(row["began_at"]), "since": iso(row["updated_at"])}
    return (
        {name: row[name] for name in names}
        | times
        | {"not_before": iso(row["not_before"]) if row["not_before"] else None}
    )


def show(hop: OneHop, *, as_json: bool) -> None:
    """Print it; what its owner can do comes last."""
    if as_json:
        carried = None if hop.event is None else event_row(hop.event)
        parts, story = [part_json(part) for part in hop.parts], [event_row(event) for event in hop.story]
        document(hop_json(hop.row) | {"event": carried, "parts": parts, "story": story})
        return
    for text in _head(hop):
        click.echo(clean(text))
    if hop.parts:
        click.echo()
        table(PARTS, [_part(part) for part in hop.parts])
    click.echo()
    for event in hop.story:
        told = {name: value for name, value in event.body.items() if name != "hop"}
        click.echo(clean(f"{iso(event.recorded_at)}  {event.type}  {short(told)}"))
    if command := todo(hop.row):
        click.echo(f"\nTo go on: {clean(command)}")


def _head(hop: OneHop) -> Iterator[str]:
    row = hop.row
    yield f"hop {row['hop_id']}  {row['state']}  {why(row)}".rstrip()
    age = span(max(0, SystemClock().now() - row["updated_at"]))
    yield f"to {row['dest']} by rule {row['rule_id']}, made {iso(row['made_at'])}, unchanged for {age}"
    yield f"trace {row['trace_id']}, event {row['event_id']}"
    if hop.event is None:
        yield "its message lies in the archive"
    else:
        yield f"{hop.event.type} from {hop.event.principal}: {short(hop.event.body.get('text', dict(hop.event.body)))}"


def _part(row: Row) -> tuple[str, ...]:
    number = f"{row['part']}/{row['parts']}" if row["part"] else "-"
    says = row["detail"] or row["receipt"]
    return number, row["state"], str(row["attempts"]), iso(row["began_at"]), iso(row["updated_at"]), short(says)
