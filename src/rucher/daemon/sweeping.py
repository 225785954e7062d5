"""What is put in order once a day: artifacts that nothing refers to are removed, and old events archived."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import structlog
from nacl.signing import VerifyKey

from rucher.journal.archive import archive
from rucher.journal.artifacts import Artifacts
from rucher.journal.store import JournalStore
from rucher.protocol.backoff import surely
from rucher.protocol.errors import BadInput, Corrupt
from rucher.protocol.ports import Clock

DAY_S = 86_400.0
_US = 1_000_000
log = structlog.get_logger()


async def sweep_daily(store: JournalStore, folder: Path, clock: Clock) -> None:
    """Remove what killed runs wrote and did not come to record, now and then each day, until cancelled."""
    artifacts = Artifacts(folder)

    async def sweep() -> int:
        known = {str(row["digest"]) for row in await store.rows("artifacts.all")}

        def referenced(digests: Iterable[str]) -> set[str]:
            return known.intersection(digests)

        return await asyncio.to_thread(artifacts.sweep, referenced, DAY_S, clock.now() / 1e6)

    while True:
        if removed := await surely(clock, sweep):
            log.info("unreferenced artifacts were removed", count=removed)
        await clock.sleep(DAY_S)


async def archive_daily(store: JournalStore, folder: Path, public: VerifyKey, keep_days: int, clock: Clock) -> None:
    """Archive events older than so many days, now and then each day, until cancelled."""

    async def once() -> int:
        before_us = clock.now() - keep_days * round(DAY_S) * _US
        return (await archive(store, folder, public, clock, before_us, lambda _done, _total: None)).events

    while True:
        try:
            if archived := await surely(clock, once):
                log.info("old events were archived", count=archived, folder=str(folder))
        except (Corrupt, BadInput) as error:
            # The journal still works: what is wrong with it is told each day until it is mended.
            log.error("old events cannot be archived", reason=str(error))  # noqa: TRY400 - the reason is the whole story
        await clock.sleep(DAY_S)
