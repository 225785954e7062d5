"""Whatever is done to a sealed journal behind its back is found."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from rucher.journal.seals import Sealer, Verified, verify
from rucher.journal.store import open_store, read_store
from tests.fakes.clock import ManualClock, until
from tests.fakes.drafts import said

KEY = SigningKey(bytes(32))


def sealed(path: Path, batches: int = 2) -> None:
    async def write() -> None:
        async with open_store(path, ManualClock()) as store:
            sealer = Sealer(store, KEY, path.with_name("seal.head"), ManualClock())
            for batch in range(batches):
                await store.append(*(said(f"{batch}-{number}") for number in range(5)))
                await sealer.seal()

    asyncio.run(write())


def verified(path: Path, key: SigningKey = KEY) -> Verified:
    async def verifying() -> Verified:
        async with read_store(path, ManualClock()) as store:
            return await verify(store, key.verify_key, path.with_name("seal.head"), path.with_name("archive"))

    return asyncio.run(verifying())


def test_an_untouched_journal_is_whole(tmp_path: Path) -> None:
    sealed(tmp_path / "rucher.db")
    assert verified(tmp_path / "rucher.db") == Verified(events=10, seals=2, unsealed=0)


def test_events_that_are_not_sealed_yet_are_counted_as_such(tmp_path: Path) -> None:
    sealed(tmp_path / "rucher.db")

    async def more() -> None:
        async with open_store(tmp_path / "rucher.db", ManualClock()) as store:
            await store.append(said("x"), said("y"))

    asyncio.run(more())
    assert verified(tmp_path / "rucher.db").unsealed == 2


TAMPERING: dict[str, Callable[[sqlite3.Connection], object]] = {
    "changed body": lambda db: db.execute("UPDATE events SET body = '{}' WHERE seq = 3"),
    "changed trust": lambda db: db.execute("UPDATE events SET trust = 0 WHERE seq = 7"),
    "removed": lambda db: db.execute("DELETE FROM events WHERE seq = 4"),
    "removed at the end": lambda db: db.execute("DELETE FROM events WHERE seq = 10"),
    "renumbered": lambda db: db.execute("UPDATE events SET seq = 40 WHERE seq = 4"),
    "swapped": lambda db: db.executescript(
        "UPDATE events SET seq = 99 WHERE seq = 1; UPDATE events SET seq = 1 WHERE seq = 2;"
        "UPDATE events SET seq = 2 WHERE seq = 99"
    ),
    "seal removed": lambda db: db.execute("DELETE FROM seals WHERE last_seq = 5"),
    "newest seal removed": lambda db: db.execute("DELETE FROM seals WHERE last_seq = 10"),
    "every seal removed": lambda db: db.executescript("DELETE FROM seals; UPDATE events SET body = '{}'"),
    "seal forged": lambda db: db.execute("UPDATE seals SET digest = '00'"),
}


@pytest.mark.parametrize("tamper", TAMPERING.values(), ids=TAMPERING.keys())
def test_every_kind_of_tampering_is_found(tmp_path: Path, tamper: Callable[[sqlite3.Connection], object]) -> None:
    path = tmp_path / "rucher.db"
    sealed(path)
    database = sqlite3.connect(path, isolation_level=None)
    database.executescript("DROP TRIGGER events_never_change; DROP TRIGGER events_never_vanish")
    tamper(database)
    database.close()
    assert verified(path).fault


def test_a_seal_of_another_key_is_not_this_nodes(tmp_path: Path) -> None:
    sealed(tmp_path / "rucher.db")
    assert "key" in verified(tmp_path / "rucher.db", SigningKey(bytes([1] * 32))).fault


def test_a_journal_without_a_named_newest_seal_is_not_called_good(tmp_path: Path) -> None:
    sealed(tmp_path / "rucher.db")
    (tmp_path / "seal.head").unlink()
    assert "seal.head" in verified(tmp_path / "rucher.db").fault


def test_sealing_goes_on_after_the_disk_was_full(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_store(tmp_path / "rucher.db", ManualClock()) as store:
            clock = ManualClock()
            sealer = Sealer(store, KEY, tmp_path / "gone" / "seal.head", clock)
            await store.append(said("a"))
            running = asyncio.ensure_future(sealer.run())
            await until(lambda: clock.sleeping == 1)
            (tmp_path / "gone").mkdir()
            clock.advance(60)
            await until((tmp_path / "gone" / "seal.head").exists)
            running.cancel()

    asyncio.run(check())
