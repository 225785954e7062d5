"""How commands print: tables for people, JSON for programs, and times.

Called by every command. Text from outside is data: nothing in it may steer a terminal or count as markup. `rich` is
imported only for a table on a terminal.
"""

import json
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from rucher.protocol.events import Event

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STEERING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that can steer a terminal or hide what stands there."""
_JOINERS = "\u200c\u200d"
"""Needed inside words of some scripts, and inside emoji."""
_SHORT_ID = 10
_GAP = "  "
_MINUTE, _HOUR, _DAY = 60, 3600, 86400

TONES = {
    "green": ("ok", "done", "delivered", "acknowledged", "answered"),
    "red": ("fail", "failed", "uncertain", "dropped", "stopped", "blocked", "cancelled", "budget_exhausted", "refused"),
    "yellow": (
        "warn",
        "waiting",
        "held",
        "unfinished",
        "open",
        "sending",
        "deferred",
        "retrying",
        "reopened",
        "partial",
    ),
}
_TONE_OF = {word: tone for tone, words in TONES.items() for word in words}


def clean(text: str, *, lines: bool = False) -> str:
    """The text with all that could steer a terminal shown as its escape; with `lines`, line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    kept = "\n\t" + _JOINERS if lines else _JOINERS
    return "".join(
        char if char in kept or unicodedata.category(char) not in _STEERING else _escape(char) for char in text
    )


def plain(text: str) -> None:
    """Print text from outside, over as many lines as it has."""
    click.echo(clean(text, lines=True))


def document(value: Any) -> None:
    """Print one JSON document, in ASCII so that no terminal and no encoding can spoil it."""
    click.echo(json.dumps(value, indent=2))


def line(value: Any) -> None:
    """Print one JSON document on one line."""
    click.echo(json.dumps(value, separators=(",", ":")))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of text from outside under their columns: fitted to a terminal, anywhere else whole and aligned."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(columns, cells)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in (columns, *cells):
        click.echo(_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def toned(text: str, state: str) -> str:
    """The text in the colour of a state; `click.echo` leaves colours out where there is no terminal."""
    tone = _TONE_OF.get(state)
    return click.style(text, fg=tone) if tone else text


def short_id(given: str | None) -> str:
    """An id short enough for a column on a terminal, whole anywhere else."""
    return (given or "")[: _SHORT_ID if sys.stdout.isatty() else None]


def iso(us: int) -> str:
    """Microseconds since the epoch as ISO 8601, UTC."""
    return (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def span(us: int) -> str:
    """A time span for people, to three figures."""
    seconds = us / 1_000_000
    if abs(seconds) < 1:
        return f"{us / 1000:.1f} ms"
    if seconds < _MINUTE:
        return f"{seconds:.2f} s"
    for unit, size in (("d", _DAY), ("h", _HOUR)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / _MINUTE:.0f} min"


def event_row(event: Event) -> Mapping[str, Any]:
    """An event as commands print it as JSON."""
    return {
        "seq": event.seq,
        "id": event.id,
        "subject": event.subject,
        "tenant": event.tenant,
        "source": event.source,
        "type": event.type,
        "principal": event.principal,
        "trust": event.trust.word,
        "addressed_to": event.addressed_to,
        "trace_id": event.trace_id,
        "parent_id": event.parent_id,
        "occurred_at": iso(event.occurred_at),
        "recorded_at": iso(event.recorded_at),
        "run": None if event.run is None else {"id": event.run.run_id, "seq": event.run.seq, "fence": event.run.fence},
        "body": dict(event.body),
    }


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _rich_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        shown.add_column(column, overflow="ellipsis", no_wrap=True)
    for row in rows:
        shown.add_row(*(Text(cell, style=_TONE_OF.get(cell, "")) for cell in row))
    Console().print(shown)
