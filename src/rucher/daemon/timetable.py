"""The schedules of an instance, put together: the file, what carries it out, its gates and its proposals.

Called by the daemon at start, and by commands that read the file while no daemon runs.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from rucher.daemon.gates import ScriptGates
from rucher.daemon.settings import Settings, zone_of
from rucher.instance.layout import Instance
from rucher.journal.store import JournalStore
from rucher.protocol.ports import Clock
from rucher.sandbox.pool import HandsPool
from rucher.surfaces.schedules.file import SchedulesFile
from rucher.surfaces.schedules.proposals import Proposals
from rucher.surfaces.schedules.runner import Schedules


@dataclass(frozen=True, slots=True)
class Timetable:
    """What the daemon runs, and what its interface calls."""

    schedules: Schedules
    proposals: Proposals


def open_schedules(
    instance: Instance, settings: Settings, destinations: Callable[[], Collection[str]], path: Path | None = None
) -> SchedulesFile:
    """The schedules file, or another one in its place; raises BadInput when it cannot be used."""
    return SchedulesFile(path or instance.schedules, instance.root, destinations, zone_of(settings))


def timetable(file: SchedulesFile, store: JournalStore, clock: Clock, pool: HandsPool, tenant: str) -> Timetable:
    """The parts that work with the file; its folder is that of the instance."""
    gates = ScriptGates(pool, file.root, tenant)
    return Timetable(Schedules(store, clock, file, gates, tenant), Proposals(store, clock, file, tenant))
