"""Which of the runs that could go on are taken next: a pure decision, the same for every worker.

Whoever has the fewest runs in hand goes first: among tenants, then among the agents of a tenant; within an agent the higher
priority, then the older run. Of those with equally many, the one whose next run is older: so a priority gives nobody an
advantage over other agents. A limit that is reached lets everybody else pass.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Limits:
    """The most runs that are worked on at once: by one worker, of one agent, of one mission; None is no limit."""

    worker: int = 16
    agent: int | None = None
    mission: int | None = None


def choose(
    candidates: Sequence[Mapping[str, Any]], held: Sequence[Mapping[str, Any]], limits: Limits, free: int
) -> list[str]:
    """The ids of up to `free` candidates (rows of `runs`), given what is held already (rows of `claims.counts`)."""
    tenants: Counter[str] = Counter()
    agents: Counter[tuple[str, str]] = Counter()
    missions: Counter[str] = Counter()
    for row in held:
        tenants[row["tenant"]] += row["count"]
        agents[row["tenant"], row["agent"]] += row["count"]
        missions[row["mission"]] += row["count"]

    def may_go(row: Mapping[str, Any]) -> bool:
        agent_free = limits.agent is None or agents[row["tenant"], row["agent"]] < limits.agent
        mission_free = limits.mission is None or not row["mission"] or missions[row["mission"]] < limits.mission
        return agent_free and mission_free

    chosen: list[str] = []
    left = sorted(candidates, key=lambda row: (-row["priority"], row["seq"]))
    while left and len(chosen) < free:
        first: dict[tuple[str, str], Mapping[str, Any]] = {}
        for row in filter(may_go, left):
            first.setdefault((row["tenant"], row["agent"]), row)
        if not first:
            break
        best = min(
            first.values(), key=lambda row: (tenants[row["tenant"]], agents[row["tenant"], row["agent"]], row["seq"])
        )
        left.remove(best)
        chosen.append(best["run_id"])
        tenants[best["tenant"]] += 1
        agents[best["tenant"], best["agent"]] += 1
        missions[best["mission"]] += 1
    return chosen
