"""`rucher journal`: proof that nothing sealed was changed, and the views folded again from the events."""

from dataclasses import asdict

import click
from nacl.signing import VerifyKey

from rucher.cli.reading import read
from rucher.cli.show import clean, document
from rucher.daemon.lock import sole_daemon
from rucher.daemon.settings import find_instance
from rucher.instance.layout import Instance
from rucher.instance.secrets import node_key
from rucher.journal.seals import verify
from rucher.journal.sqlite import SqliteWriter
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.errors import BadInput


@click.group(name="journal")
def journal() -> None:
    """Verify the journal, or fold its views again."""


@journal.command(name="verify")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def verified(context: click.Context, *, as_json: bool) -> None:
    """Check every event against the signed seals; exit 1 when one was changed, removed or put in."""
    instance = find_instance(context.obj)
    public = public_key(instance)
    found = read(context.obj, lambda store: store.call(lambda reader: verify(reader, public, instance.seal_head)))
    if as_json:
        document(asdict(found) | {"ok": not found.fault})
    elif found.fault:
        click.echo(clean(f"broken: {found.fault}"))
        click.echo(f"good up to there: {found.events} events under {found.seals} seals")
    else:
        click.echo(f"good: {found.events} events under {found.seals} seals, {found.unsealed} not sealed yet")
    context.exit(1 if found.fault else 0)


@journal.command(name="rebuild")
@click.pass_context
def rebuild(context: click.Context) -> None:
    """Empty every view and fold it again from the events, which stay as they are; the daemon must be stopped."""
    instance = find_instance(context.obj)
    if not instance.journal.is_file():
        raise BadInput(f"there is no journal at {instance.journal} yet; start the daemon with `rucher up`")
    with sole_daemon(instance.lock):
        writer = SqliteWriter(instance.journal, SystemClock())
        try:
            count = writer.rebuild()
        finally:
            writer.close()
    click.echo(f"folded {count} events again")


def public_key(instance: Instance) -> VerifyKey:
    """The key that this node's seals are checked with; raises BadInput when there is none, and never makes one."""
    if not instance.node_key.is_file():
        raise BadInput(
            f"there is no node key at {instance.node_key}, so no seal can be checked; "
            "the daemon makes one at its first start, or restore yours from a backup"
        )
    return node_key(instance.node_key, SystemEntropy()).verify_key
