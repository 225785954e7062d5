"""The shared statements, as PostgreSQL wants them, and the folding of events into views by one function in the database.

The function holds every statement of views.sql and obeys those that it is told, in order, so that what a batch changes in the
views goes to the server with the batch itself. `schema.make_views` makes it; the insert statement and rebuilding call it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import asyncpg

from rucher.journal.postgres.link import EXHAUSTED
from rucher.journal.rows import Row
from rucher.journal.statements import for_postgres, named
from rucher.journal.views import MUST_CHANGE, changes

INTEGERS = frozenset({
    "amount", "at", "attempt", "bytes", "ceiling", "due_at", "engine_version", "first_at", "input_tokens", "item", "late_us",
    "nanodollars", "not_before", "output_tokens", "part", "parts", "planned_at", "priority", "proposal", "released", "seq",
    "times", "unpriced",
})  # fmt: skip
"""The parameters of views.sql that are numbers; all others are texts."""

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@cache
def statements(file: str) -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """The statements of a shared file by name, with the names of their parameters in order."""
    own = named("postgres/overrides.sql")
    return {name: for_postgres(own.get(name, sql)) for name, sql in named(file).items()}


def arguments(names: Sequence[str], parameters: Mapping[str, Any]) -> tuple[Any, ...]:
    """The parameters in order. PostgreSQL's texts hold no NUL, which JSON can bring: a replacement stands for it."""
    return tuple(_storable(parameters[name]) for name in names)


def folds_of(rows: Sequence[Row]) -> str | None:
    """What `rucher_fold` is told of these rows, as JSON; None when they change no view.

    An event whose own number is not known yet has minus its place among those that are committed with it.
    """
    folds = [
        (name, {each: _storable(value) for each, value in parameters.items()})
        for row in rows
        for name, parameters in changes(row)
    ]
    return _encode(folds) if folds else None


async def fold(db: asyncpg.Connection, rows: Sequence[Row]) -> None:
    """Change the views as these numbered events say, in order; fails with EXHAUSTED when a budget does not cover one."""
    if folds := folds_of(rows):
        await db.execute("SELECT rucher_fold(0, $1)", folds)


@cache
def function_body() -> str:
    """The function's body in PL/pgSQL. Names of columns win over its own, which are therefore always told in full."""
    cases = "\n".join(_case(name, *statement) for name, statement in statements("views.sql").items())
    return f"""
#variable_conflict use_column
<<one>>
DECLARE
    fold JSONB;
    told JSONB;
BEGIN
    FOR place IN 0 .. jsonb_array_length(rucher_fold.folds) - 1 LOOP
        one.fold := rucher_fold.folds -> place;
        one.told := one.fold -> 1;
        CASE one.fold ->> 0
{cases}
        END CASE;
    END LOOP;
END"""


def function() -> str:
    """The statement that makes the function, or makes it anew: `rucher_fold(before, folds)`, where `before` was the head."""
    return (
        "CREATE OR REPLACE FUNCTION rucher_fold(before BIGINT, folds JSONB) RETURNS VOID "
        f"LANGUAGE plpgsql STRICT AS $fold${function_body()}$fold$"
    )


def _case(name: str, sql: str, names: Sequence[str]) -> str:
    statement = re.sub(r"\$(\d+)", lambda found: _value(names[int(found[1]) - 1]), sql)
    demand = f"\nIF NOT FOUND THEN RAISE EXCEPTION '{name}' USING ERRCODE = '{EXHAUSTED}'; END IF;"
    return f"WHEN '{name}' THEN\n{statement};{demand if name in MUST_CHANGE else ''}"


def _value(name: str) -> str:
    text = f"(one.told ->> '{name}')"
    if name not in INTEGERS:
        return text
    number = f"{text}::BIGINT"
    return f"(CASE WHEN {number} < 0 THEN rucher_fold.before - {number} ELSE {number} END)" if name == "seq" else number


def _storable(value: object) -> str | int | None:
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if value is None or isinstance(value, int):
        return value
    raise TypeError(f"{value!r} is neither a text nor a whole number")
