"""The hands of this instance's sessions, as the engine's Tools."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rucher.daemon.settings import kit_folder
from rucher.instance.layout import Instance
from rucher.protocol.ports import Clock
from rucher.sandbox.bubblewrap import Bubblewrap
from rucher.sandbox.options import SandboxOptions
from rucher.sandbox.pool import HandsPool


@asynccontextmanager
async def open_hands(instance: Instance, clock: Clock) -> AsyncIterator[HandsPool]:
    """A pool of hands that ends every sandbox when it is left."""
    pool = HandsPool(instance.sessions, Bubblewrap(SandboxOptions(kit_folder()), clock), clock)
    try:
        yield pool
    finally:
        await pool.close()
