"""`rucher rules propose`, `proposals`, `apply` and `refuse`: changes of the rules that wait for the owner's word."""

from collections.abc import Sequence
from pathlib import Path

import click

from rucher.cli.client import Daemon
from rucher.cli.reading import spelled
from rucher.cli.rulehistory import past, read_text, taken_from
from rucher.cli.show import clean, document, iso, plain, short_id, table
from rucher.daemon.settings import find_instance
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.errors import BadInput
from rucher.protocol.ids import ulid
from rucher.router.proposals import OPEN, Proposal
from rucher.router.proposals import proposals as proposals_of

COLUMNS = ("ID", "AT", "BY", "STATE", "WHY")


@click.command(name="propose")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--why", default="", help="Why; shown with the proposal.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def propose(context: click.Context, file: Path, why: str, *, as_json: bool) -> None:
    """Propose the text of FILE as the instance's rules; they change when the owner applies it."""
    instance = find_instance(context.obj)
    taken_from(instance, file)
    body = {"key": _key(), "text": read_text(file), "why": why}
    with Daemon(instance) as daemon:
        noted = daemon.call("POST", "/rules/proposals", json=body)
    if as_json:
        document(noted)
        return
    plain(noted["diff"].rstrip("\n"))
    click.echo(f"proposal {noted['proposal']} waits: rucher rules apply {noted['proposal']}")


@click.command(name="proposals")
@click.argument("proposal_id", metavar="[ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def proposals(context: click.Context, proposal_id: str | None, *, as_json: bool) -> None:
    """List the proposals, or show one with its diff."""
    known = proposals_of(past(context.obj))
    if proposal_id is None:
        if as_json:
            document([_as_json(one) for one in known])
        else:
            table(COLUMNS, [(short_id(one.id), iso(one.at), one.by, one.state, one.why) for one in known])
        return
    found = _found(known, proposal_id)
    if as_json:
        document(_as_json(found))
        return
    click.echo(
        clean(f"proposal {found.id} of {found.by}, {iso(found.at)}, {found.state}: {found.why or 'no reason given'}")
    )
    plain(found.diff.rstrip("\n"))


@click.command(name="apply")
@click.argument("proposal_id", metavar="ID")
@click.pass_context
def apply(context: click.Context, proposal_id: str) -> None:
    """Put a proposal in the place of the rules, if those that it was made for are still in force."""
    found = _found(proposals_of(past(context.obj)), proposal_id)
    with Daemon(find_instance(context.obj)) as daemon:
        daemon.call("POST", f"/rules/proposals/{found.id}/apply")
    click.echo("applied; see it taken: rucher rules history")


@click.command(name="refuse")
@click.argument("proposal_id", metavar="ID")
@click.option("--reason", default="", help="Why; kept with the refusal.")
@click.pass_context
def refuse(context: click.Context, proposal_id: str, reason: str) -> None:
    """Say that a proposal is not wanted."""
    found = _found(proposals_of(past(context.obj)), proposal_id)
    with Daemon(find_instance(context.obj)) as daemon:
        daemon.call("POST", f"/rules/proposals/{found.id}/refuse", json={"reason": reason})
    click.echo("refused; the rules stay as they are")


def _found(known: Sequence[Proposal], given: str) -> Proposal:
    text = spelled(given)
    found = [one for one in known if one.id.startswith(text)]
    if len(found) > 1:
        found = [one for one in found if one.state == OPEN] or found
    if len(found) > 1:
        raise BadInput(f"several proposals begin with {text}; give more of the id")
    if not found:
        raise BadInput(f"there is no proposal {text}; see `rucher rules proposals`")
    return found[0]


def _as_json(one: Proposal) -> dict[str, str]:
    return {
        "id": one.id, "at": iso(one.at), "by": one.by, "state": one.state, "why": one.why, "base": one.base,
        "diff": one.diff, "text": one.text,
    }  # fmt: skip


def _key() -> str:
    return ulid(SystemClock().now(), SystemEntropy().bytes(10))
