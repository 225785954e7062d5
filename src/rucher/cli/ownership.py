"""Whose a store is, and who works on it: asked by commands before they read it as theirs, or change it as a whole."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nacl.signing import VerifyKey

from rucher.cli.show import iso
from rucher.daemon.lock import holder_of
from rucher.daemon.marks import Marks
from rucher.instance.layout import Instance
from rucher.instance.secrets import node_key
from rucher.journal.places import shown
from rucher.journal.store import Place, StoreReader
from rucher.protocol.clock import SystemEntropy
from rucher.protocol.errors import BadInput


def public_key(instance: Instance) -> VerifyKey:
    """The key that this node's seals are checked with; raises BadInput when there is none, and never makes one."""
    if not instance.node_key.is_file():
        raise BadInput(
            f"there is no node key at {instance.node_key}, so no seal can be checked; "
            "the daemon makes one at its first start, or restore yours from a backup"
        )
    return node_key(instance.node_key, SystemEntropy()).verify_key


async def demand_own(instance: Instance, store: StoreReader) -> None:
    """Raise BadInput when the store says that it belongs to another instance."""
    owner = await store.meta("instance")
    if not owner:
        return
    key = bytes(public_key(instance)).hex() if instance.node_key.is_file() else ""
    if owner != key:
        mine = f"with {key[:12]}" if key else "is not made yet"
        raise BadInput(
            f"this store belongs to another instance (its node key begins with {owner[:12]}, that of {instance.root} "
            f"{mine}); name the instance that it belongs to with --dir"
        )


async def demand_idle(instance: Instance, place: Place, store: StoreReader) -> None:
    """Raise BadInput while somebody works on the store; the instance's lock is held by the command that asks."""
    if isinstance(place, Path):
        return
    for worker in workers(instance, place, await store.rows("workers.all")):
        if worker["state"] == "working":
            raise BadInput(
                f"worker {worker['worker']} on {worker['host']} works on {shown(place)}; stop it first (if it was killed, "
                "a daemon notices within two minutes)"
            )


def workers(instance: Instance, place: Place, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Who works on the store; of a file nobody does but the daemon that holds the instance."""
    marks, alone = Marks(instance.workers), isinstance(place, Path) and not holder_of(instance.lock)
    return [
        {name: row[name] for name in ("worker", "host", "role")}
        | {"started_at": iso(row["started_at"]), "state": "dead" if alone or marks.is_dead(row) else "working"}
        for row in rows
    ]
