"""Laws of the daily retention: what is older than the days set leaves the store, whatever went wrong the day before."""

import asyncio
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from rucher.daemon.settings import load_settings
from rucher.daemon.sweeping import DAY_S, archive_daily
from rucher.instance.layout import Instance
from rucher.journal.seals import Sealer
from rucher.journal.store import JournalStore, open_store
from rucher.protocol.errors import BadInput
from rucher.protocol.events import control_event
from tests.fakes.clock import ManualClock, until
from tests.fakes.drafts import TRACE, said

KEY = SigningKey(bytes(32))


async def a_day(store: JournalStore, clock: ManualClock, folder: Path, key: str) -> None:
    """A message that nobody wants, and its seal."""
    (told,) = await store.append(said(key))
    seen = {"event": told.event.id, "event_seq": told.event.seq, "reason": "x"}
    dropped = control_event(
        tenant="local", part="router", kind="route.dropped", key=key, trace_id=TRACE, occurred_at=1, body=seen
    )
    await store.append(dropped)
    await Sealer(store, KEY, folder / "seal.head", clock).seal()


async def lived(folder: Path, *, spoilt: bool) -> None:
    clock, archive = ManualClock(), folder / "archive"

    def segments() -> list[str]:
        return sorted(path.name for path in archive.glob("*.gz"))

    async with open_store(folder / "rucher.db", clock) as store, asyncio.TaskGroup() as tasks:
        await a_day(store, clock, folder, "first")
        key = SigningKey(bytes([1] * 32)) if spoilt else KEY  # with another's key, no seal holds
        daily = tasks.create_task(archive_daily(store, archive, key.verify_key, 2, clock))
        for day in range(4):
            await until(lambda: clock.sleeping == 1)
            assert len(await store.rows("archives.all")) == (0 if spoilt else max(0, day - 2))
            await a_day(store, clock, folder, f"{day}")
            clock.advance(DAY_S)
        await until(lambda: clock.sleeping == 1)
        assert len(await store.rows("archives.all")) == (0 if spoilt else 2)
        assert spoilt or segments() == ["0000000001-0000000004.jsonl.gz", "0000000005-0000000006.jsonl.gz"]
        daily.cancel()


def test_each_day_what_is_older_than_the_days_set_is_archived(tmp_path: Path) -> None:
    asyncio.run(lived(tmp_path, spoilt=False))


def test_a_journal_that_does_not_verify_is_not_archived_and_the_daemon_lives_on(tmp_path: Path) -> None:
    asyncio.run(lived(tmp_path, spoilt=True))


@pytest.mark.parametrize("days", ["0", "-3", '"a week"'])
def test_days_that_mean_nothing_are_refused_by_name(tmp_path: Path, days: str) -> None:
    (tmp_path / "rucher.toml").write_text(f'[instance]\nname = "hive"\n[store]\nkeep_days = {days}\n')
    with pytest.raises(BadInput, match=r"store\.keep_days"):
        load_settings(Instance(tmp_path))
