"""What a run is: who works, why, on whose account, and by which versions of the engine, the prompt and the tools. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rucher.journal.rows import RunHead
from rucher.protocol.ids import caused

ENGINE_VERSION = 2
"""Raised by hand when recorded steps can no longer be replayed by this code; never derived from the source."""

TERMINAL = frozenset({"done", "partial", "blocked", "failed", "cancelled", "budget_exhausted"})


@dataclass(frozen=True, slots=True)
class Versions:
    """What a run was begun with; hashes are empty where nobody gave one."""

    engine: int = ENGINE_VERSION
    prompt: str = ""
    tools: str = ""

    def continues(self, begun: "Versions") -> bool:
        """Whether what was begun with those versions can be replayed with these.

        A prompt is recorded with the run and replayed from there; the tools are part of what each model call was asked.
        """
        return self.engine == begun.engine and self.tools == begun.tools


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One run. `ceilings` are those of its own account (by measure), and of missions that it is the first to be charged to."""

    run_id: str
    tenant: str
    agent: str
    model: str
    trace_id: str
    session: str
    hop: str = ""
    event: str = ""
    lane: str = ""
    parent: str = ""
    mission: str = ""
    priority: int = 0
    accounts: tuple[str, ...] = ()
    """Which budgets its steps are charged to: its own first, then up the tree; none when nothing limits it."""
    ceilings: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    versions: Versions = Versions()

    @property
    def head(self) -> RunHead:
        """What all of its events share."""
        return RunHead(self.run_id, self.tenant, self.trace_id, self.hop or self.parent or None)

    def created(self) -> dict[str, Any]:
        """The body of its first event."""
        return {
            "run": self.run_id, "session": self.session, "lane": self.lane or self.session, "agent": self.agent,
            "model": self.model, "hop": self.hop, "event": self.event, "parent": self.parent, "mission": self.mission,
            "priority": self.priority, "accounts": list(self.accounts),
            "budget": {account: dict(self.ceilings.get(account, {})) for account in self.accounts},
            "engine_version": self.versions.engine, "prompt_hash": self.versions.prompt, "tools_hash": self.versions.tools,
        }  # fmt: skip


def run_of_hop(hop: str) -> str:
    """The id of the run that a hop causes, so that one hop never has two runs."""
    return caused(hop, "run")


def run_of_row(row: Mapping[str, Any]) -> RunSpec:
    """The run that a row of the view `runs` tells of."""
    return RunSpec(
        run_id=row["run_id"], tenant=row["tenant"], agent=row["agent"], model=row["model"], trace_id=row["trace_id"],
        session=row["session_id"], hop=row["hop_id"], event=row["event_id"], lane=row["lane"], parent=row["parent_id"],
        mission=row["mission"], priority=row["priority"], accounts=tuple(json.loads(row["accounts"])),
        versions=Versions(row["engine_version"], row["prompt_hash"], row["tools_hash"]),
    )  # fmt: skip
