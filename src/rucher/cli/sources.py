"""`rucher sources`: who may hand events in from outside, and the secrets that their deliveries are verified with.

A secret is printed once, when it is made. A running daemon takes each change at once; all of it works without one, too.
"""

import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from rucher.cli.client import Daemon
from rucher.cli.show import clean, document, table
from rucher.cli.sourcewords import PLACES, THEIRS, made_secret
from rucher.daemon.lock import holder_of
from rucher.daemon.settings import find_instance, load_settings
from rucher.instance.layout import Instance
from rucher.instance.ownerfile import edit
from rucher.instance.secretfiles import Secret, read_secrets, rotated, source_secrets, state_of, write_secrets
from rucher.instance.text import bytes_of
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.errors import BadInput
from rucher.protocol.tomltext import suggestion
from rucher.surfaces.sourceedits import Value, with_source, without_source
from rucher.surfaces.sources import Pick, Source, Sources, SourcesFile
from rucher.surfaces.verification import Scheme, demand_usable

COLUMNS = ("NAME", "SCHEME", "PRINCIPAL", "TRUST", "SECRET", "ACCEPTED", "DUPLICATE", "REFUSED")
OVERLAP_H = 24
"""Hours for which an old secret counts beside a new one."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_SECRET = 4096
Counts = Mapping[str, Mapping[str, Any]]


@click.group(name="sources")
def sources() -> None:
    """Say who may hand events in from outside."""


@sources.command(name="add")
@click.argument("name")
@click.option("--scheme", type=click.Choice([scheme.value for scheme in Scheme]), required=True, help="How it signs.")
@click.option("--secret-file", help="Take the secret from this file, or - for standard input, instead of making one.")
@click.option("--public-key", help="The sender's Ed25519 key, for the scheme ed25519.")
@click.option("--principal", help="Whose word its events are.  [default: partner:NAME]")
@click.option("--trust", help="How far that is trusted.  [default: partner]")
@click.option("--group", help="The room that its events are said in.  [default: main]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def add(
    context: click.Context, /, name: str, scheme: str, secret_file: str | None, *, as_json: bool, **keys: str | None,
) -> None:  # fmt: skip
    """Add the source NAME; prints its address, and its secret if one is made, which is shown this once."""
    instance = find_instance(context.obj)
    given: dict[str, Value] = {"name": name, "scheme": scheme, **{key: one for key, one in keys.items() if one}}
    with_source("", given, instance.sources)
    kind = Scheme(scheme)
    made, secret = _secret(kind, secret_file, _address(instance, name))

    def change(text: str) -> str:
        grown = with_source(text, given, instance.sources)
        # A secret without its source verifies nothing; a source without its secret would refuse what is meant for it.
        if secret:
            write_secrets(source_secrets(instance, name), [Secret(secret)])
        return grown

    edit(instance.sources, change)
    _tell(kind, name, _address(instance, name), secret if made else "", as_json=as_json)


@sources.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def listed(context: click.Context, *, as_json: bool) -> None:
    """List the sources, and what came from each since the daemon began."""
    instance = find_instance(context.obj)
    counts = _counts(instance)
    rows = [_row(instance, source, counts) for source in SourcesFile(instance.sources).current.by_name.values()]
    if as_json:
        document(rows)
        return
    table(COLUMNS, [_cells(row) for row in rows])
    refused = counts.get("unknown", {}).get("refused", {})
    if refused:
        click.echo(f"and at no source of these: {_counted(refused)}", err=True)


@sources.command(name="show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def show(context: click.Context, name: str, *, as_json: bool) -> None:
    """Show all about the source NAME but its secret."""
    instance = find_instance(context.obj)
    source = _found(SourcesFile(instance.sources).current, name)
    row = _row(instance, source, _counts(instance)) | {
        "address": _address(instance, name),
        "type": _pick(source.type),
        "text": source.text,
        "group": _pick(source.group),
        "thread": _pick(source.thread),
        "max_bytes": source.max_bytes,
        "rate": f"{source.rate.count} in {source.rate.period_s} s" if source.rate else "",
        "addresses": list(source.addresses),
        "public_keys": list(source.public_keys),
    }
    if as_json:
        document(row)
        return
    for key, value in row.items():
        click.echo(clean(f"{key:<12} {_shown(value)}".rstrip()))


@sources.command(name="rotate")
@click.argument("name")
@click.option("--secret-file", help="Take the new secret from this file, or - for standard input.")
@click.option("--now", "at_once", is_flag=True, help="Let the old secret count no longer; without it, for 24 hours.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def rotate(context: click.Context, name: str, secret_file: str | None, *, at_once: bool, as_json: bool) -> None:
    """Give the source NAME a new secret; the old one counts for 24 hours more."""
    instance = find_instance(context.obj)
    source = _found(SourcesFile(instance.sources).current, name)
    if source.scheme is Scheme.ED25519:
        raise BadInput(
            f"the source {name} has no secret of ours; write its new public_key into {instance.sources}, "
            'and the old one behind it for as long as it shall count: public_key = ["NEW", "OLD"]'
        )
    path, now = source_secrets(instance, name), SystemClock().now()
    made, secret = _secret(source.scheme, secret_file, _address(instance, name))
    old = () if at_once else read_secrets(path)
    overlap_us = OVERLAP_H * 3_600_000_000
    write_secrets(path, rotated(old, secret, now, overlap_us))
    _tell(source.scheme, name, _address(instance, name), secret if made else "", as_json=as_json)
    if not as_json:
        until = (_EPOCH + timedelta(microseconds=now + overlap_us)).isoformat(timespec="seconds")
        click.echo("the old secret counts no longer" if not old else f"the old secret counts until {until}")


@sources.command(name="remove")
@click.argument("name")
@click.pass_context
def remove(context: click.Context, name: str) -> None:
    """Remove the source NAME and its secret; what came from it stays in the journal."""
    instance = find_instance(context.obj)

    def change(text: str) -> str:
        _found(SourcesFile(instance.sources).current, name)
        return without_source(text, name, instance.sources)

    edit(instance.sources, change)
    source_secrets(instance, name).unlink(missing_ok=True)
    click.echo(clean(f"removed {name}: what is sent to {_address(instance, name)} is refused from now on"))


@sources.command(name="check")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.pass_context
def check(context: click.Context, file: Path | None) -> None:
    """Say whether FILE (the instance's own, if none is given) would be taken, as a daemon would; changes nothing."""
    instance = find_instance(context.obj)
    path = file or instance.sources
    if file is not None and not file.exists():
        raise BadInput(f"{file}: there is no such file; name one that exists")
    taken = SourcesFile(path).current
    click.echo(clean(f"{path}: good, {len(taken.by_name)} sources, version {taken.version[:12]}"))
    now = SystemClock().now()
    for source in taken.by_name.values():
        state = state_of(source_secrets(instance, source.name), now)
        if source.scheme is not Scheme.ED25519 and state == "none":
            click.echo(f"{source.name} has no secret here: rucher sources rotate {source.name}")


def _secret(scheme: Scheme, secret_file: str | None, address: str) -> tuple[bool, str]:
    """Whether a secret was made, and it; empty for a scheme that needs none."""
    if scheme is Scheme.ED25519:
        if secret_file is not None:
            raise BadInput("the scheme ed25519 has no secret; give the sender's key as --public-key")
        return False, ""
    if secret_file is None:
        if scheme in THEIRS:
            raise BadInput(
                f"{THEIRS[scheme]} makes the secret itself: tell it the address {address}, and give what it shows with "
                "--secret-file FILE, or - and paste it"
            )
        return True, made_secret(scheme, SystemEntropy())
    place = Path(secret_file)
    here = place == Path("-")
    raw = sys.stdin.buffer.read(_MOST_SECRET) if here else bytes_of(place, "name a file that holds it")
    secret = raw[:_MOST_SECRET].decode("utf-8", "replace").strip()
    demand_usable(scheme, secret)
    return False, secret


def _tell(scheme: Scheme, name: str, address: str, secret: str, *, as_json: bool) -> None:
    if as_json:
        document({"name": name, "scheme": scheme.value, "address": address, "secret": secret or None})
        return
    click.echo(f"address  {address}   (from outside: your reverse proxy's name in place of the host and port)")
    if secret:
        click.echo(f"secret   {secret}   (shown this once)")
    click.echo(PLACES[scheme].format(address=address))


def _address(instance: Instance, name: str) -> str:
    return f"http://127.0.0.1:{load_settings(instance).daemon.port}/ingress/{name}"


def _found(taken: Sources, name: str) -> Source:
    if name not in taken.by_name:
        raise BadInput(f"there is no source {name[:60]!r}; {suggestion(name, taken.by_name)}")
    return taken.by_name[name]


def _counts(instance: Instance) -> Counts:
    """What the daemon counted by source; nothing while it does not run."""
    if not holder_of(instance.lock):
        return {}
    with Daemon(instance) as daemon:
        told = daemon.call("GET", "/sources")
    return {"unknown": told["unknown"], **{row["name"]: row for row in told["sources"]}}


def _row(instance: Instance, source: Source, counts: Counts) -> dict[str, Any]:
    own = counts.get(source.name, {})
    state = state_of(source_secrets(instance, source.name), SystemClock().now())
    return {
        "name": source.name,
        "scheme": source.scheme.value,
        "principal": source.principal,
        "trust": source.trust.word,
        "secret": "public key" if source.scheme is Scheme.ED25519 else state,
        "accepted": own.get("accepted"),
        "duplicate": own.get("duplicate"),
        "refused": own.get("refused"),
    }


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(_shown(row[column.lower()]) for column in COLUMNS)


def _shown(value: object) -> str:
    match value:
        case None | "":
            return "-"
        case dict():
            return _counted(value) or "0"
        case list():
            return ", ".join(map(str, value))
        case _:
            return str(value)


def _counted(refused: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in refused.items())


def _pick(pick: Pick | None) -> str:
    if pick is None:
        return "by the scheme"
    return pick.what if pick.origin.value == "fixed" else f"{pick.origin.value}:{pick.what}"
