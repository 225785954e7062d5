"""The daemon: builds every part of an instance, wires the ports and supervises, until it is told to stop.

Started by `rucher up`. Settings, lock, port, agents, rules and secrets are checked before the journal is opened and anything
is woken, so that a refusal leaves nothing half-done. With the role `worker` it only works on runs, beside a daemon of the same
instance, over the PostgreSQL store that they share.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import structlog
import uvloop

from rucher import __version__
from rucher.control.api import MessageIn, Services, build_app
from rucher.control.bells import Bells
from rucher.control.destinations import Trials, destination_calls
from rucher.control.hops import HopOrders
from rucher.daemon.entrance import open_entrance
from rucher.daemon.hops import StoredHops
from rucher.daemon.lock import Hold, sole_daemon
from rucher.daemon.logs import write_logs_to
from rucher.daemon.models import fetch_weights, warm_quietly
from rucher.daemon.outside import Agents, Outside, PlacesWatch, open_places
from rucher.daemon.rulebook import open_rules
from rucher.daemon.serve import allow_many_files, listen, serve
from rucher.daemon.sessions import Sessions
from rucher.daemon.settings import Settings, load_settings, store_place
from rucher.daemon.sweeping import archive_daily, sweep_daily
from rucher.daemon.work import versions_of
from rucher.daemon.workers import Bench, Place, open_bench
from rucher.engine.weights import Progress
from rucher.instance.agents import load_agents
from rucher.instance.layout import Instance
from rucher.instance.secrets import instance_token, node_key
from rucher.journal.seals import Sealer
from rucher.journal.store import JournalStore, open_store
from rucher.kernel.orders import Orders
from rucher.kernel.timers import Timers
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.errors import BadInput, RucherError
from rucher.protocol.events import DEFAULT_GROUP, Trust, control_event
from rucher.protocol.ids import caused, ulid
from rucher.protocol.ports import Appended, Clock, Deliverer
from rucher.router.dispatch import Destination, Dispatcher
from rucher.router.router import Router
from rucher.surfaces.channels.cli import CliChannel
from rucher.surfaces.delivery import Delivery
from rucher.surfaces.ingress import IncomingMessage, Ingress
from rucher.surfaces.notices import Notices
from rucher.surfaces.sources import SourcesFile

PRIVATE = 0o077
"""The umask of a daemon."""

Announce = Callable[[str], None]
Works = list[Coroutine[Any, Any, None]]

log = structlog.get_logger()


class _Stopped(Exception):
    """The daemon was told to stop; it ends the group of all its tasks."""


def run_daemon(instance: Instance, announce: Announce, on_progress: Progress) -> None:
    """Run the instance until SIGTERM or SIGINT; raises BadInput, with nothing changed, when it cannot run as it is.

    Blocks; an embedded model's weights are fetched before anything else is touched, and Ctrl-C ends that too.
    """
    settings = load_settings(instance)
    _begin(settings, on_progress)
    with _private_files(), sole_daemon(instance.lock) as hold:
        try:
            uvloop.run(
                _until_stopped(lambda stack, stop: _whole(_place(instance, settings), stack, hold, stop, announce))
            )
        except (RucherError, OSError) as error:
            # Whatever fails first in a place that is no longer there, this is why.
            if lost := hold.lost():
                raise lost from error
            raise
    announce("stopped; what was accepted is kept and goes on at the next start")


def run_worker(instance: Instance, announce: Announce, on_progress: Progress) -> None:
    """Work on the instance's runs until SIGTERM or SIGINT; raises BadInput when its store is a file, which one process owns."""
    settings = load_settings(instance)
    if not isinstance(store_place(instance, settings), str):
        raise BadInput(
            "workers share a PostgreSQL store; this instance keeps its journal in a file, which `rucher up` works on alone: "
            f"set store.url in {instance.config}, and see `rucher store copy --help`"
        )
    _begin(settings, on_progress)
    with _private_files():
        uvloop.run(_until_stopped(lambda stack, stop: _worker(_place(instance, settings), stack, stop, announce)))
    announce("stopped; its runs go on elsewhere or at the next start")


def _begin(settings: Settings, on_progress: Progress) -> None:
    fetch_weights(settings.model, on_progress)
    allow_many_files()


@contextmanager
def _private_files() -> Iterator[None]:
    """What is made within is for its owner only, unless it says otherwise."""
    before = os.umask(PRIVATE)
    try:
        yield
    finally:
        os.umask(before)


def _place(instance: Instance, settings: Settings) -> Place:
    return Place(instance, settings, SystemClock(), SystemEntropy(), load_agents(instance.agents))


async def _until_stopped(supervise: Callable[[AsyncExitStack, asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with AsyncExitStack() as stack:
            await supervise(stack, stop)
    except BaseExceptionGroup as group:
        fault = _first_fault(group)
        if fault is not None:
            raise fault from group


async def _whole(at: Place, stack: AsyncExitStack, hold: Hold, stop: asyncio.Event, announce: Announce) -> None:
    instance, settings, clock, entropy = at.instance, at.settings, at.clock, at.entropy
    tenant, owner = settings.instance.tenant, settings.instance.owner
    listener = stack.enter_context(listen(settings.daemon.port, str(instance.config)))
    places = open_places(instance, at.agents)
    rules = open_rules(instance.rules, at.agents, lambda: places.current.names)
    sources = SourcesFile(instance.sources)
    token, key = instance_token(instance.token, entropy), node_key(instance.node_key, entropy)
    stack.callback(write_logs_to(instance.log))
    store = await stack.enter_async_context(open_store(store_place(instance, settings), clock, instance.archive))
    sealer = Sealer(store, key, instance.seal_head, clock)
    await store.belong_to(bytes(key.verify_key).hex())
    await store.be_sole()
    await sealer.demand_whole()
    stack.push_async_callback(_seal_at_last, sealer)
    bench = await open_bench(stack, at, store, "daemon")
    bells = Bells(store, clock)
    ingress = Ingress(store, clock, entropy, tenant, at.agents.keys)
    entrance = open_entrance(instance, store, clock, ingress, sources, tenant)
    sessions = Sessions(bench.kernel, clock, at.agents, bench.model.name, versions_of, settings.budget.ceilings)
    outside = Outside(instance, settings.instance.name, key, store, clock)
    watch = PlacesWatch(places, outside, store, clock, tenant)
    surfaces = {"cli": CliChannel(instance.surfaces / "cli")}
    destinations = _destinations(sessions, outside, lambda deliverers: Delivery(store, clock, deliverers), surfaces)
    orders, hops = Orders(store, clock, f"owner:{owner}"), HopOrders(store, clock, f"owner:{owner}")
    door, more = _door(ingress, owner), (entrance.calls, destination_calls(Trials(store, clock, tenant, outside.find)))
    app = build_app(Services(settings.instance.name, token, store, bells, door, orders, hops, _trouble(store), more))
    await _record_start(store, tenant, clock.now(), ulid(clock.now(), entropy.bytes(10)))
    works: Works = [
        Dispatcher(store, clock, StoredHops(store), destinations, store.head).run(),
        Notices(store, clock, StoredHops(store), tenant, f"cli:{DEFAULT_GROUP}").run(),
        Router(store, clock, rules, tenant, await store.cursor("router")).run(),
        bells.run(store.head),
        sealer.run(),
        watch.run(),
        serve(entrance.doors(app), listener),
        entrance.book.run(),
        sweep_daily(store, instance.artifacts, clock),
        warm_quietly(bench.model, at.agents.get(rules.current.default.removeprefix("agent:"))),
        _stopping(stop, bells.close),
        hold.watch(clock),
        store.stay_sole(),
        *_working(bench, store, clock),
    ]
    if settings.store.keep_days:
        works.append(archive_daily(store, instance.archive, key.verify_key, settings.store.keep_days, clock))
    announce(f"{settings.instance.name} is up on http://127.0.0.1:{settings.daemon.port}; Ctrl-C stops it")
    await _all(works)


def _destinations(
    sessions: Destination,
    outside: Outside,
    delivery: Callable[[Mapping[str, Deliverer]], Destination],
    surfaces: Mapping[str, Deliverer],
) -> dict[str, Destination]:
    """Everything that hops can go to, by kind; each kind has a delivery of its own, as each delivers to other names."""
    kinds = {kind: delivery(outside.of(kind)) for kind in ("webhook", "file", "instance")}
    away = outside.of("agent")
    return {"agent": Agents(sessions, delivery(away), away), "surface": delivery(surfaces), **kinds}


async def _worker(at: Place, stack: AsyncExitStack, stop: asyncio.Event, announce: Announce) -> None:
    instance, settings, clock, entropy = at.instance, at.settings, at.clock, at.entropy
    stack.callback(write_logs_to(instance.state / "worker.log"))
    store = await stack.enter_async_context(open_store(store_place(instance, settings), clock, instance.archive))
    await store.belong_to(bytes(node_key(instance.node_key, entropy).verify_key).hex())
    bench = await open_bench(stack, at, store, "worker")
    announce(f"worker {bench.kernel.worker} of {settings.instance.name} is up; Ctrl-C stops it")
    await _all([*_working(bench, store, clock), _stopping(stop, lambda: None)])


def _working(bench: Bench, store: JournalStore, clock: Clock) -> Works:
    return [bench.worker.run(), bench.pool.run(), Timers(store, clock).run()]


async def _all(works: Works) -> None:
    async with asyncio.TaskGroup() as tasks:
        for work in works:
            tasks.create_task(work)


def _first_fault(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """The first error of a group that is not the wish to stop, one of Rucher's own if there is one."""
    _, rest = group.split(_Stopped)
    if rest is None:
        return None
    ours = rest.subgroup(RucherError)
    fault: BaseException = ours or rest
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault


async def _seal_at_last(sealer: Sealer) -> None:
    """Seal what was committed before the end; when that fails the next start seals it."""
    try:
        await sealer.seal()
    except RucherError as error:
        log.warning("the last events are not sealed yet", reason=str(error))


async def _stopping(stop: asyncio.Event, farewell: Callable[[], None]) -> None:
    await stop.wait()
    farewell()
    raise _Stopped


def _trouble(store: JournalStore) -> Callable[[str], Awaitable[str]]:
    async def trouble(session: str) -> str:
        rows = await store.rows("session.get", session)
        return str(rows[0]["reason"]) if rows and rows[0]["state"] == "stopped" else ""

    return trouble


def _door(ingress: Ingress, owner: str) -> Callable[[MessageIn], Awaitable[Appended]]:
    """What the interface hands messages to: what came with the instance's token came from its owner."""

    async def accept(message: MessageIn) -> Appended:
        return await ingress.accept(_from_owner(message, owner))

    return accept


def _from_owner(message: MessageIn, owner: str) -> IncomingMessage:
    return IncomingMessage(
        source="cli", principal=f"owner:{owner}", trust=Trust.OWNER, text=message.text, group=message.group,
        thread=message.thread, key=message.key, addressed_to=f"agent:{message.agent}" if message.agent else None,
    )  # fmt: skip


async def _record_start(store: JournalStore, tenant: str, now: int, start: str) -> None:
    started = control_event(
        tenant=tenant, part="daemon", kind="daemon.started", key=start, trace_id=caused(start, "trace"),
        occurred_at=now, body={"version": __version__},
    )  # fmt: skip
    await store.append(started)
