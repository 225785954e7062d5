"""Connecting to the server: the URL as it may be shown, a connection with this store's settings, its errors' consequences.

Used by every part of the PostgreSQL adapter. The URL's password is never shown, nor any text that could hold a part of it.
"""

import asyncio
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qs

import asyncpg
from typing_extensions import override

from rucher.protocol.errors import BadInput, Corrupt, Exhausted, Retryable, RucherError

CONNECT_S = 10.0
"""How long a connection may take to come about."""
ANSWER_S = 30.0
"""How long one statement may take; one that takes longer is treated as if the connection had been cut."""
OLDEST_SERVER = 15
EXHAUSTED = "RU001"
"""The SQLSTATE by which folding says that a budget does not cover what an event asks for."""

_HOST = r"(?:[\w.-]*|\[[0-9a-fA-F:]+\])(?::\d+)?"
_SHOWN = re.compile(rf"postgres(?:ql)?://(?:([^:@/?#]*)(?::.*)?@)?({_HOST}(?:,{_HOST})*)(/[^?@]*)?(?:\?([^@]*))?")
"""A URL of which it is sure where its password begins and ends; one with a stray `@` or `:` is not shown at all."""

_ALWAYS = {"default_transaction_isolation": "read committed"}
"""Whatever the database prefers: under a stricter level two who commit at once fail each other."""
_WRITING = {
    "synchronous_commit": "on",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "idle_in_transaction_session_timeout": "10s",  # a writer that stands still must not hold up all others
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
_READING = {"jit": "off"}
_ONLY_READ = "SET default_transaction_read_only = on"
"""Said once connected: a URL with `target_session_attrs=read-write` finds no server for one who connects in order to read."""
_LISTENING = {"synchronous_commit": "off"}  # what it commits is a ring of the bell

_REFUSED = frozenset({"20", "21", "22", "23", "54", "P0"})
"""Classes of SQLSTATE by which the server refuses what it was told: 54 is a value too long for an index, say."""
_SERVERS = frozenset({"08", "25", "28", "40", "53", "55", "57", "58", "F0", "XX"})
"""Classes of SQLSTATE that say nothing about what was asked: how the server, its disk and its other clients are just now."""
_LOST = (
    OSError,
    TimeoutError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
)
DRIVER_ERRORS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Whatever the driver raises that is the server's, the network's or its own fault."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is; `str` of it is fit to be shown."""

    url: str = field(repr=False)

    @override
    def __str__(self) -> str:
        found = _SHOWN.fullmatch(self.url)
        if found is None:
            return "the PostgreSQL URL"
        user, hosts, path, query = (part or "" for part in found.groups())
        asked = parse_qs(query)
        if not hosts and "host" in asked:
            hosts = ":".join(asked[name][-1] for name in ("host", "port") if name in asked)
        return f"postgresql://{user}{'@' if user else ''}{hosts}{path}"

    async def read(self) -> asyncpg.Connection:
        """A connection for reading; raises BadInput or Retryable."""
        db = await self._connect("rucher reader", _READING)
        try:
            await db.execute(_ONLY_READ, timeout=ANSWER_S)
        except DRIVER_ERRORS as error:
            db.terminate()
            raise self.away(error) from error
        except BaseException:
            db.terminate()
            raise
        return db

    async def write(self, name: str = "rucher writer") -> asyncpg.Connection:
        """A connection for writing, known to the server as `name`; raises BadInput or Retryable."""
        return await self._connect(name, _WRITING)

    async def listen(self) -> asyncpg.Connection:
        """A connection for hearing and ringing the bell; raises BadInput or Retryable."""
        return await self._connect("rucher bell", _LISTENING)

    async def _connect(self, name: str, settings: dict[str, str]) -> asyncpg.Connection:
        try:
            db = await asyncpg.connect(
                self.url, timeout=CONNECT_S, server_settings={"application_name": name, **_ALWAYS, **settings}
            )
        except (*DRIVER_ERRORS, ValueError, LookupError, OverflowError) as error:
            raise self._refused(error) from error
        if db.get_server_version().major < OLDEST_SERVER:
            major = db.get_server_version().major
            db.terminate()
            raise BadInput(f"{self} is PostgreSQL {major}; Rucher needs {OLDEST_SERVER} or newer: upgrade the server")
        return db

    def _refused(self, error: Exception) -> RucherError:
        match error:
            case asyncpg.InvalidAuthorizationSpecificationError():
                return BadInput(f"PostgreSQL refuses to log in at {self}; check the user, the password and pg_hba.conf")
            case asyncpg.InvalidCatalogNameError():
                return BadInput(f"there is no database at {self}; make it with `createdb`, or correct the URL")
            case asyncpg.InsufficientPrivilegeError():
                return BadInput(f"the user may not connect to {self}; grant CONNECT on the database")
            case asyncpg.ClientConfigurationError() | LookupError() | UnicodeError():
                return _not_a_url(self)
            case OSError() | asyncpg.PostgresError() | asyncpg.InterfaceError() | asyncpg.InternalClientError():
                return self.away(error)
            case _:
                return _not_a_url(self)

    def named_by_consequence(self, error: Exception) -> Exception:
        """The error as the rest of Rucher knows it."""
        match error:
            case RucherError():
                pass
            case asyncpg.PostgresError() if _is_refused(error):
                return _refusal(error)
            case ValueError() | TypeError() | OverflowError() | LookupError():
                return BadInput(f"an event cannot be stored: {error!r}")
            case asyncpg.InsufficientPrivilegeError():
                return BadInput(f"the user may not use the tables at {self} ({_line(error)}); make it their owner")
            case asyncpg.SyntaxOrAccessError() | asyncpg.DataCorruptedError() | asyncpg.IndexCorruptedError():
                return Corrupt(
                    f"{self} does not hold a journal as it should ({_line(error)}); put a backup in its place"
                )
            case _ if isinstance(error, DRIVER_ERRORS):
                return self.away(error)
            case _:
                pass
        return error

    def away(self, error: Exception) -> Retryable:
        """That the server cannot be used just now, and why."""
        return Retryable(
            f"PostgreSQL at {self} cannot be used just now ({_reason(error)}); see whether it runs and has room"
        )


def is_the_servers(error: Exception) -> bool:
    """Whether the error says how the server or the way to it is, and nothing about the unit that met it."""
    if isinstance(error, asyncpg.PostgresError):
        return _class_of(error) in _SERVERS
    return isinstance(error, DRIVER_ERRORS)


def is_lost(error: Exception, db: asyncpg.Connection) -> bool:
    """Whether the connection went, or is of no more use: then nothing tells whether the last statement was carried out."""
    return db.is_closed() or isinstance(error, _LOST)


def _is_refused(error: asyncpg.PostgresError) -> bool:
    """Whether the server refuses what an event holds or asks for."""
    return _class_of(error) in _REFUSED or error.sqlstate == EXHAUSTED


def _class_of(error: asyncpg.PostgresError) -> str:
    return (error.sqlstate or "")[:2]


def _refusal(error: asyncpg.PostgresError) -> RucherError:
    if error.sqlstate == EXHAUSTED:
        return Exhausted("the budget does not cover it; nothing was done")
    return BadInput(f"an event cannot be stored: {_line(error)}")


def _not_a_url(address: Address) -> BadInput:
    return BadInput(
        f"{address} cannot be understood; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with what is special in a "
        "password as %XX"
    )


def _reason(error: Exception) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        return error.strerror.lower() if error.strerror else "no connection"
    return _line(error)


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]
