"""Laws of `rucher new`: an instance that works as it is, or one line and nothing touched."""

import socket
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rucher.cli.main import cli
from rucher.cli.new import FIRST_PORT, is_free
from rucher.daemon.rulebook import open_rules
from rucher.daemon.settings import find_instance, load_settings
from rucher.instance.agents import load_agents
from rucher.protocol.errors import BadInput


def new(*words: str) -> Result:
    return CliRunner().invoke(cli, ["new", *words])


@pytest.mark.parametrize("model", ["embedded", "compatible", "scripted"])
def test_a_new_instance_is_one_that_the_daemon_takes(tmp_path: Path, model: str) -> None:
    told = new(str(tmp_path / "My Hive"), "--model", model, "--port", "7999")
    assert told.exit_code == 0, told.output
    instance = find_instance(tmp_path / "My Hive")
    settings = load_settings(instance)
    assert (settings.instance.name, settings.daemon.port, settings.model.kind) == ("my-hive", 7999, model)
    agents = load_agents(instance.agents)
    before = instance.rules.read_bytes()
    assert open_rules(instance.rules, agents).current.default == "agent:scribe"
    assert instance.rules.read_bytes() == before, "the generated rules were not all there"
    assert f"cd '{instance.root}'" in told.output


def test_the_examples_in_the_new_files_are_good_ones(tmp_path: Path) -> None:
    new(str(tmp_path / "hive"), "--port", "7999")
    instance = find_instance(tmp_path / "hive")
    lines = instance.rules.read_text().splitlines()
    prose = ("# Who", "# A change", "# Below")
    instance.rules.write_text("\n".join(line.removeprefix("# ") for line in lines if not line.startswith(prose)))
    rule = open_rules(instance.rules, load_agents(instance.agents)).current.rules[0]
    assert (rule.id, rule.to) == ("r-chat", ("agent:talker",))
    settings = instance.config.read_text().replace("# tenant", "tenant").replace("# owner ", "owner ")
    assert tomllib.loads(settings)["instance"] == {"name": "hive", "tenant": "local", "owner": "owner"}


def test_the_port_is_the_first_that_is_free(tmp_path: Path) -> None:
    first = next(port for port in range(FIRST_PORT, 65536) if is_free(port))
    with socket.create_server(("127.0.0.1", first)):
        assert not is_free(first)
        new(str(tmp_path / "hive"))
    assert load_settings(find_instance(tmp_path / "hive")).daemon.port > first


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["full"], "is not empty"),
        (["file"], "is not a folder"),
        (["file/below"], "choose another place"),
        (["hive", "--name", "No Good"], "--name takes"),
        (["hive", "--name", 'x"\n[evil]'], "--name takes"),
        (["/", "--name", "x"], "is not empty"),
    ],
)
def test_a_place_or_name_that_cannot_be_used_is_refused_and_nothing_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    result = new(*words, "--port", "7999")
    assert isinstance(result.exception, BadInput)
    assert says in str(result.exception)
    assert "\n" not in str(result.exception)
    assert sorted(tmp_path.rglob("*")) == before
