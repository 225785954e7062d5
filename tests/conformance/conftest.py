"""The stores that every suite of stores runs on."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rucher.journal.store import JournalStore, Place, open_store
from tests.fakes import postgres
from tests.fakes.clock import ManualClock
from tests.fakes.kernel import MEMORY

STORES = ("sqlite", "postgres")
Opener = Callable[[], AbstractAsyncContextManager[JournalStore]]


def new_place(kind: str, folder: Path) -> Place:
    """Where a store of this kind can be made that nobody has used yet."""
    return folder / "rucher.db" if kind == "sqlite" else postgres.shared().new_database(_made())


@cache
def _made() -> str:
    """The name of a database that holds an empty store, to be copied: which takes less time than to make one."""

    async def make(url: str) -> None:
        async with open_store(url, ManualClock()):
            pass

    url = postgres.shared().new_database()
    asyncio.run(make(url))
    return urlsplit(url).path.removeprefix("/")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory where there is such a thing: what a disk keeps is proven in tests/chaos."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where the store of this test lies: a file, or a database."""
    return new_place(request.param, tmp_path)


@pytest.fixture
def opened(place: Place) -> Opener:
    """Opens the store of this test, as often as it is called."""
    return lambda: open_store(place, ManualClock())
