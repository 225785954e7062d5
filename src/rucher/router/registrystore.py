"""Where the router learns who is who when it starts, and which events wait for a word about their sender."""

from collections.abc import Sequence
from typing import Protocol

from rucher.router.registry import Registry


class RegistryStore(Protocol):
    """The registry as of what is committed."""

    async def load(self) -> Registry:
        """A registry of the caller's own."""
        ...

    async def held(self, principal: str) -> Sequence[str]:
        """The ids of the events of this principal that are held, in order."""
        ...
