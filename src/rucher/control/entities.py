"""REST for what an owner orders about users, groups and sessions.

Part of the interface that `api.py` builds; each call is one order of `rucher.router.entities`, and decides nothing itself.
"""

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from rucher.control.orders import Key
from rucher.router.entities import Entities, Order


class About(BaseModel):
    """An order about a user, a group or a session, named by `who`; given twice with the same key it is one order."""

    model_config = ConfigDict(extra="forbid")

    key: Key
    who: str


class Role(About):
    """A role with one agent, or with all of them."""

    role: str
    agent: str = ""


class Revoked(About):
    """The role with one agent, or the one with all of them."""

    agent: str = ""


class Named(About):
    """A name; empty for none."""

    name: str


class Policy(About):
    """What becomes of unknown senders."""

    policy: str


def entity_orders(entities: Entities, owner: str) -> APIRouter:
    """The calls below `/users`, `/groups` and `/sessions`, in the name of the owner (a principal)."""
    router = APIRouter()
    _user_orders(router, entities, owner)

    @router.post("/groups/name", status_code=204)
    async def name_group(about: Named) -> None:
        await entities.name_group(Order(owner, about.key), about.who, about.name)

    @router.post("/groups/policy", status_code=204)
    async def policy(about: Policy) -> None:
        await entities.policy(Order(owner, about.key), about.who, about.policy)

    @router.post("/sessions/reset", status_code=204)
    async def reset(about: About) -> None:
        await entities.reset(Order(owner, about.key), about.who)

    @router.post("/sessions/restart", status_code=204)
    async def restart(about: About) -> None:
        await entities.restart(Order(owner, about.key), about.who)

    return router


def _user_orders(router: APIRouter, entities: Entities, owner: str) -> None:
    @router.post("/users/grant")
    async def grant(about: Role) -> dict[str, int]:
        return {"released": await entities.grant(Order(owner, about.key), about.who, about.role, about.agent)}

    @router.post("/users/admit")
    async def admit(about: About) -> dict[str, int]:
        return {"released": await entities.admit(Order(owner, about.key), about.who)}

    @router.post("/users/revoke", status_code=204)
    async def revoke(about: Revoked) -> None:
        await entities.revoke(Order(owner, about.key), about.who, about.agent)

    @router.post("/users/block")
    async def block(about: About) -> dict[str, int]:
        return {"dropped": await entities.block(Order(owner, about.key), about.who)}

    @router.post("/users/unblock", status_code=204)
    async def unblock(about: About) -> None:
        await entities.unblock(Order(owner, about.key), about.who)

    @router.post("/users/name", status_code=204)
    async def name_user(about: Named) -> None:
        await entities.name_user(Order(owner, about.key), about.who, about.name)
