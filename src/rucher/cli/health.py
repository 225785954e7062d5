"""What `rucher doctor` looks at in an instance: its files, its journal, its port and its weights.

Called by `rucher.cli.doctor`. It reads only; each finding says what to do.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

from rucher.cli.checks import FAIL, OK, WARN, Check, attempted, secrets, space, this_processor
from rucher.cli.client import Daemon
from rucher.cli.new import is_free
from rucher.cli.ownership import demand_own, public_key
from rucher.daemon.lock import holder_of
from rucher.daemon.rulebook import destinations
from rucher.daemon.settings import EmbeddedModelSettings, Settings, load_settings, store_place, weights_folder
from rucher.engine.weights.pinned import TABLE
from rucher.instance.agents import load_agents
from rucher.instance.layout import Instance
from rucher.journal.seals import verify_last
from rucher.journal.store import StoreReader, read_store
from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import RucherError
from rucher.router.reload import RulesFile

RECENT_US = 7 * 86_400_000_000
"""How far back failed hops are shown."""
SHOWN = 3


def instance_checks(instance: Instance) -> Iterator[Check]:
    """All checks of one instance, in the order in which a person would look."""
    yield Check("instance", OK, str(instance.root))
    yield attempted("rucher.toml", lambda: _settings(instance), "mend that line")
    yield attempted("agents", lambda: _agents(instance), "mend or restore that file")
    yield attempted(
        "rules.toml", lambda: _rules(instance), "mend that line; a running daemon goes on with the old rules"
    )
    yield secrets((instance.token, instance.node_key))
    yield space(instance.root)
    try:
        settings = load_settings(instance)
    except RucherError:
        return
    yield from _journal(instance, settings)
    yield attempted("daemon", lambda: _daemon(instance, settings), f"see the end of {instance.log}")
    if isinstance(settings.model, EmbeddedModelSettings):
        yield this_processor()
        yield _weights(settings.model)


def _settings(instance: Instance) -> Check:
    settings = load_settings(instance)
    return Check("rucher.toml", OK, f"{settings.instance.name}, model {settings.model.kind}")


def _agents(instance: Instance) -> Check:
    names = load_agents(instance.agents)
    if not names:
        return Check("agents", FAIL, f"there are none in {instance.agents}", "put one there; see the kernel's own")
    return Check("agents", OK, ", ".join(names))


def _rules(instance: Instance) -> Check:
    known = destinations(load_agents(instance.agents))
    rules = RulesFile(instance.rules, lambda: known).current
    return Check("rules.toml", OK, f"{len(rules.rules)} rules, version {rules.short_version}")


def _journal(instance: Instance, settings: Settings) -> Iterator[Check]:
    place = store_place(instance, settings)
    if isinstance(place, Path) and not place.exists():
        yield Check("journal", OK, "none yet: the daemon makes it at its first start")
        return

    async def reading() -> list[Check]:
        async with read_store(place, SystemClock()) as store:
            await demand_own(instance, store)
            return [await _opened(store), await _sealed(instance, store), *await _troubles(store)]

    try:
        yield from asyncio.run(reading())
    except RucherError as error:
        yield Check("journal", FAIL, str(error), "do what it says, then look with: rucher journal verify")


async def _opened(store: StoreReader) -> Check:
    return Check("journal", OK, f"{await store.head_seq()} events")


async def _sealed(instance: Instance, store: StoreReader) -> Check:
    if not instance.node_key.exists():
        return Check("seals", WARN, "there is no node key", "start the daemon once, or restore state/node.key")
    try:
        public = public_key(instance)
    except RucherError as error:
        return Check("seals", FAIL, str(error), "restore state/node.key from a backup")
    found = await verify_last(store, public)
    if found.fault:
        return Check("seals", FAIL, found.fault, "see all of it with: rucher journal verify")
    sealed = "the newest holds" if found.seals else "none yet"
    return Check("seals", OK, f"{sealed}, {found.unsealed} events not sealed yet")


async def _troubles(store: StoreReader) -> list[Check]:
    sessions = [row for row in await store.rows("sessions.all") if row["state"] == "stopped"]
    waiting = await store.rows("runs.waiting", SHOWN + 1)
    hops = await store.rows("hops.ended_badly", SystemClock().now() - RECENT_US)
    return [
        _counted(
            "stopped sessions", [f"{row['session_id']} ({row['reason']})" for row in sessions], "mend what it says"
        ),
        _counted("waiting runs", [row["run_id"] for row in waiting], "see what each asks with: rucher runs RUN_ID"),
        _counted(
            "failed hops, 7 days",
            [f"{row['dest']} {row['state']} ({row['detail']})" for row in hops],
            "settle them with: rucher deadletters list",
        ),
    ]


def _counted(name: str, found: list[str], todo: str) -> Check:
    if not found:
        return Check(name, OK, "none")
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return Check(name, WARN, f"{len(found)}: {', '.join(found[:SHOWN])}{more}", todo)


def _daemon(instance: Instance, settings: Settings) -> Check:
    port, holder = settings.daemon.port, holder_of(instance.lock)
    if holder:
        with Daemon(instance) as daemon:
            answer = daemon.call("GET", "/health")
        return Check("daemon", OK, f"runs as {holder} on port {port}, version {answer['version']}")
    if is_free(port):
        return Check("daemon", OK, f"not running; port {port} is free")
    todo = f"stop that program, or set another daemon.port in {instance.config}"
    return Check("daemon", FAIL, f"port {port} is used by another program", todo)


def _weights(model: EmbeddedModelSettings) -> Check:
    if model.path:
        given = Path(model.path).expanduser()
        if given.is_file():
            return Check("weights", OK, f"{given}, {given.stat().st_size:,} bytes")
        return Check("weights", FAIL, f"{given} is not there", "correct model.path in rucher.toml")
    pinned = TABLE[model.name]
    target = weights_folder() / pinned.filename
    if not target.is_file():
        return Check("weights", WARN, f"{target} is not there yet", f"rucher up fetches it: {pinned.size / 1e9:.1f} GB")
    if target.stat().st_size != pinned.size:
        wrong = f"{target} has {target.stat().st_size:,} bytes instead of {pinned.size:,}"
        return Check("weights", FAIL, wrong, "remove that file; rucher up fetches it again")
    return Check("weights", OK, f"{target}, {pinned.size / 1e9:.1f} GB")
