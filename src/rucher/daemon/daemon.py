"""The daemon: builds every part of an instance, wires the ports and supervises, until it is told to stop.

Started by `rucher up`. Settings, lock, port, agents, rules and secrets are checked before the journal is opened and anything
is woken, so that a refusal leaves nothing half-done.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import structlog

from rucher import __version__
from rucher.control.api import MessageIn, Services, Verdict, build_app
from rucher.control.bells import Bells
from rucher.daemon.hops import StoredHops
from rucher.daemon.lock import Hold, sole_daemon
from rucher.daemon.logs import write_logs_to
from rucher.daemon.models import fetch_weights, open_model, warm_quietly
from rucher.daemon.resolution import resolve
from rucher.daemon.rulebook import open_rules
from rucher.daemon.serve import allow_many_files, listen, serve
from rucher.daemon.sessions import Sessions, Workplace
from rucher.daemon.settings import Settings, load_settings
from rucher.daemon.tools import open_hands
from rucher.engine.weights import Progress
from rucher.instance.agents import load_agents
from rucher.instance.layout import Instance
from rucher.instance.secrets import instance_token, node_key
from rucher.journal.seals import Sealer
from rucher.journal.store import JournalStore, open_store
from rucher.kernel.runs import Kernel
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.errors import RucherError
from rucher.protocol.events import Trust, control_event
from rucher.protocol.ids import derived, ulid
from rucher.protocol.ports import Appended
from rucher.router.dispatch import Destination, Dispatcher
from rucher.router.router import Router
from rucher.surfaces.channels.cli import CliChannel
from rucher.surfaces.delivery import Delivery
from rucher.surfaces.ingress import IncomingMessage, Ingress

PRIVATE = 0o077
"""The umask of a daemon: what it writes is for its owner only, unless it says otherwise."""


log = structlog.get_logger()


class _Stopped(Exception):
    """The daemon was told to stop; it ends the group of all its tasks."""


def run_daemon(instance: Instance, announce: Callable[[str], None], on_progress: Progress) -> None:
    """Run the instance until SIGTERM or SIGINT; raises BadInput, with nothing changed, when it cannot run as it is.

    Blocks; an embedded model's weights are fetched before anything else is touched, and Ctrl-C ends that too.
    """
    settings = load_settings(instance)
    fetch_weights(settings.model, on_progress)
    os.umask(PRIVATE)
    allow_many_files()
    with sole_daemon(instance.lock) as hold:
        try:
            asyncio.run(_run(instance, settings, hold, announce))
        except (RucherError, OSError) as error:
            # Whatever fails first in a place that is no longer there, this is why.
            if lost := hold.lost():
                raise lost from error
            raise


async def _run(instance: Instance, settings: Settings, hold: Hold, announce: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with AsyncExitStack() as stack:
            await _supervise(instance, settings, stack, hold, stop, announce)
    except BaseExceptionGroup as group:
        fault = _first_fault(group)
        if fault is not None:
            raise fault from group
        announce("stopped; what was accepted is kept and goes on at the next start")


async def _supervise(
    instance: Instance,
    settings: Settings,
    stack: AsyncExitStack,
    hold: Hold,
    stop: asyncio.Event,
    announce: Callable[[str], None],
) -> None:
    clock, entropy = SystemClock(), SystemEntropy()
    tenant, port = settings.instance.tenant, settings.daemon.port
    listener = stack.enter_context(listen(port, str(instance.config)))
    agents = load_agents(instance.agents)
    rules = open_rules(instance.rules, agents)
    token, key = instance_token(instance.token, entropy), node_key(instance.node_key, entropy)
    stack.callback(write_logs_to(instance.log))
    store = await stack.enter_async_context(open_store(instance.journal, clock))
    sealer = Sealer(store, key, instance.seal_head, clock)
    await sealer.demand_whole()
    stack.push_async_callback(_seal_at_last, sealer)
    model = await stack.enter_async_context(open_model(settings.model, instance))
    hands = await stack.enter_async_context(open_hands(instance, clock))
    kernel, bells = Kernel(store, clock, entropy), Bells(store, clock)
    door = _door(Ingress(store, clock, entropy, tenant, agents.keys), settings.instance.owner)
    delivery = Delivery(store, clock, {"cli": CliChannel(instance.surfaces / "cli")})
    limit = settings.daemon.concurrent_runs
    place = Workplace(store, kernel, clock, hands.mailboxes, model, hands.pool.session, agents, limit)
    await _record_start(store, tenant, clock.now(), ulid(clock.now(), entropy.bytes(10)))
    async with asyncio.TaskGroup() as tasks:
        sessions = Sessions(place, tasks)

        async def decide(run_id: str, verdict: Verdict) -> None:
            await sessions.wake(await resolve(store, kernel, run_id, verdict.step, verdict.verdict))

        app = build_app(Services(settings.instance.name, token, store, bells, door, decide, sessions.trouble))
        destinations: dict[str, Destination] = {"agent": sessions, "surface": delivery}
        await sessions.resume()
        for work in (
            Dispatcher(store, clock, StoredHops(store), destinations, store.head).run(),
            Router(store, clock, rules, tenant, await store.cursor("router")).run(),
            bells.run(store.head),
            sealer.run(),
            hands.pool.run(),
            serve(app, listener),
            warm_quietly(model, agents.get(rules.current.default.removeprefix("agent:"))),
            _stopping(stop, bells),
            hold.watch(clock),
        ):
            tasks.create_task(work)
        announce(f"{settings.instance.name} is up on http://127.0.0.1:{port}; Ctrl-C stops it")


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


async def _stopping(stop: asyncio.Event, bells: Bells) -> None:
    await stop.wait()
    bells.close()
    raise _Stopped


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
        tenant=tenant, part="daemon", kind="daemon.started", key=start, trace_id=derived("trace", start),
        occurred_at=now, body={"version": __version__},
    )  # fmt: skip
    await store.append(started)
