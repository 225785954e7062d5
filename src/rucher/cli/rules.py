"""`rucher rules`: whether a rules file would be taken, and what the instance's rules say.

What tries rules on events is in `explaining`, their past in `rulehistory`, and proposals in `proposing`.
"""

from pathlib import Path

import click

from rucher.cli.explaining import explain, test
from rucher.cli.proposing import apply, proposals, propose, refuse
from rucher.cli.rulehistory import diff, history, taken_from
from rucher.cli.show import clean, document, table
from rucher.daemon.rulebook import SURFACES
from rucher.daemon.settings import find_instance
from rucher.instance.agents import load_agents
from rucher.instance.text import text_of
from rucher.router.engagement import WORDS
from rucher.router.generated import ensure_generated
from rucher.router.parse import parse
from rucher.router.rules import DEFAULT_RULE, Rule, Rules

COLUMNS = ("ORDER", "ID", "MATCH", "TO", "TERMS", "CONTINUE", "GENERATED")
ALWAYS_TERMS = {key: words[0] for key, words in WORDS.items()}
"""What a rule says of agents when it says nothing, which is not shown."""


@click.group(name="rules")
def rules() -> None:
    """Check, explain, test or change who wakes for what."""


for command in (explain, test, diff, history, propose, proposals, apply, refuse):
    rules.add_command(command)


@rules.command(name="check")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.pass_context
def check(context: click.Context, file: Path | None) -> None:
    """Say whether FILE (the instance's own, if none is given) would be taken, as a daemon would; changes nothing."""
    instance = find_instance(context.obj)
    path = file or instance.rules
    taken = taken_from(instance, path)
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
    taken = taken_from(instance, instance.rules)
    if as_json:
        document([_as_json(order, rule) for order, rule in enumerate(taken.rules, 1)] + [_default(taken)])
        return
    rows = [_cells(order, rule) for order, rule in enumerate(taken.rules, 1)]
    table(COLUMNS, [*rows, ("", DEFAULT_RULE, "what no rule matches", taken.default, "", "", "")])


def _cells(order: int, rule: Rule) -> tuple[str, ...]:
    asked = ", ".join(f"{condition.key} = {condition.wanted}" for condition in rule.match)
    flags = "yes" if rule.goes_on else "", "yes" if rule.generated else ""
    return (str(order), rule.id, asked, ", ".join(rule.to), _terms(rule), *flags)


def _terms(rule: Rule) -> str:
    said = {key: value for key, value in _terms_of(rule).items() if value not in (ALWAYS_TERMS.get(key), None)}
    return ", ".join(f"{key} = {value}" for key, value in said.items())


def _terms_of(rule: Rule) -> dict[str, str | None]:
    terms = rule.terms
    pattern = terms.pattern.source if terms.pattern else None
    return {
        "engage": terms.engage, "pattern": pattern, "senders": terms.senders, "otherwise": terms.otherwise,
        "session": terms.session,
    }  # fmt: skip


def _as_json(order: int, rule: Rule) -> dict[str, object]:
    return {
        "order": order,
        "id": rule.id,
        "match": {condition.key: condition.wanted for condition in rule.match},
        "to": list(rule.to),
        **_terms_of(rule),
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
        **ALWAYS_TERMS,
        "pattern": None,
        "continue": False,
        "generated": False,
    }
