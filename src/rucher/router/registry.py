"""What a decision needs to know of the instance beyond the event and the rules, as of one place in the journal.

Folded from control-plane events in the order of the journal, so that a decision is a pure function of the three.
The router applies each event that it passes; at start it is given what the store's views hold.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rucher.protocol.events import Event
from rucher.router.authority import RANK


class Engagement(NamedTuple):
    """An agent that was mentioned somewhere, and is engaged there from then on (`engage = "mention-sticky"`)."""

    agent: str
    room: str
    thread: str


@dataclass(slots=True)
class Registry:
    """Who is who. A principal is `user:SURFACE:NAME`, a room `SURFACE:GROUP`; roles are by principal, then by agent ("": all).

    `policies` says what becomes of an unknown sender (`strict`, `ask`, `public`) in a room; `default_policy` elsewhere.
    """

    roles: dict[str, dict[str, str]] = field(default_factory=dict)
    blocked: set[str] = field(default_factory=set)
    policies: dict[str, str] = field(default_factory=dict)
    default_policy: str = "public"
    engaged: set[Engagement] = field(default_factory=set)

    def knows(self, principal: str) -> bool:
        """Whether it has a role here; whoever is no user of a surface (an owner, agent, partner, the system) always has."""
        return not principal.startswith("user:") or bool(self.roles.get(principal))

    def role(self, principal: str, agent: str) -> str:
        """The role that the principal has towards this agent; empty for none."""
        held = self.roles.get(principal, {})
        return max(held.get(agent, ""), held.get("", ""), key=RANK.__getitem__)

    def policy(self, room: str) -> str:
        """What becomes of unknown senders in this room."""
        return self.policies.get(room, self.default_policy)

    def apply(self, event: Event) -> None:
        """Learn what a control-plane event says."""
        body = event.body
        match event.type:
            case "role.granted":
                self.roles.setdefault(body["principal"], {})[body.get("agent", "")] = body["role"]
                self.blocked.discard(body["principal"])
            case "role.revoked":
                held = self.roles.get(body["principal"], {})
                held.pop(body.get("agent", ""), None)
                if not held:
                    self.roles.pop(body["principal"], None)
            case "user.blocked":
                self.blocked.add(body["principal"])
                self.roles.pop(body["principal"], None)
            case "user.unblocked":
                self.blocked.discard(body["principal"])
            case "group.policy":
                self._take_policy(body)
            case "hop.made" if "engaged" in body:
                self.engaged.add(Engagement(**body["engaged"]))
            case "session.reset":
                self.engaged.discard(Engagement(body["agent"], body["room"], body["thread"]))
            case _:
                pass

    def _take_policy(self, body: Mapping[str, str]) -> None:
        if body["policy"]:
            self.policies[body["room"]] = body["policy"]
        else:
            self.policies.pop(body["room"], None)
