"""The mailboxes of this instance's sessions, and their hands as the engine's Tools."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rucher.daemon.settings import kit_folder
from rucher.instance.layout import Instance
from rucher.protocol.ports import Clock
from rucher.sandbox.bubblewrap import Bubblewrap
from rucher.sandbox.mailboxes import Mailboxes
from rucher.sandbox.options import SandboxOptions
from rucher.sandbox.pool import HandsPool


@dataclass(frozen=True, slots=True)
class Hands:
    """What the sessions of one instance share: the registry of their mailboxes, and the pool that uses it too."""

    mailboxes: Mailboxes
    pool: HandsPool


@asynccontextmanager
async def open_hands(instance: Instance, clock: Clock) -> AsyncIterator[Hands]:
    """Ends every sandbox and lets go of every mailbox when it is left."""
    options = SandboxOptions(kit_folder())
    with Mailboxes(instance.sessions, options) as mailboxes:
        pool = HandsPool(mailboxes, Bubblewrap(options, clock), clock)
        try:
            yield Hands(mailboxes, pool)
        finally:
            await pool.close()
