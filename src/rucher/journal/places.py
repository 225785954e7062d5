"""Where a store is and what can be said of it without opening it as one: its schema and its size.

Called by `rucher store`. It reads only, and never shows a password.
"""

import asyncio
import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from rucher.journal.sqlite.files import open_database, schema_of
from rucher.journal.statements import SCHEMA_VERSION, schema_fault
from rucher.journal.store import Place
from rucher.protocol.errors import BadInput

_URLS = ("postgres://", "postgresql://")
_KEYWORDS = re.compile(r"\b(host|hostaddr|dbname|user|password|service)\s*=")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is found at a place: `schema` is 0 where there is no store yet, `size` is bytes on disk."""

    kind: str
    place: str
    schema: int
    size: int

    @property
    def newer(self) -> BadInput | None:
        """Why this Rucher must leave it alone; None when it need not."""
        if self.schema <= SCHEMA_VERSION:
            return None
        return BadInput(schema_fault(self.place, self.schema))


def place_of(text: str) -> Place:
    """The place that a person names: a path, or the URL of a PostgreSQL database; raises BadInput for another URL."""
    if text.startswith(_URLS):
        return text
    if _KEYWORDS.search(text) and not Path(text).exists():
        raise BadInput("this is no path; give a PostgreSQL database as postgresql://USER@HOST:PORT/DATABASE")
    if "://" in text:
        scheme = text.partition("://")[0]
        raise BadInput(f"{scheme}:// is no store; give the path of a file, or postgresql://USER@HOST:PORT/DATABASE")
    return Path(text).absolute()


def shown(place: Place) -> str:
    """The place as it may be shown: without a password."""
    if isinstance(place, Path):
        return str(place)
    try:
        parts = urlsplit(place)
        if parts.fragment or "@" in parts.path + parts.query:
            return "the PostgreSQL URL"
        before, at, host = parts.netloc.rpartition("@")
        given = parse_qsl(parts.query)
        options = [(name, value) for name, value in given if "password" not in name.lower()]
        if ":" not in before and options == given:
            return place
        netloc = f"{before.partition(':')[0]}{at}{host}"
        return urlunsplit((parts.scheme, netloc, parts.path, urlencode(options, safe="/"), ""))
    except ValueError:
        return "the PostgreSQL URL"


async def facts_of(place: Place) -> Facts:
    """What is found there; raises BadInput or Corrupt when it is something else, Retryable when the server is away."""
    if isinstance(place, Path):
        schema, size = await asyncio.to_thread(_sqlite_facts, place)
        return Facts("sqlite", shown(place), schema, size)
    from rucher.journal.postgres.schema import facts  # noqa: PLC0415 - most instances never need the driver

    schema, size = await facts(place)
    return Facts("postgresql", shown(place), schema, size)


def _sqlite_facts(path: Path) -> tuple[int, int]:
    if not path.is_file():
        return 0, 0
    with closing(open_database(path, "ro")) as db:
        schema = schema_of(db)
    beside = (path, path.with_name(path.name + "-wal"))
    return schema, sum(file.stat().st_size for file in beside if file.exists())
