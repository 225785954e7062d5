"""Named SQL, read once from the `.sql` files beside this module; the rest of the package speaks of statements by name.

Statements are written once, for SQLite, in words that PostgreSQL knows too. What the two spell differently is the names of
types and of parameters, which `for_postgres` replaces.
"""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_HEAD = re.compile(r"^-- name: (\S+)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)|\?|'[^']*'")
_TYPES = (("INTEGER", "BIGINT"), ("TEXT", 'TEXT COLLATE "C"'), (") STRICT", ")"))
_CHECK = re.compile(r"\s*CHECK \((?:[^()]|\([^()]*\))*\)")
_SQL = Path(__file__).with_name("sql")


@cache
def named(file: str) -> Mapping[str, str]:
    """The statements of one file by name; each starts with a line `-- name: NAME`."""
    _, *parts = _HEAD.split((_SQL / file).read_text("utf-8"))
    return {name: sql.strip().rstrip(";") for name, sql in zip(parts[::2], parts[1::2], strict=True)}


@cache
def migrations(dialect: str) -> tuple[tuple[int, str], ...]:
    """Every migration of one database as (version, script), oldest first; the first one makes an empty store."""
    scripts = (
        (entry.name, entry.read_text("utf-8"))
        for entry in (_SQL / dialect).iterdir()
        if re.fullmatch(r"\d{4}\.sql", entry.name)
    )
    return tuple(sorted((int(name[:4]), script) for name, script in scripts))


SCHEMA_VERSION = migrations("sqlite")[-1][0]
"""What this Rucher writes; the same number means the same tables on both databases."""
USE_NEWER = "use the newer Rucher that wrote it"


def schema_fault(place: object, schema: int) -> str:
    """Why a store with another schema than this Rucher's cannot be used as it is, and what to do."""
    todo = USE_NEWER if schema > SCHEMA_VERSION else "migrate it with `rucher store migrate`"
    return f"{place} has schema {schema}, this Rucher reads and writes {SCHEMA_VERSION}; {todo}"


@cache
def view_tables() -> tuple[tuple[str, ...], str]:
    """The statements that make all view tables, and a mark that changes whenever they do."""
    script = re.sub(r"^--.*$", "", (_SQL / "tables.sql").read_text("utf-8"), flags=re.MULTILINE)
    statements = tuple(part.strip() for part in script.split(";") if part.strip())
    return statements, hashlib.sha256("\n".join(statements).encode()).hexdigest()[:16]


def for_postgres(statement: str) -> tuple[str, tuple[str, ...]]:
    """A statement with `$1`, `$2`, ... for its parameters, and their names in that order (empty names for `?`)."""
    names: list[str] = []

    def numbered(found: re.Match[str]) -> str:
        text = found[0]
        if text.startswith("'"):
            return text
        if text == "?":
            names.append("")
            return f"${len(names)}"
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return _PARAMETER.sub(numbered, statement), tuple(names)


def tables_for_postgres(script: str) -> str:
    """A script of table definitions with PostgreSQL's names for the types; texts compare by their bytes, as in SQLite.

    Without its checks, which PostgreSQL would compile anew for each statement: only folds write these tables, and SQLite's
    are written by the same ones.
    """
    script = _CHECK.sub("", script)
    for ours, theirs in _TYPES:
        script = re.sub(rf"\b{re.escape(ours)}\b" if ours.isalpha() else re.escape(ours), theirs, script)
    return script
