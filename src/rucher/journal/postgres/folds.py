"""The shared statements, as PostgreSQL wants them, and the folding of events into views."""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import asyncpg

from rucher.journal.rows import Row
from rucher.journal.statements import for_postgres, named
from rucher.journal.views import MUST_CHANGE, changes
from rucher.protocol.errors import Exhausted


@cache
def statements(file: str) -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """The statements of a shared file by name, with the names of their parameters in order."""
    own = named("postgres/overrides.sql")
    return {name: for_postgres(own.get(name, sql)) for name, sql in named(file).items()}


def arguments(names: Sequence[str], parameters: Mapping[str, Any]) -> tuple[Any, ...]:
    """The parameters in order. PostgreSQL's texts hold no NUL, which JSON can bring: a replacement stands for it."""
    values = (parameters[name] for name in names)
    return tuple(value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in values)


async def fold(db: asyncpg.Connection, rows: Sequence[Row]) -> None:
    """Change the views as these events say, in order; raises Exhausted when a budget does not cover one."""
    known = statements("views.sql")
    folds = (change for row in rows for change in changes(row))
    for name, alike in groupby(folds, key=itemgetter(0)):
        sql, names = known[name]
        sets = [arguments(names, parameters) for _, parameters in alike]
        if name not in MUST_CHANGE:
            await db.executemany(sql, sets)
        elif len(await db.fetchmany(f"{sql} RETURNING 1", sets)) < len(sets):
            raise Exhausted("the budget does not cover it; nothing was done")
