"""Archive segments: what the journal no longer keeps, in gzip files that can still be verified.

Called by the journal's retention and by verification. A segment `0000000001-0000050000.jsonl.gz` holds a line with its header,
a line an event exactly as the seals' digest reads it (the JSON array of the row's sealed columns in schema order), and a line a
seal; the seals cover its events without a rest. Neither direction holds more than some lines in memory. Digests and signatures
are not checked here, and nothing is removed from the journal.
"""

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rucher.journal.artifacts import durable_file
from rucher.journal.rows import COLUMNS, SEALED
from rucher.journal.units import Seal
from rucher.protocol.errors import BadInput, Corrupt, Retryable

FORMAT = 1
_LONGEST_LINE = 16 << 20
"""Bytes; the line of an event whose body is as large as the journal takes is shorter, whatever it holds."""
_PIECE = 1 << 17
_WIDTH = len(COLUMNS[SEALED])
_PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")
_SEAL = {"first_seq": int, "last_seq": int, "digest": str, "signature": str, "sealed_at": int}
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Header:
    """Which events a segment holds, without gaps, and the public key (hex) of the node that sealed them."""

    first_seq: int
    last_seq: int
    node: str

    @property
    def name(self) -> str:
        """The name of the segment's file."""
        return f"{self.first_seq:010}-{self.last_seq:010}.jsonl.gz"

    @property
    def count(self) -> int:
        """How many events it holds."""
        return self.last_seq - self.first_seq + 1

    @property
    def fault(self) -> str:
        """What is wrong with it; empty for nothing."""
        if not 0 < self.first_seq <= self.last_seq:
            return f"{self.first_seq} to {self.last_seq} is no range of events"
        return "" if _PUBLIC_KEY.fullmatch(self.node) else "the node is no public key of 64 hexadecimal digits"


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment that was written; `sha256` is that of the file, in hex."""

    path: Path
    first_seq: int
    last_seq: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A segment being read: `rows` reads on as it is iterated and may raise; `seals` is complete once `rows` has ended."""

    header: Header
    rows: Iterator[tuple[Any, ...]]
    seals: list[Seal]


def write_segment(folder: Path, header: Header, rows: Iterable[Sequence[Any]], seals: Iterable[Seal]) -> Segment:
    """Write a segment whole and durably, or not at all; the same events and seals always give the same bytes.

    Of each row the sealed columns are written. A segment of the same name is replaced; only one writer at a time.
    Raises Corrupt when events are missing or the seals do not cover them exactly, BadInput for an impossible header, Retryable
    when the disk does not take it, and what the iterables raise.
    """
    if header.fault:
        raise BadInput(f"the archive segment {header.name} cannot be written: {header.fault}")
    path = folder / header.name
    try:
        for left_over in folder.glob(f"new-{header.name}-*"):
            left_over.unlink()
        with durable_file(path) as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
            for piece in _pieces(_lines(header, rows, seals)):
                packed.write(piece)
        sha256 = sha256_of(path)
    except _Gap as gap:
        raise Corrupt(f"the journal cannot be archived to {path}: {gap}; `rucher journal verify` tells more") from None
    except OSError as error:
        raise Retryable(
            f"the archive segment {path} cannot be written ({error.strerror or error}); "
            "free disk space or make the folder writable, then try again"
        ) from error
    return Segment(path, header.first_seq, header.last_seq, sha256)


def read_segment(path: Path) -> Reading:
    """Read a segment's header; its rows are read as they are asked for.

    Raises Corrupt, here and from `rows`, naming the file and the line, for a file that is missing, damaged, truncated, renamed
    or followed by more; BadInput for one of a newer Rucher; Retryable when it cannot be read just now.
    """
    header = _header(path)
    seals: list[Seal] = []
    return Reading(header, _rows(path, header, seals), seals)


def seals_of(path: Path) -> list[Seal]:
    """The seals of a segment, for which its rows are read through; raises as `read_segment`."""
    reading = read_segment(path)
    for _ in reading.rows:
        pass
    return reading.seals


def sha256_of(path: Path) -> str:
    """The SHA-256 of a segment's file, in hex; raises Corrupt when it is missing, Retryable when it cannot be read now."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as error:
        raise _unreadable(path, error) from error


def _missing(path: Path) -> Corrupt:
    return Corrupt(f"the archive segment {path} is missing; put a backup of the file in its place")


def _unreadable(path: Path, error: OSError) -> Retryable:
    return Retryable(f"the archive segment {path} cannot be read now ({error.strerror or error})")


class _Gap(Exception):
    """Something is missing or doubled; the text says what."""


class _Cover:
    """Demands that what is taken covers the header's events one after another."""

    def __init__(self, header: Header, what: str) -> None:
        self._last = header.last_seq
        self._what = what
        self._reached = header.first_seq - 1

    @property
    def complete(self) -> bool:
        return self._reached == self._last

    def take(self, first: int, last: int) -> None:
        if first != self._reached + 1 or not first <= last <= self._last:
            raise _Gap(f"{self._what} {first} to {last} came after {self._reached} of {self._last}")
        self._reached = last

    def demand_complete(self) -> None:
        if not self.complete:
            raise _Gap(f"{self._what} end at {self._reached} of {self._last}")


def _lines(header: Header, rows: Iterable[Sequence[Any]], seals: Iterable[Seal]) -> Iterator[str]:
    yield _encode({"format": FORMAT, **asdict(header), "count": header.count})
    events, sealed = _Cover(header, "events"), _Cover(header, "seals")
    for row in rows:
        events.take(row[0], row[0])
        yield _encode(tuple(row[SEALED]))
    events.demand_complete()
    for seal in seals:
        sealed.take(seal.first_seq, seal.last_seq)
        yield _encode(asdict(seal))
    sealed.demand_complete()


def _pieces(lines: Iterable[str]) -> Iterator[bytes]:
    """The lines in large pieces: handing them to the compressor one by one would cost more than the compression."""
    piece: list[str] = []
    size = 0
    for line in lines:
        piece += (line, "\n")
        size += len(line)
        if size >= _PIECE:
            yield "".join(piece).encode()
            piece.clear()
            size = 0
    yield "".join(piece).encode()


class _Lines:
    """The JSON value of each line, to the very end of the file, which is where truncation shows; `number` counts them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.number = 0

    def __iter__(self) -> Iterator[Any]:
        try:
            with gzip.open(self._path, "rb") as file:
                self.number = 1
                while line := file.readline(_LONGEST_LINE):
                    yield _value(line)
                    self.number += 1
        except FileNotFoundError:
            raise _missing(self._path) from None
        except (EOFError, ValueError, RecursionError, zlib.error, gzip.BadGzipFile) as error:
            raise self.damaged(error) from error
        except OSError as error:
            raise _unreadable(self._path, error) from error

    def damaged(self, reason: object) -> Corrupt:
        """The error that says what is wrong with the line that was read last, or would have been next."""
        return Corrupt(
            f"the archive segment {self._path} is damaged at line {self.number} ({reason}); "
            "put a backup of the file in its place"
        )


def _value(line: bytes) -> Any:
    if not line.endswith(b"\n"):
        raise EOFError("the line has no end")
    return json.loads(line)


def _header(path: Path) -> Header:
    lines = _Lines(path)
    match next(iter(lines), None):
        case {"format": int(version)} if version > FORMAT:
            raise BadInput(f"the archive segment {path} is of a newer Rucher; use the one that wrote it")
        case {"format": 1, "first_seq": int(first), "last_seq": int(last), "node": str(node), "count": int(number)}:
            header = Header(first, last, node)
        case _:
            raise lines.damaged("it is no header")
    if header.fault or header.count != number:
        raise lines.damaged(header.fault or f"it counts {number} events from {first} to {last}")
    if header.name != path.name:
        raise lines.damaged(f"it is the header of {header.name}")
    return header


def _rows(path: Path, header: Header, seals: list[Seal]) -> Iterator[tuple[Any, ...]]:
    events, sealed = _Cover(header, "events"), _Cover(header, "seals")
    lines = _Lines(path)
    values = iter(lines)
    next(values)
    try:
        for value in values:
            if not events.complete:
                yield _row(events, value)
            else:
                seals.append(_seal(sealed, value))
        events.demand_complete()
        sealed.demand_complete()
    except _Gap as gap:
        raise lines.damaged(gap) from None


def _row(events: _Cover, value: object) -> tuple[Any, ...]:
    match value:
        case [int(seq), *_] if len(value) == _WIDTH:
            events.take(seq, seq)
            return tuple(value)
        case _:
            raise _Gap("it is no event")


def _seal(sealed: _Cover, value: object) -> Seal:
    match value:
        case Mapping() if {name: type(each) for name, each in value.items()} == _SEAL:
            seal = Seal(**value)
        case _:
            raise _Gap("it is no seal")
    sealed.take(seal.first_seq, seal.last_seq)
    return seal
