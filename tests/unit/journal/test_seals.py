"""Whatever is done to a sealed journal behind its back is found."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from rucher.journal.seals import Sealer, Verified, node_key, verify
from rucher.journal.sqlite import SqliteReader
from rucher.journal.store import open_store
from rucher.protocol.clock import SystemEntropy
from rucher.protocol.errors import BadInput
from tests.fakes.clock import ManualClock
from tests.fakes.drafts import said

KEY = SigningKey(bytes(32))


def sealed(path: Path, batches: int = 2) -> None:
    async def write() -> None:
        async with open_store(path, ManualClock()) as store:
            sealer = Sealer(store, KEY, ManualClock())
            for batch in range(batches):
                await store.append(*(said(f"{batch}-{number}") for number in range(5)))
                await sealer.seal()

    asyncio.run(write())


def verified(path: Path, key: SigningKey = KEY) -> Verified:
    reader = SqliteReader(path)
    try:
        return verify(reader, key.verify_key)
    finally:
        reader.close()


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


def test_the_node_key_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    made = node_key(path, SystemEntropy())
    assert node_key(path, SystemEntropy()) == made
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("nonsense")
    with pytest.raises(BadInput, match="backup"):
        node_key(path, SystemEntropy())
