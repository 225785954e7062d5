"""The daemon: builds every part of an instance, wires the ports and supervises, until it is told to stop.

Started by `rucher up`. Settings, lock, port, agents and rules are checked before anything is written or woken, so that a
refusal leaves nothing half-done.
"""

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack

from rucher import __version__
from rucher.control.api import MessageIn, Services, Verdict, build_app
from rucher.control.bells import Bells
from rucher.daemon.hops import StoredHops
from rucher.daemon.lock import sole_daemon
from rucher.daemon.logs import write_logs_to
from rucher.daemon.mailboxes import Mailboxes
from rucher.daemon.models import open_model, warm_quietly
from rucher.daemon.resolution import resolve
from rucher.daemon.rulebook import open_rules
from rucher.daemon.serve import listen, serve
from rucher.daemon.sessions import Sessions, Workplace
from rucher.daemon.settings import Settings, load_settings
from rucher.daemon.tools import open_hands
from rucher.engine.weights import Progress
from rucher.instance.agents import load_agents
from rucher.instance.layout import Instance
from rucher.instance.token import instance_token
from rucher.journal.seals import Sealer, node_key
from rucher.journal.store import JournalStore, open_store
from rucher.kernel.runs import Kernel
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.events import Trust, control_event
from rucher.protocol.ids import derived, ulid
from rucher.protocol.ports import Appended
from rucher.router.dispatch import Destination, Dispatcher
from rucher.router.router import Router
from rucher.surfaces.channels.cli import CliChannel
from rucher.surfaces.delivery import Delivery
from rucher.surfaces.ingress import IncomingMessage, Ingress


class _Stopped(Exception):
    """The daemon was told to stop; it ends the group of all its tasks."""


async def run_daemon(instance: Instance, announce: Callable[[str], None], on_progress: Progress) -> None:
    """Run the instance until SIGTERM or SIGINT; raises BadInput, with nothing changed, when it cannot run as it is."""
    settings = load_settings(instance)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with sole_daemon(instance.lock):
        try:
            await _supervise(instance, settings, stop, announce, on_progress)
        except* _Stopped:
            announce("stopped; what was accepted is kept and goes on at the next start")


async def _supervise(
    instance: Instance, settings: Settings, stop: asyncio.Event, announce: Callable[[str], None], on_progress: Progress
) -> None:
    clock, entropy = SystemClock(), SystemEntropy()
    tenant, port = settings.instance.tenant, settings.daemon.port
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(listen(port, str(instance.config)))
        agents = load_agents(instance.agents)
        rules = open_rules(instance.rules, agents)
        write_logs_to(instance.log)
        store = await stack.enter_async_context(open_store(instance.journal, clock))
        model = await stack.enter_async_context(open_model(settings.model, instance, on_progress))
        mailboxes = stack.enter_context(Mailboxes(instance.sessions))
        hands = await stack.enter_async_context(open_hands(instance, clock))
        kernel, bells = Kernel(store, clock, entropy), Bells(store)
        ingress = Ingress(store, clock, entropy, tenant, agents.keys)
        delivery = Delivery(store, clock, {"cli": CliChannel(instance.surfaces / "cli")})
        sealer = Sealer(store, node_key(instance.node_key, entropy), clock)
        place = Workplace(
            store, kernel, clock, mailboxes, model, hands.session, agents, settings.daemon.concurrent_runs
        )
        router = Router(store, clock, rules, tenant, await store.cursor("router"))
        await _record_start(store, tenant, clock.now(), ulid(clock.now(), entropy.bytes(10)))
        async with asyncio.TaskGroup() as tasks:
            sessions = Sessions(place, tasks)

            async def accept(message: MessageIn) -> Appended:
                return await ingress.accept(_from_owner(message, settings.instance.owner))

            async def decide(run_id: str, verdict: Verdict) -> None:
                sessions.nudge(await resolve(store, kernel, run_id, verdict.step, verdict.verdict))

            token = instance_token(instance.token, entropy)
            app = build_app(Services(settings.instance.name, token, store, bells, accept, decide))
            destinations: dict[str, Destination] = {"agent": sessions, "surface": delivery}
            await sessions.resume()
            tasks.create_task(
                Dispatcher(store, clock, StoredHops(store), destinations, store.head).run(), name="dispatcher"
            )
            tasks.create_task(router.run(), name="router")
            tasks.create_task(bells.run(store.head), name="bells")
            tasks.create_task(sealer.run(), name="sealer")
            tasks.create_task(hands.run(), name="idle hands")
            tasks.create_task(serve(app, listener), name="http")
            tasks.create_task(warm_quietly(model, agents[rules.current.default.removeprefix("agent:")]), name="warm")
            tasks.create_task(_stopping(stop), name="stop")
            announce(f"{settings.instance.name} is up on http://127.0.0.1:{port}; Ctrl-C stops it")


async def _stopping(stop: asyncio.Event) -> None:
    await stop.wait()
    raise _Stopped


def _from_owner(message: MessageIn, owner: str) -> IncomingMessage:
    """What came with the instance's token came from its owner."""
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
