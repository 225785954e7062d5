"""Named SQL, read once from the `.sql` files beside this module; the rest of the package speaks of statements by name."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_HEAD = re.compile(r"^-- name: (\S+)$", re.MULTILINE)
_SQL = files("rucher.journal") / "sql"


@cache
def named(file: str) -> Mapping[str, str]:
    """The statements of one file by name; each starts with a line `-- name: NAME`."""
    _, *parts = _HEAD.split((_SQL / file).read_text("utf-8"))
    return {name: sql.strip().rstrip(";") for name, sql in zip(parts[::2], parts[1::2], strict=True)}


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    """Every migration as (version, script), oldest first; version 1 makes an empty store."""
    scripts = (
        (entry.name, entry.read_text("utf-8")) for entry in _SQL.iterdir() if re.fullmatch(r"\d{4}\.sql", entry.name)
    )
    return tuple(sorted((int(name[:4]), script) for name, script in scripts))
