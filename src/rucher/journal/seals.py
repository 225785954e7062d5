"""Seals: a signed hash chain over the journal, so that any changed, removed or inserted event is found.

The daemon runs `Sealer` in the background; `verify` needs only the store and the node's public key. A seal covers
the events after the last seal up to its own `last_seq`; its digest is BLAKE2b-256 over the digest before it and each event's
columns as a JSON array, and its signature is Ed25519 (RFC 8032) over that digest.
"""

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from nacl.encoding import HexEncoder
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from rucher.journal.artifacts import durable_file
from rucher.journal.rows import SEALED, SEQ
from rucher.journal.segments import read_segment, seals_of, sha256_of
from rucher.journal.store import JournalStore, StoreReader
from rucher.journal.units import Archive, Seal
from rucher.protocol.backoff import surely
from rucher.protocol.errors import BadInput, Corrupt, Retryable
from rucher.protocol.ports import Clock

SEAL_EVERY_S = 5.0
"""Seconds between two seals while events flow; nothing is done while none do."""
BATCH = 5000
"""Events that one seal covers at most."""
SEALS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Verified:
    """The outcome of a verification; `fault` is empty when every sealed event is as it was sealed.

    Of the `events` that are as they were sealed, `archived` lie in segments.
    """

    events: int
    seals: int
    unsealed: int
    fault: str = ""
    archived: int = 0


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
        last_seq, digest = await _last_seal(self._store)
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
        while seal := await self._next_seal():
            try:
                await self._store.add_seal(seal)
            except BadInput:
                # One that was cancelled on its way may have landed since, or an archiving command sealed a part of it.
                if (await _last_seal(self._store))[0] < seal.first_seq:
                    raise
        last_seq, digest = await _last_seal(self._store)
        await asyncio.to_thread(_write_head, self._head, last_seq, digest)
        return last_seq

    async def _next_seal(self) -> Seal | None:
        last_seq, digest = await _last_seal(self._store)
        rows = await self._store.stored("event.after", last_seq, BATCH)
        if not rows:
            return None
        digest = await asyncio.to_thread(_digest, digest, rows)
        signature = self._key.sign(digest.encode(), encoder=HexEncoder).signature.decode()
        return Seal(last_seq + 1, rows[-1][SEQ], digest, signature, self._clock.now())


class Chain:
    """The seals that were checked so far: where they end, and the digest from which the next one goes on."""

    def __init__(self, public: VerifyKey, last_seq: int = 0, digest: str = "") -> None:
        self._public = public
        self.last_seq = last_seq
        self.digest = digest
        self.seals = 0

    def fault(self, seal: Seal, rows: Sequence[Sequence[Any]]) -> str:
        """What is wrong with the next seal or with the events under it; when nothing is, the chain goes on from there."""
        covered = f"the seal over events {seal.first_seq} to {seal.last_seq}"
        if seal.first_seq != self.last_seq + 1:
            return f"{covered} does not follow the one before it, which ends at {self.last_seq}"
        if [row[SEQ] for row in rows] != list(range(seal.first_seq, seal.last_seq + 1)):
            return f"events are missing under {covered}"
        digest = _digest(self.digest, rows)
        if digest != seal.digest:
            return f"an event under {covered} was changed, or another was put in its place"
        if not _signed(self._public, digest, seal.signature):
            return f"{covered} was not signed by this node's key"
        self.last_seq, self.digest, self.seals = seal.last_seq, digest, self.seals + 1
        return ""

    def fault_of_segment(self, archive: Archive, folder: Path) -> str:
        """What is wrong with the next segment; when nothing is, the chain goes on from its end. Reads it three times."""
        path = folder / archive.file
        if archive.first_seq != self.last_seq + 1:
            return f"the archive segment {path} does not follow event {self.last_seq}"
        try:
            if sha256_of(path) != archive.digest:
                return f"the archive segment {path} is not the file that was archived; put a backup of it in its place"
            seals, rows = seals_of(path), read_segment(path).rows
            for seal in seals:
                if fault := self.fault(seal, list(islice(rows, seal.last_seq - seal.first_seq + 1))):
                    return f"{path}: {fault}"
        except Corrupt as error:
            return str(error)
        return "" if self.last_seq == archive.last_seq else f"the archive segment {path} ends at {self.last_seq}"


async def verify(store: StoreReader, public: VerifyKey, head: Path, archive: Path) -> Verified:
    """Check every seal, that none is missing at the end, and that events are numbered without gaps; stops at a fault.

    What was archived is read from the segments in the folder `archive`.
    """
    newest = _read_head(head)
    chain = Chain(public)
    fault = await _fault_in_archive(store, chain, archive)
    archived = chain.last_seq
    fault = fault or await _fault_in_store(store, chain)
    if fault:
        return Verified(chain.last_seq, chain.seals, 0, fault, archived)
    tail = await _unsealed(store, chain.last_seq)
    fault = _fault_at_the_end(tail, newest, chain.last_seq, chain.digest, head)
    return Verified(chain.last_seq, chain.seals, tail.count, fault, archived)


async def _fault_in_archive(store: StoreReader, chain: Chain, folder: Path) -> str:
    for row in await store.rows("archives.all"):
        if fault := await asyncio.to_thread(chain.fault_of_segment, Archive(**dict(row)), folder):
            return fault
    if not chain.last_seq:
        return ""
    rows = await store.stored("event.after", 0, 1)
    if rows and rows[0][SEQ] <= chain.last_seq:
        return f"event {rows[0][SEQ]} was archived, and the store holds one of that number again"
    seals = await store.rows("seals.after", chain.last_seq - 1, 1)
    if not seals or (seals[0]["last_seq"], seals[0]["digest"]) != (chain.last_seq, chain.digest):
        return f"the seal at the end of the archive, up to event {chain.last_seq}, is missing or changed in the store"
    return ""


async def _fault_in_store(store: StoreReader, chain: Chain) -> str:
    while seals := await store.rows("seals.after", chain.last_seq, SEALS_AT_ONCE):
        for row in seals:
            seal = Seal(**dict(row))
            rows = await store.stored("event.after", chain.last_seq, seal.last_seq - chain.last_seq)
            if fault := await asyncio.to_thread(chain.fault, seal, rows):
                return fault
    return ""


async def verify_last(store: StoreReader, public: VerifyKey) -> Verified:
    """Check the newest seal only, which costs little however long the journal is: a sign of life, no proof."""
    found = await store.rows("seals.last_two")
    if not found:
        return Verified(0, 0, (await _unsealed(store, 0)).count)
    newest, *before = found
    previous, digest = (before[0]["last_seq"], before[0]["digest"]) if before else (0, "")
    rows = await store.stored("event.after", previous, newest["last_seq"] - previous)
    good = _digest(digest, rows) == newest["digest"] and _signed(public, newest["digest"], newest["signature"])
    fault = "" if good else f"the newest seal, over events {newest['first_seq']} to {newest['last_seq']}, does not hold"
    return Verified(len(rows), 1, (await _unsealed(store, newest["last_seq"])).count, fault)


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
    try:
        with durable_file(path) as file:
            file.write(json.dumps({"last_seq": last_seq, "digest": digest}).encode("ascii"))
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


async def _unsealed(store: StoreReader, last_seq: int) -> _Tail:
    count = 0
    while rows := await store.stored("event.after", last_seq, BATCH):
        if rows[-1][SEQ] != last_seq + len(rows):
            return _Tail(count, whole=False)
        count += len(rows)
        last_seq = rows[-1][SEQ]
    return _Tail(count, whole=True)


async def _last_seal(store: StoreReader) -> tuple[int, str]:
    rows = await store.rows("seals.last")
    return (rows[0]["last_seq"], rows[0]["digest"]) if rows else (0, "")


def _digest(previous: str, rows: Iterable[Sequence[Any]]) -> str:
    digest = blake2b(previous.encode(), digest_size=32)
    for row in rows:
        digest.update(json.dumps(row[SEALED], ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()


def _signed(public: VerifyKey, digest: str, signature: str) -> bool:
    try:
        public.verify(digest.encode(), bytes.fromhex(signature))
    except (BadSignatureError, ValueError):
        return False
    return True
