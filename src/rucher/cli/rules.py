"""`rucher rules`: whether a rules file would be taken, and what the instance's rules say."""

from pathlib import Path

import click

from rucher.cli.show import clean, document, table
from rucher.daemon.outside import open_places
from rucher.daemon.rulebook import SURFACES, destinations
from rucher.daemon.settings import find_instance
from rucher.instance.agents import load_agents
from rucher.instance.layout import Instance
from rucher.instance.text import text_of
from rucher.router.generated import ensure_generated
from rucher.router.parse import parse
from rucher.router.reload import RulesFile
from rucher.router.rules import DEFAULT_RULE, Rule, Rules

COLUMNS = ("ORDER", "ID", "MATCH", "TO", "CONTINUE", "GENERATED")


@click.group(name="rules")
def rules() -> None:
    """Check or list who wakes for what."""


@rules.command(name="check")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.pass_context
def check(context: click.Context, file: Path | None) -> None:
    """Say whether FILE (the instance's own, if none is given) would be taken, as a daemon would; changes nothing."""
    instance = find_instance(context.obj)
    path = file or instance.rules
    taken = _taken(instance, path)
    click.echo(clean(f"{path}: good, {len(taken.rules)} rules, version {taken.short_version}"))
    text = text_of(path, "put the rules file there")
    grown = ensure_generated(text, load_agents(instance.agents), SURFACES, path)
    if missing := len(parse(grown, path).rules) - len(taken.rules):
        click.echo(f"it lacks {missing} generated rules, which the daemon adds when it starts")


@rules.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def listed(context: click.Context, *, as_json: bool) -> None:
    """List the rules in the order in which they are tried."""
    instance = find_instance(context.obj)
    taken = _taken(instance, instance.rules)
    if as_json:
        document([_as_json(order, rule) for order, rule in enumerate(taken.rules, 1)] + [_default(taken)])
        return
    rows = [_cells(order, rule) for order, rule in enumerate(taken.rules, 1)]
    table(COLUMNS, [*rows, ("", DEFAULT_RULE, "what no rule matches", taken.default, "", "")])


def _taken(instance: Instance, path: Path) -> Rules:
    agents = load_agents(instance.agents)
    known = destinations(agents) | open_places(instance, agents).current.names
    return RulesFile(path, lambda: known).current


def _cells(order: int, rule: Rule) -> tuple[str, ...]:
    asked = ", ".join(f"{condition.key} = {condition.wanted}" for condition in rule.match)
    flags = "yes" if rule.goes_on else "", "yes" if rule.generated else ""
    return (str(order), rule.id, asked, ", ".join(rule.to), *flags)


def _as_json(order: int, rule: Rule) -> dict[str, object]:
    return {
        "order": order,
        "id": rule.id,
        "match": {condition.key: condition.wanted for condition in rule.match},
        "to": list(rule.to),
        "continue": rule.goes_on,
        "generated": rule.generated,
    }


def _default(taken: Rules) -> dict[str, object]:
    last = len(taken.rules) + 1
    return {
        "order": last,
        "id": DEFAULT_RULE,
        "match": {},
        "to": [taken.default],
        "continue": False,
        "generated": False,
    }
