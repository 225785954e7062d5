"""Laws of `rucher destinations`: it takes and refuses what the daemon would, and shows each secret to its owner only."""

import json
import re
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook

from rucher.daemon.outside import webhook_secrets
from rucher.instance.layout import Instance
from rucher.protocol.errors import BadInput
from tests.unit.cli.recorded import make_instance, rucher

FILE = """\
[webhook.crm]
url = "https://crm.example/hook"

[file.crm]
path = "crm.jsonl"

[file.disk]
path = "/nowhere/at/all.jsonl"

[instance.laptop]
url = "https://laptop.example"
source = "home"

[agent.scribe]
at = "instance:laptop"
"""


@pytest.fixture
def hive(tmp_path: Path) -> Instance:
    instance = make_instance(tmp_path / "hive")
    instance.destinations.write_text(FILE)
    return instance


def refused(reason: str, hive: Instance, *words: str) -> str:
    """Demand that the command is refused for this reason, which is found as a regular expression in what is told."""
    error = rucher(hive, *words).exception
    assert isinstance(error, BadInput)
    assert re.search(reason, str(error))
    return str(error)


def states(hive: Instance) -> dict[str, str]:
    rows = json.loads(rucher(hive, "destinations", "list", "--json").output)
    return {row["destination"]: row["state"] for row in rows}


def test_each_destination_is_listed_with_whether_it_can_be_used(hive: Instance) -> None:
    assert states(hive) == {
        "webhook:crm": "no secret: rucher destinations secret crm",
        "file:crm": "ready",
        "file:disk": "its folder is missing",
        "instance:laptop": "no node key yet" if not hive.node_key.exists() else "ready",
        "agent:scribe": "runs there",
    }
    assert "https://crm.example/hook" in rucher(hive, "destinations", "list").output


def test_an_instance_without_such_a_file_has_none_and_that_is_fine(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    assert json.loads(rucher(instance, "destinations", "list", "--json").output) == []
    assert "which is fine" in rucher(instance, "destinations", "check").output


def test_a_file_is_checked_as_the_daemon_would_and_stays_as_it_is(hive: Instance, tmp_path: Path) -> None:
    assert "good; destinations: 4, agents elsewhere: 1" in rucher(hive, "destinations", "check").output
    other = tmp_path / "other.toml"
    other.write_text(FILE.replace("agent.scribe", "agent.scrub"))
    refused(
        r"other\.toml:14:1: there is no agent 'scrub'; did you mean scribe", hive, "destinations", "check", str(other)
    )
    assert hive.destinations.read_text() == FILE


def test_a_rule_may_name_what_the_file_holds_and_nothing_else(hive: Instance) -> None:
    rule = '\n[[rule]]\nid = "x"\nmatch = {{ source = "x" }}\nto = "{}"\n'
    before = hive.rules.read_text()
    hive.rules.write_text(before + rule.format("webhook:crm"))
    assert "good" in rucher(hive, "rules", "check").output
    hive.rules.write_text(before + rule.format("webhook:crn"))
    refused("there is no webhook:crn; did you mean webhook:crm", hive, "rules", "check")


def test_a_secret_is_made_once_kept_for_its_owner_only_and_rotated_beside_the_old_one(hive: Instance) -> None:
    first = rucher(hive, "destinations", "secret", "webhook:crm").stdout.strip()
    Webhook(first)
    assert rucher(hive, "destinations", "secret", "webhook:crm").stdout.strip() == first
    path = webhook_secrets(hive, "crm")
    assert path.stat().st_mode & 0o777 == 0o600
    assert {folder.stat().st_mode & 0o777 for folder in (path.parent, path.parent.parent)} == {0o700}
    second = rucher(hive, "destinations", "secret", "webhook:crm", "--rotate").stdout.strip()
    newest, older = path.read_text().splitlines()
    assert newest == second
    assert older.startswith(f"{first} until=")
    assert states(hive)["webhook:crm"] == "ready"


def test_a_damaged_secret_is_said_without_showing_it(hive: Instance) -> None:
    rucher(hive, "destinations", "secret", "webhook:crm")
    webhook_secrets(hive, "crm").write_text("whsec_c2hvcnQ=\n")
    assert "damaged" in states(hive)["webhook:crm"]
    told = refused("damaged; make a new one", hive, "destinations", "secret", "webhook:crm")
    assert "c2hvcnQ" not in told


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("secret", "crm"), "crm may be file:crm or webhook:crm; give the whole name"),
        (("secret", "disk"), "file:disk needs no secret: it is a file"),
        (("secret", "laptop", "--rotate"), "seals its journal"),
        (("secret", "laptp"), "there is no destination 'laptp'; did you mean laptop?"),
        (("send", "disk", " "), "there is nothing to send"),
        (("send", "disk", "hello"), "is not running"),
    ],
)
def test_what_cannot_be_done_is_one_line(hive: Instance, arguments: tuple[str, ...], reason: str) -> None:
    told = refused(reason, hive, "destinations", *arguments)
    assert "\n" not in told
