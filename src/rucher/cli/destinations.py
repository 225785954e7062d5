"""`rucher destinations`: where events can go besides agents and surfaces; tried, listed, and given their secrets."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from rucher.cli.client import Daemon
from rucher.cli.ownership import public_key
from rucher.cli.show import clean, document, table
from rucher.daemon.outside import open_places, webhook_secrets
from rucher.daemon.settings import find_instance
from rucher.instance.agents import load_agents
from rucher.instance.layout import Instance
from rucher.instance.secretfiles import read_secrets, rotated, valid, write_secrets
from rucher.instance.text import bytes_of
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.errors import BadInput
from rucher.protocol.ids import ulid
from rucher.protocol.tomltext import suggestion
from rucher.surfaces.channels.instance import public_text
from rucher.surfaces.channels.webhook import key_of, secret_of
from rucher.surfaces.destinations import Places, parse

COLUMNS = ("DESTINATION", "WHERE", "STATE")
OVERLAP_US = 24 * 3600 * 1_000_000
"""How long a secret stays good after a newer one was made."""
LONGEST_TRIAL_S = 100.0
_KEY_BYTES = 32
_EXIT = {"delivered": 0, "later": 3}

Row = Mapping[str, str]


@click.group(name="destinations")
def destinations() -> None:
    """List, check and try where events can go besides agents and surfaces."""


@destinations.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def listed(context: click.Context, *, as_json: bool) -> None:
    """List webhooks, files and other instances, and the agents that run there."""
    instance = find_instance(context.obj)
    rows = list(_rows(instance, _places(instance)))
    if as_json:
        document(rows)
    else:
        table(COLUMNS, [(row["destination"], row["where"], row["state"]) for row in rows])


@destinations.command(name="check")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.pass_context
def check(context: click.Context, file: Path | None) -> None:
    """Say whether FILE (the instance's own, if none is given) would be taken, as a daemon would; changes nothing."""
    instance = find_instance(context.obj)
    path = file or instance.destinations
    if file is None and not path.exists():
        click.echo(clean(f"{path}: there is none, which is fine: nothing is sent outside"))
        return
    taken = parse(bytes_of(path, "put the destinations file there"), path, load_agents(instance.agents))
    click.echo(clean(f"{path}: good; destinations: {len(taken.names)}, agents elsewhere: {len(taken.at)}"))


@destinations.command(name="secret")
@click.argument("name")
@click.option("--rotate", is_flag=True, help="Make a new one; the old one signs too for 24 hours.")
@click.pass_context
def secret(context: click.Context, name: str, *, rotate: bool) -> None:
    """Print what the receiver of NAME verifies with: the secret of a webhook, or this node's public key.

    A webhook's secret is made when there is none.
    """
    instance = find_instance(context.obj)
    to = _found(_places(instance), name)
    kind, _, short = to.partition(":")
    if kind == "instance":
        if rotate:
            raise BadInput("this node's key seals its journal, so it is not rotated here; leave out --rotate")
        click.echo(public_text(public_key(instance)))
        click.echo("as public_key of this instance's [[source]] in the other's sources.toml, scheme ed25519", err=True)
    elif kind == "webhook":
        click.echo(_webhook_secret(instance, short, rotate=rotate))
        click.echo("the receiver verifies with it, by Standard Webhooks; keep it secret", err=True)
    else:
        raise BadInput(f"{to} needs no secret: it is a file")


@destinations.command(name="send")
@click.argument("name")
@click.argument("text")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def send(context: click.Context, name: str, text: str, *, as_json: bool) -> None:
    """Send TEXT to NAME now, past the rules, and say what became of it."""
    instance = find_instance(context.obj)
    if not text.strip():
        raise BadInput("there is nothing to send; give it as TEXT")
    trial = {
        "key": ulid(SystemClock().now(), SystemEntropy().bytes(10)),
        "to": _found(_places(instance), name),
        "text": text,
    }
    with Daemon(instance) as daemon:
        said = daemon.call("POST", "/destinations/send", json=trial, wait_s=LONGEST_TRIAL_S)
    if as_json:
        document(said)
    elif said["outcome"] == "delivered":
        receipt = ", ".join(f"{key} {value}" for key, value in said["receipt"].items() if value != "")
        click.echo(clean(f"delivered to {said['to']}: {receipt}"))
    else:
        click.echo(clean(f"rucher: {said['outcome']}: {said['reason']}"), err=True)
    context.exit(_EXIT.get(str(said["outcome"]), 1))


def _places(instance: Instance) -> Places:
    return open_places(instance, load_agents(instance.agents)).current


def _found(places: Places, name: str) -> str:
    """The full name of the destination that is meant; the kind may be left out where that says enough."""
    fitting = sorted(one for one in places.names if name in (one, one.partition(":")[2]))
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise BadInput(f"{name[:100]} may be {' or '.join(fitting)}; give the whole name")
    known = places.names if ":" in name else {one.partition(":")[2] for one in places.names}
    raise BadInput(f"there is no destination {name[:100]!r}; {suggestion(name[:100], known)}")


def _rows(instance: Instance, places: Places) -> Iterator[Row]:
    """Each destination, where it is, and whether it could be used now, as far as this machine can tell."""
    for name, webhook in places.webhooks.items():
        yield _row(f"webhook:{name}", webhook.url, _secret_state(instance, name))
    for name, file in places.files.items():
        there = file.inside or file.path.parent.is_dir()
        yield _row(f"file:{name}", str(file.path), "ready" if there else "its folder is missing")
    for name, remote in places.remotes.items():
        yield _row(f"instance:{name}", remote.url, "ready" if instance.node_key.is_file() else "no node key yet")
    for agent, remote_name in places.at.items():
        yield _row(f"agent:{agent}", f"instance:{remote_name}", "runs there")


def _row(destination: str, where: str, state: str) -> Row:
    return {"destination": destination, "where": where, "state": state}


def _secret_state(instance: Instance, name: str) -> str:
    try:
        secrets = valid(read_secrets(webhook_secrets(instance, name)), SystemClock().now())
        for one in secrets:
            key_of(one, name)
    except BadInput as error:
        return str(error)
    return "ready" if secrets else f"no secret: rucher destinations secret {name}"


def _webhook_secret(instance: Instance, name: str, *, rotate: bool) -> str:
    path, now = webhook_secrets(instance, name), SystemClock().now()
    secrets = read_secrets(path)
    if not secrets or rotate:
        instance.state.mkdir(exist_ok=True)
        secrets = rotated(secrets, secret_of(SystemEntropy().bytes(_KEY_BYTES)), now, OVERLAP_US)
        write_secrets(path, secrets)
    key_of(secrets[0].text, name)
    return secrets[0].text
