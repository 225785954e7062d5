"""Seals: a signed hash chain over the journal, so that any changed, removed or inserted event is found.

The daemon runs `Sealer` in the background; `verify` needs only the store and the node's public key. A seal covers
the events after the last seal up to its own `last_seq`; its digest is BLAKE2b-256 over the digest before it and each event's
columns as a JSON array, and its signature is Ed25519 (RFC 8032) over that digest.
"""

import asyncio
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from nacl.encoding import HexEncoder
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from rucher.journal.sqlite import Seal, SqliteReader
from rucher.journal.store import JournalStore
from rucher.protocol.backoff import surely
from rucher.protocol.errors import Corrupt, Retryable
from rucher.protocol.ports import Clock

SEAL_EVERY_S = 5.0
"""Seconds between two seals while events flow; nothing is done while none do."""
BATCH = 5000
"""Events that one seal covers at most."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The outcome of a verification; `fault` is empty when every sealed event is as it was sealed."""

    events: int
    seals: int
    unsealed: int
    fault: str = ""


class Sealer:
    """Seals what was committed, as long as it runs."""

    def __init__(self, store: JournalStore, key: SigningKey, head: Path, clock: Clock) -> None:
        """`head` is the file that names the newest seal, so that seals cannot vanish from the end unseen."""
        self._store = store
        self._key = key
        self._head = head
        self._clock = clock

    async def demand_whole(self) -> None:
        """Raise Corrupt when the journal has lost what was sealed: it must not be sealed anew as if nothing had happened."""
        newest = await asyncio.to_thread(_read_head, self._head)
        last_seq, digest = await self._store.call(_last_seal)
        if newest is None or newest[0] < last_seq or newest == (last_seq, digest):
            return
        raise Corrupt(
            f"the journal has lost events: {self._head} names a seal up to event {newest[0]}, the journal's last is up to "
            f"{last_seq}; put a backup of the journal in its place, or remove {self._head.name} to go on with what is left"
        )

    async def run(self) -> None:
        """Seal what is there, then new events every few seconds, until cancelled."""
        while True:
            last_seq = await surely(self._clock, self.seal)
            await self._store.grown(last_seq)
            await self._clock.sleep(SEAL_EVERY_S)

    async def seal(self) -> int:
        """Seal everything committed so far; returns the last sealed seq. Raises Retryable when that cannot be written."""
        while seal := await self._store.call(self._next_seal):
            await self._store.add_seal(seal)
        last_seq, digest = await self._store.call(_last_seal)
        await asyncio.to_thread(_write_head, self._head, last_seq, digest)
        return last_seq

    def _next_seal(self, reader: SqliteReader) -> Seal | None:
        last_seq, digest = _last_seal(reader)
        rows = reader.rows("event.after", (last_seq, BATCH))
        if not rows:
            return None
        digest = _digest(digest, rows)
        signature = self._key.sign(digest.encode(), encoder=HexEncoder).signature.decode()
        return Seal(last_seq + 1, rows[-1]["seq"], digest, signature, self._clock.now())


def verify(reader: SqliteReader, public: VerifyKey, head: Path) -> Verified:
    """Check every seal, that none is missing at the end, and that events are numbered without gaps; stops at a fault."""
    newest = _read_head(head)
    seals = reader.rows("seals.all")
    last_seq, digest = 0, ""
    for count, seal in enumerate(seals):
        covered = f"the seal over events {seal['first_seq']} to {seal['last_seq']}"
        rows = reader.rows("event.after", (last_seq, seal["last_seq"] - last_seq))
        digest = _digest(digest, rows)
        if seal["first_seq"] != last_seq + 1:
            return Verified(
                last_seq, count, 0, f"{covered} does not follow the one before it, which ends at {last_seq}"
            )
        if [row["seq"] for row in rows] != list(range(last_seq + 1, seal["last_seq"] + 1)):
            return Verified(last_seq, count, 0, f"events are missing under {covered}")
        if digest != seal["digest"]:
            return Verified(
                last_seq, count, 0, f"an event under {covered} was changed, or another was put in its place"
            )
        if not _signed(public, digest, seal["signature"]):
            return Verified(last_seq, count, 0, f"{covered} was not signed by this node's key")
        last_seq = seal["last_seq"]
    tail = _unsealed(reader, last_seq)
    return Verified(last_seq, len(seals), tail.count, _fault_at_the_end(tail, newest, last_seq, digest, head))


def verify_last(reader: SqliteReader, public: VerifyKey) -> Verified:
    """Check the newest seal only, which costs little however long the journal is: a sign of life, no proof."""
    found = reader.rows("seals.last_two")
    if not found:
        return Verified(0, 0, _unsealed(reader, 0).count)
    newest, *before = found
    previous, digest = (before[0]["last_seq"], before[0]["digest"]) if before else (0, "")
    rows = reader.rows("event.after", (previous, newest["last_seq"] - previous))
    good = _digest(digest, rows) == newest["digest"] and _signed(public, newest["digest"], newest["signature"])
    fault = "" if good else f"the newest seal, over events {newest['first_seq']} to {newest['last_seq']}, does not hold"
    return Verified(len(rows), 1, _unsealed(reader, newest["last_seq"]).count, fault)


def _fault_at_the_end(tail: "_Tail", newest: tuple[int, str] | None, last_seq: int, digest: str, head: Path) -> str:
    if not tail.whole:
        return f"events are missing after event {last_seq}, which are not sealed yet"
    if newest is None:
        return f"nothing tells which seal is the newest: {head} is missing; the daemon makes it when it starts"
    if newest[0] > last_seq:
        return f"seals are missing after event {last_seq}: {head} names one up to event {newest[0]}"
    if newest[0] == last_seq and newest[1] != digest:
        return f"the newest seal is not the one that {head} names"
    return ""


def _write_head(path: Path, last_seq: int, digest: str) -> None:
    temporary = path.with_suffix(".new")
    try:
        with temporary.open("w", encoding="ascii") as file:
            json.dump({"last_seq": last_seq, "digest": digest}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise Retryable(f"{path} cannot be written ({error.strerror}); free disk space") from error


def _read_head(path: Path) -> tuple[int, str] | None:
    try:
        told = json.loads(path.read_text("ascii"))
        return int(told["last_seq"]), str(told["digest"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"{path} is damaged ({error}); put a backup of the file in its place") from error


@dataclass(frozen=True, slots=True)
class _Tail:
    count: int
    whole: bool


def _unsealed(reader: SqliteReader, last_seq: int) -> _Tail:
    count = 0
    while rows := reader.rows("event.after", (last_seq, BATCH)):
        if rows[-1]["seq"] != last_seq + len(rows):
            return _Tail(count, whole=False)
        count += len(rows)
        last_seq = rows[-1]["seq"]
    return _Tail(count, whole=True)


def _last_seal(reader: SqliteReader) -> tuple[int, str]:
    rows = reader.rows("seals.last")
    return (rows[0]["last_seq"], rows[0]["digest"]) if rows else (0, "")


def _digest(previous: str, rows: Iterable[Mapping[str, Any]]) -> str:
    digest = blake2b(previous.encode(), digest_size=32)
    for row in rows:
        digest.update(json.dumps(tuple(row), ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()


def _signed(public: VerifyKey, digest: str, signature: str) -> bool:
    try:
        public.verify(digest.encode(), bytes.fromhex(signature))
    except (BadSignatureError, ValueError):
        return False
    return True
