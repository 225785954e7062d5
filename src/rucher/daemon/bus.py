"""The bus of an instance, wired: what comes in by which door, by which rules it is routed, and where it goes.

Used by the daemon. The owner's files are opened first, before the journal, so that a refusal leaves nothing half-done.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from nacl.signing import SigningKey
from starlette.types import ASGIApp

from rucher.control.api import MessageIn
from rucher.control.destinations import Trials, destination_calls
from rucher.control.entities import entity_orders
from rucher.control.hops import HopOrders, hop_orders
from rucher.control.orders import run_orders
from rucher.control.rulebook import rule_proposals
from rucher.control.schedules import schedule_orders
from rucher.daemon.entrance import open_entrance
from rucher.daemon.hops import StoredHops
from rucher.daemon.outside import Agents, Outside, PlacesWatch, open_places
from rucher.daemon.registrystore import StoredRegistry
from rucher.daemon.rulebook import destinations as known_destinations
from rucher.daemon.rulebook import open_rules
from rucher.daemon.sessions import Sessions
from rucher.daemon.timetable import open_schedules, timetable
from rucher.daemon.work import versions_of
from rucher.daemon.workers import Bench, Place
from rucher.journal.store import JournalStore
from rucher.kernel.orders import Orders
from rucher.protocol.events import DEFAULT_GROUP, Trust
from rucher.protocol.livefile import LiveFile
from rucher.protocol.ports import Appended, Deliverer
from rucher.router.dispatch import Destination, Dispatcher
from rucher.router.entities import Entities
from rucher.router.proposals import Proposals
from rucher.router.reload import RulesFile
from rucher.router.router import Router
from rucher.surfaces.channels.cli import CliChannel
from rucher.surfaces.delivery import Delivery
from rucher.surfaces.destinations import Places
from rucher.surfaces.ingress import IncomingMessage, Ingress
from rucher.surfaces.notices import Notices
from rucher.surfaces.schedules.file import SchedulesFile
from rucher.surfaces.sources import SourcesFile

Works = list[Coroutine[Any, Any, None]]
"""What a daemon does until it is stopped."""


@dataclass(frozen=True, slots=True)
class OwnersFiles:
    """The files that say what comes in, where it may go, when something is said, and who wakes."""

    sources: SourcesFile
    places: LiveFile[Places]
    planned: SchedulesFile
    rules: RulesFile


def open_files(at: Place) -> OwnersFiles:
    """Read them all; raises BadInput for the first that cannot be used."""
    instance, agents = at.instance, at.agents
    places = open_places(instance, agents)
    planned = open_schedules(instance, at.settings, lambda: known_destinations(agents) | set(places.current.names))
    rules = open_rules(instance.rules, agents, lambda: places.current.names)
    return OwnersFiles(SourcesFile(instance.sources), places, planned, rules)


@dataclass(frozen=True, slots=True)
class Bus:
    """What the daemon runs and serves of it: `doors` go around the interface, `calls` join it."""

    accept: Callable[[MessageIn], Awaitable[Appended]]
    calls: Sequence[APIRouter]
    doors: Callable[[ASGIApp], ASGIApp]
    works: Works


async def open_bus(at: Place, files: OwnersFiles, store: JournalStore, bench: Bench, key: SigningKey) -> Bus:
    """The bus of an instance whose journal is open; it does nothing until its works are run."""
    instance, settings, clock = at.instance, at.settings, at.clock
    tenant, me = settings.instance.tenant, f"owner:{settings.instance.owner}"
    known = StoredRegistry(store, settings.instance.unknown_senders)
    ingress = Ingress(store, clock, at.entropy, tenant, at.agents.keys, known)
    entrance = open_entrance(instance, store, clock, ingress, files.sources, tenant)
    outside = Outside(instance, settings.instance.name, key, store, clock)
    times = timetable(files.planned, store, clock, bench.pool, tenant)
    entities = Entities(store, clock, tenant, at.agents.keys, bench.pool.end_sandbox, known.forget)
    calls = (
        run_orders(Orders(store, clock, me)),
        entity_orders(entities, me),
        hop_orders(HopOrders(store, clock, me)),
        destination_calls(Trials(store, clock, tenant, outside.find)),
        schedule_orders(times.schedules, times.proposals, me),
        rule_proposals(Proposals(store, clock, files.rules, tenant), me),
        entrance.calls,
    )
    hops = StoredHops(store)
    works: Works = [
        Dispatcher(store, clock, hops, _destinations(at, store, bench, outside), store.head).run(),
        Notices(store, clock, hops, tenant, f"cli:{DEFAULT_GROUP}").run(),
        Router(store, clock, files.rules, known, tenant, await store.cursor("router")).run(),
        PlacesWatch(files.places, outside, store, clock, tenant).run(),
        times.schedules.run(),
        entrance.book.run(),
    ]
    return Bus(_door(ingress, me), calls, entrance.doors, works)


def _destinations(at: Place, store: JournalStore, bench: Bench, outside: Outside) -> dict[str, Destination]:
    """Everything that hops can go to, by kind; each kind has a delivery of its own, as each delivers to other names."""
    clock, ceilings = at.clock, at.settings.budget.ceilings

    def delivery(deliverers: Mapping[str, Deliverer]) -> Delivery:
        return Delivery(store, clock, deliverers)

    sessions = Sessions(bench.kernel, store, clock, at.agents, bench.model.name, versions_of, ceilings)
    away = outside.of("agent")
    return {
        "agent": Agents(sessions, delivery(away), away),
        "surface": delivery({"cli": CliChannel(at.instance.surfaces / "cli")}),
        **{kind: delivery(outside.of(kind)) for kind in ("webhook", "file", "instance")},
    }


def _door(ingress: Ingress, owner: str) -> Callable[[MessageIn], Awaitable[Appended]]:
    """What the interface hands messages to: what came with the instance's token came from its owner."""

    async def accept(message: MessageIn) -> Appended:
        return await ingress.accept(_from_owner(message, owner))

    return accept


def _from_owner(message: MessageIn, owner: str) -> IncomingMessage:
    return IncomingMessage(
        source="cli", principal=owner, trust=Trust.OWNER, text=message.text, group=message.group,
        thread=message.thread, key=message.key, addressed_to=f"agent:{message.agent}" if message.agent else None,
    )  # fmt: skip
