"""The bench at which runs are worked on: kernel, model, hands and the worker itself, the same in a daemon and in a worker."""

import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from rucher.daemon.marks import Marks
from rucher.daemon.models import OpenModel, open_model
from rucher.daemon.settings import Settings, store_place
from rucher.daemon.tools import open_hands
from rucher.daemon.work import Work, Workplace
from rucher.instance.agents import AgentFile
from rucher.instance.layout import Instance
from rucher.journal.artifacts import Artifacts
from rucher.journal.store import JournalStore
from rucher.kernel.fairness import Limits
from rucher.kernel.leases import Identity, Leases
from rucher.kernel.runs import Kernel
from rucher.kernel.worker import Worker
from rucher.protocol.ports import Clock, Entropy
from rucher.sandbox.pool import HandsPool

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Bench:
    """What one process works on runs with."""

    kernel: Kernel
    model: OpenModel
    pool: HandsPool
    worker: Worker


def _files(instance: Instance) -> Mapping[str, Path]:
    return {"rules": instance.rules, "schedule": instance.root / "schedules.toml"}


@dataclass(frozen=True, slots=True)
class Place:
    """The instance, and what was read of it before anything was opened."""

    instance: Instance
    settings: Settings
    clock: Clock
    entropy: Entropy
    agents: Mapping[str, AgentFile]


async def open_bench(stack: AsyncExitStack, at: Place, store: JournalStore, role: str) -> Bench:
    """Everything is let go of when `stack` is left."""
    instance, settings, clock = at.instance, at.settings, at.clock
    model = await stack.enter_async_context(open_model(settings.model, instance))
    hands = await stack.enter_async_context(open_hands(instance, clock))
    kernel = Kernel(store, clock, at.entropy, Artifacts(instance.artifacts))
    marks = Marks(instance.workers)
    stack.enter_context(marks.hold(kernel.worker))
    marks.tidy({row["worker"] for row in await store.rows("workers.all")})
    shared = isinstance(store_place(instance, settings), str)

    def is_dead(row: Mapping[str, Any]) -> bool:
        # Of a file there is one daemon at a time, and this is it.
        return not shared or marks.is_dead(row)

    leases = Leases(
        store,
        clock,
        Identity(kernel.worker, socket.gethostname(), role),
        is_dead,
        notice=lambda what, facts: log.warning(what, **facts),
    )
    body = Work(Workplace(store, clock, hands.mailboxes, model, hands.pool.session, at.agents, _files(instance)))
    given = settings.daemon
    limits = Limits(given.concurrent_runs, given.concurrent_runs_per_agent, given.concurrent_runs_per_mission)
    worker = Worker(store, kernel, clock, body, leases, limits)
    return Bench(kernel, model, hands.pool, worker)
