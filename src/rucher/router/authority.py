"""Who may order what about users, rooms and sessions: one pure function, asked before every such order."""

from collections.abc import Mapping
from dataclasses import dataclass

ROLES = ("owner", "admin", "member")
"""What a user can be, from most to least."""

RANK = {role: place for place, role in enumerate(("", *reversed(ROLES)))}
"""How much each is, from 0 for whoever has no role."""
_ADMITTING = frozenset({"grant", "revoke", "block", "unblock", "name user", "name group"})
"""What an admin may do, to whoever is neither owner nor admin."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants to order.

    `role` is what would be granted or revoked, `agent` the only agent that it is about (empty: all of them), and `theirs` the
    role that the user whom it is about has there now.
    """

    order: str
    role: str = ""
    agent: str = ""
    theirs: str = ""


def refusal(roles: Mapping[str, str], wish: Wish) -> str:
    """Why whoever has these roles, by agent (empty: all), may not order this; empty when he may.

    An owner may order everything. An admin lets members in and keeps strangers out: he grants and revokes the role of a
    member, blocks, unblocks and names, but nobody of his own rank. A role with one agent counts for what is about it alone.
    """
    rank = max(RANK.get(roles.get("", ""), 0), RANK.get(roles.get(wish.agent, ""), 0))
    if rank == RANK["owner"]:
        return ""
    if rank < RANK["admin"]:
        return "only owners and admins may order this"
    if wish.order not in _ADMITTING or RANK.get(wish.role, 0) > RANK["member"]:
        return "only an owner may order this"
    if RANK.get(wish.theirs, 0) > RANK["member"]:
        return "only an owner may order this about an owner or admin"
    return ""
