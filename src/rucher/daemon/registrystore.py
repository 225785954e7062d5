"""Who is who, as the journal's views hold it: loaded whole for the router, asked one by one at the door."""

from collections.abc import Sequence

from rucher.journal.store import StoreReader
from rucher.router.registry import Engagement, Registry

REMEMBERED = 10_000
"""Users whose role is kept in memory, as reading it costs more than taking the message in."""


class StoredRegistry:
    """The views of users, rooms and roles. `default_policy` is what becomes of unknown senders where no room says it."""

    def __init__(self, store: StoreReader, default_policy: str) -> None:
        self._store = store
        self._default_policy = default_policy
        self._roles: dict[str, str] = {}

    async def load(self) -> Registry:
        """What the views hold now: that and each event after it are what a decision depends on. Raises Retryable."""
        rows = self._store.rows
        registry = Registry(default_policy=self._default_policy)
        for row in await rows("roles.all"):
            registry.roles.setdefault(row["principal"], {})[row["agent"]] = row["role"]
        registry.blocked.update(row["principal"] for row in await rows("users.blocked"))
        registry.policies.update({row["room"]: row["policy"] for row in await rows("rooms.with_policy")})
        registry.engaged.update(Engagement(*row) for row in await rows("engaged.all"))
        return registry

    async def role(self, principal: str) -> str:
        """What this user is to all agents; empty for nobody, and for somebody who is blocked. Raises Retryable.

        It is remembered: whoever changes a role must say `forget` before anybody is told that it was changed.
        """
        roles = self._roles
        if principal not in roles:
            rows = await self._store.rows("roles.of", principal)
            if len(roles) >= REMEMBERED:
                roles.clear()
            roles[principal] = next((str(row["role"]) for row in rows if not row["agent"]), "")
        return roles[principal]

    def forget(self) -> None:
        """Read roles anew from here on. What is being read at this moment is used once, and not remembered."""
        self._roles = {}

    async def held(self, principal: str) -> Sequence[str]:
        """The events of this sender that wait for the owner's word, oldest first. Raises Retryable."""
        return [str(row["event_id"]) for row in await self._store.rows("held.of", principal)]
