"""A disk beneath SQLite that fails at a chosen write: it loses power, is full, or reports an error. Deterministic.

`Disk` is a virtual file system of the package `apsw`, which carries an SQLite of its own. `Disk.connect` gives a connection
with the part of `sqlite3.Connection` that the journal uses. After a power cut, `Disk.aftermath` writes the files as the cut
left them: what was synced is there, and each later write is kept, dropped or torn, by a seed.
"""

import itertools
import random
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, cast

import apsw
from typing_extensions import override

SECTOR = 512
NEVER = 1 << 60
DROP_ALL, KEEP_ALL = 0, 1
"""Two seeds with a meaning of their own: nothing that was not synced survives, or all of it does."""

_names = (f"failing-{number}" for number in itertools.count())
_Parameters = Sequence[Any] | Mapping[str, Any]


class Fault(Enum):
    """How the disk fails at the chosen operation, and at which operations it can."""

    POWER = ("write", "sync", "truncate", "delete")
    FULL = ("write",)
    ERROR = ("write", "sync", "truncate")

    def raised(self, operation: str) -> Exception:
        """What SQLite is told."""
        if self is Fault.FULL:
            return apsw.exception_for(apsw.SQLITE_FULL)
        return apsw.exception_for(_IO_ERRORS[operation])


_IO_ERRORS = {
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "delete": apsw.SQLITE_IOERR_DELETE,
}


@dataclass(frozen=True, slots=True)
class _Write:
    offset: int
    data: bytes

    def land(self, image: bytearray) -> None:
        if len(image) < self.offset:
            image.extend(bytes(self.offset - len(image)))
        image[self.offset : self.offset + len(self.data)] = self.data

    def survivor(self, chance: random.Random) -> "_Write | None":
        """What a power cut leaves of it: all, nothing, or the sectors before or after some point."""
        fate = chance.choice(("kept", "dropped", "torn"))
        if fate != "torn":
            return self if fate == "kept" else None
        end = self.offset + len(self.data)
        inside = range((self.offset // SECTOR + 1) * SECTOR, end, SECTOR)
        cut = (chance.choice(inside) if inside else self.offset + len(self.data) // 2) - self.offset
        if chance.random() < 0.5:
            return _Write(self.offset, self.data[:cut])
        return _Write(self.offset + cut, self.data[cut:])


@dataclass(frozen=True, slots=True)
class _Truncate:
    size: int

    def land(self, image: bytearray) -> None:
        del image[self.size :]
        image.extend(bytes(self.size - len(image)))

    def survivor(self, chance: random.Random) -> "_Truncate | None":
        return self if chance.random() < 0.5 else None


@dataclass(slots=True)
class _Medium:
    """What of one file would survive a power cut (`image`), and what was done to it since it was last synced."""

    path: Path
    image: bytearray
    named: bool
    size: int
    pending: list[_Write | _Truncate] = field(default_factory=list)
    deleted: bool = False

    def change(self, change: _Write | _Truncate) -> None:
        self.pending.append(change)
        match change:
            case _Write(offset, data):
                self.size = max(self.size, offset + len(data))
            case _Truncate(size):
                self.size = size

    def notice(self) -> None:
        """Take in what was appended behind SQLite's back: the journal lengthens its write-ahead log itself."""
        if self.path.exists() and self.path.stat().st_size > self.size:
            with self.path.open("rb") as file:
                file.seek(self.size)
                self.change(_Write(self.size, file.read()))

    def synced(self) -> None:
        for change in self.pending:
            change.land(self.image)
        self.pending.clear()

    def survivor(self, seed: int) -> bytes | None:
        """Its bytes after a power cut; None when it is gone."""
        chance = random.Random(f"{seed} {self.path.name}")
        kept = {DROP_ALL: False, KEEP_ALL: True}.get(seed)
        if not self.named and not (chance.random() < 0.5 if kept is None else kept):
            return None
        if self.deleted and (chance.random() < 0.5 if kept is None else kept):
            return None
        image = bytearray(self.image)
        for change in self.pending:
            left = change.survivor(chance) if kept is None else change if kept else None
            if left is not None:
                left.land(image)
        return bytes(image)


class Disk(apsw.VFS):
    """Fails with `fault` at the operation number `at`, counted from 1: with POWER for good, otherwise just this once.

    `checkpoint_pages`, when given, is used in place of what the journal asks for, so that short tests see checkpoints.
    """

    def __init__(self, fault: Fault = Fault.POWER, at: int = NEVER, checkpoint_pages: int | None = None) -> None:
        self._name = next(_names)
        super().__init__(self._name, "")
        self._fault = fault
        self._at = at
        self._media: dict[Path, _Medium] = {}
        self._connections: list[apsw.Connection] = []
        self.checkpoint_pages = checkpoint_pages
        self.operations = 0
        """How many operations there were at which it could have failed."""
        self.dark = False
        """Whether the power is gone."""

    def connect(self, path: Path, mode: str) -> sqlite3.Connection:
        """A connection in mode `ro` or `rwc`, as the journal expects it."""
        flags = {"ro": apsw.SQLITE_OPEN_READONLY, "rwc": apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE}[mode]
        with _as_sqlite3():
            self.demand_power()
            database = apsw.Connection(str(path), flags, self._name)
        self._connections.append(database)
        return cast("sqlite3.Connection", _Connection(self, database))

    def aftermath(self, folder: Path, seed: int) -> None:
        """Write every file, under its own name, into `folder` as the power cut left it; one happens now if none did before."""
        self.dark = True
        while self._connections:
            with suppress(apsw.Error):  # the machine is dead, and so is what ran on it
                self._connections.pop().close(force=True)
        for medium in self._media.values():
            medium.notice()
            left = medium.survivor(seed)
            if left is not None:
                (folder / medium.path.name).write_bytes(left)

    def demand_power(self) -> None:
        """Raise when the power is gone."""
        if self.dark:
            raise apsw.exception_for(apsw.SQLITE_IOERR)

    def medium(self, path: Path, *, named: bool) -> _Medium:
        """The medium of a file that is opened."""
        medium = self._media.get(path)
        if medium is None or medium.deleted:
            content = path.read_bytes()
            medium = self._media[path] = _Medium(path, bytearray(content), named, len(content))
        return medium

    def begin(self, operation: str, medium: _Medium, change: _Write | _Truncate | None = None) -> None:
        """Count an operation, and fail when it is the chosen one; a change in progress at a power cut may still land."""
        self.demand_power()
        medium.notice()
        if operation in self._fault.value:
            self.operations += 1
        if self.operations == self._at and operation in self._fault.value:
            self.dark = self._fault is Fault.POWER
            if self.dark and change is not None:
                medium.change(change)
            raise self._fault.raised(operation)
        if change is not None:
            medium.change(change)

    def sync_names(self, folder: Path) -> None:
        """Make durable which files the folder has, as a sync of the folder does."""
        for medium in list(self._media.values()):
            if medium.path.parent == folder:
                medium.named = True
                if medium.deleted:
                    del self._media[medium.path]

    @override
    def excepthook(self, *_args: object) -> bool:
        """What SQLite itself ignores is ignored."""
        return True

    @override
    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        self.demand_power()
        if name is None:
            return apsw.VFSFile("", name, flags)
        path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name)
        return _File(self, path, name, flags)

    @override
    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.demand_power()
        medium = self._media.get(Path(filename))
        if medium is not None:
            self.begin("delete", medium)
        super().xDelete(filename, syncdir)
        if medium is not None:
            medium.deleted = True
        if syncdir:
            self.sync_names(Path(filename).parent)

    @override
    def xAccess(self, pathname: str, flags: int) -> bool:
        self.demand_power()
        return super().xAccess(pathname, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, path: Path, name: str | apsw.URIFilename, flags: list[int]) -> None:
        new = not path.exists()
        super().__init__("", name, flags)
        self._disk = disk
        self._medium = disk.medium(path, named=not new)
        self._journal = bool(flags[0] & (apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL))

    @override
    def excepthook(self, *_args: object) -> bool:
        return True

    @override
    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.demand_power()
        return super().xRead(amount, offset)

    @override
    def xFileSize(self) -> int:
        self._disk.demand_power()
        return super().xFileSize()

    @override
    def xWrite(self, data: Any, offset: int) -> None:
        self._disk.begin("write", self._medium, _Write(offset, bytes(data)))
        super().xWrite(data, offset)

    @override
    def xTruncate(self, newsize: int) -> None:
        self._disk.begin("truncate", self._medium, _Truncate(newsize))
        super().xTruncate(newsize)

    @override
    def xSync(self, flags: int) -> None:
        self._disk.begin("sync", self._medium)
        self._medium.synced()  # the real file needs no sync: no real power is cut
        if self._journal and not self._medium.named:
            self._disk.sync_names(self._medium.path.parent)  # as SQLite does after making a journal


class _Connection:
    """The part of `sqlite3.Connection` that the journal uses, over `apsw`, with the exceptions of `sqlite3`."""

    def __init__(self, disk: Disk, database: apsw.Connection) -> None:
        self._disk = disk
        self._database = database
        self._database.set_busy_timeout(10_000)
        self.row_factory: object = None
        """Taken and ignored: rows are always found by place and by name."""
        self._checkpoint_every(1000)

    @property
    def in_transaction(self) -> bool:
        return self._database.in_transaction

    def execute(self, sql: str, parameters: _Parameters = ()) -> "_Cursor":
        if asked := _AUTOCHECKPOINT.fullmatch(sql):
            self._checkpoint_every(int(asked[1]))
            return _Cursor([], -1)
        with _as_sqlite3():
            self._disk.demand_power()
            cursor = self._database.cursor()
            cursor.execute(sql, cast("Any", parameters))
            rows = list(_rows(cursor))
            return _Cursor(rows, self._database.changes() if _CHANGES.match(sql) else -1)

    def executemany(self, sql: str, parameters: Iterable[_Parameters]) -> "_Cursor":
        return _Cursor([], sum(self.execute(sql, each).rowcount for each in parameters))

    def executescript(self, sql: str) -> "_Cursor":
        with _as_sqlite3():
            self._disk.demand_power()
            self._database.execute(sql)
        return _Cursor([], -1)

    def close(self) -> None:
        if not self._disk.dark:
            with suppress(apsw.Error):  # SQLite ignores that its last checkpoint failed
                self._database.close()

    def _checkpoint_every(self, pages: int) -> None:
        """Do SQLite's own checkpoints, so that their errors are ignored as SQLite ignores them: the commit stands."""
        pages = self._disk.checkpoint_pages or pages

        def committed(database: apsw.Connection, name: str, logged: int) -> int:
            if 0 < pages <= logged:
                with suppress(apsw.Error):
                    database.wal_checkpoint(name)
            return apsw.SQLITE_OK

        self._database.set_wal_hook(committed)


class _Cursor:
    """All rows of one statement."""

    def __init__(self, rows: "list[_Row]", rowcount: int) -> None:
        self._rows = iter(rows)
        self.rowcount = rowcount

    def __iter__(self) -> "Iterator[_Row]":
        return self._rows

    def fetchone(self) -> "_Row | None":
        return next(self._rows, None)

    def fetchall(self) -> "list[_Row]":
        return list(self._rows)

    def close(self) -> None:
        self._rows = iter(())


class _Row:
    """As `sqlite3.Row`."""

    def __init__(self, names: Sequence[str], values: tuple[Any, ...]) -> None:
        self._names = names
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __getitem__(self, key: Any) -> Any:
        return self._values[self._names.index(key) if isinstance(key, str) else key]

    def keys(self) -> list[str]:
        return list(self._names)


_AUTOCHECKPOINT = re.compile(r"PRAGMA wal_autocheckpoint = (\d+)")
_CHANGES = re.compile(r"\s*(INSERT|UPDATE|DELETE|REPLACE|WITH)\b", re.IGNORECASE)
_TEXTS = {apsw.SQLITE_FULL: "database or disk is full", apsw.SQLITE_IOERR: "disk I/O error"}
_CLASSES: Mapping[int, type[sqlite3.Error]] = {
    apsw.SQLITE_INTERNAL: sqlite3.InternalError,
    apsw.SQLITE_NOTFOUND: sqlite3.InternalError,
    **dict.fromkeys(
        (
            apsw.SQLITE_ERROR, apsw.SQLITE_PERM, apsw.SQLITE_ABORT, apsw.SQLITE_BUSY, apsw.SQLITE_LOCKED,
            apsw.SQLITE_READONLY, apsw.SQLITE_INTERRUPT, apsw.SQLITE_IOERR, apsw.SQLITE_FULL, apsw.SQLITE_CANTOPEN,
            apsw.SQLITE_PROTOCOL, apsw.SQLITE_EMPTY, apsw.SQLITE_SCHEMA,
        ),
        sqlite3.OperationalError,
    ),
    apsw.SQLITE_TOOBIG: sqlite3.DataError,
    apsw.SQLITE_CONSTRAINT: sqlite3.IntegrityError,
    apsw.SQLITE_MISMATCH: sqlite3.IntegrityError,
    apsw.SQLITE_MISUSE: sqlite3.InterfaceError,
    apsw.SQLITE_RANGE: sqlite3.InterfaceError,
}  # fmt: skip
"""As the standard library maps them; every other result is a DatabaseError."""


def _rows(cursor: apsw.Cursor) -> Iterator[_Row]:
    names: list[str] = []
    for values in cursor:
        names = names or [column[0] for column in cursor.get_description()]
        yield _Row(names, values)


@contextmanager
def _as_sqlite3() -> Iterator[None]:
    try:
        yield
    except apsw.BindingsError as error:
        raise sqlite3.ProgrammingError(str(error)) from error
    except apsw.Error as error:
        code = getattr(error, "extendedresult", apsw.SQLITE_ERROR)
        text = str(error) or _TEXTS.get(code & 0xFF, "")
        translated = _CLASSES.get(code & 0xFF, sqlite3.DatabaseError)(text)
        translated.sqlite_errorcode = code  # noqa: V101 - read by whoever tells the errors apart
        raise translated from error
