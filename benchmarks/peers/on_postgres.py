"""What a peer's PostgreSQL database says of itself, read by a connection of its own through psycopg."""

import psycopg


def value(url: str, statement: str) -> int:
    """The one number that the statement returns."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement).fetchone()
    if row is None:
        raise SystemExit(f"no row: {statement}")
    return int(row[0])
