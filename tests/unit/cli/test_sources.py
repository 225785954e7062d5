"""Laws of `rucher sources`: a secret is shown once and lies where only its owner reads; a wrong word changes nothing."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rucher.cli.main import cli
from rucher.instance.layout import Instance
from rucher.instance.secretfiles import read_secrets, source_secrets
from rucher.protocol.errors import BadInput
from rucher.surfaces.sources import SourcesFile
from tests.fakes.senders import PUBLIC_KEY
from tests.unit.cli.recorded import make_instance, rucher

MINE = "# mine\r\n[[source]]  # the first\r\nname = 'old'\r\nscheme = 'bearer' # odd   spaces\r\n\r\n# a farewell\r\n"


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return make_instance(tmp_path / "hive")


def done(instance: Instance, *words: str) -> str:
    result = rucher(instance, "sources", *words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refused(instance: Instance, *words: str) -> str:
    """The one line with which a command is refused, after which all is as it was."""
    before = everything(instance)
    result = rucher(instance, "sources", *words)
    assert result.exception is not None, result.output
    assert result.exit_code != 0
    assert everything(instance) == before
    said = str(result.exception) if isinstance(result.exception, BadInput) else result.output
    assert "Traceback" not in said
    return said


def everything(instance: Instance) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for path in instance.root.rglob("*") if path.is_file() and not path.is_symlink()
    }


def secrets(instance: Instance, name: str) -> list[str]:
    return [secret.text for secret in read_secrets(source_secrets(instance, name))]


def test_a_made_secret_is_shown_once_and_lies_where_only_its_owner_reads(instance: Instance) -> None:
    said = done(instance, "add", "notes", "--scheme", "github")
    (secret,) = secrets(instance, "notes")
    assert said.count(secret) == 1
    assert "http://127.0.0.1:7999/ingress/notes" in said
    path = source_secrets(instance, "notes")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert path.parent.parent.stat().st_mode & 0o777 == 0o700
    assert secret not in instance.sources.read_text()
    for words in (("list",), ("list", "--json"), ("show", "notes"), ("show", "notes", "--json"), ("check",)):
        assert secret not in done(instance, *words)


def test_each_scheme_says_where_to_paste_what(instance: Instance, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("whsec_of_the_vendor0000\n")
    assert "whsec_" in done(instance, "add", "a", "--scheme", "standard")
    assert "curl -H 'Authorization: Bearer " in done(instance, "add", "b", "--scheme", "bearer")
    said = done(instance, "add", "c", "--scheme", "stripe", "--secret-file", str(tmp_path / "secret"))
    assert "whsec_of_the_vendor0000" not in said
    assert secrets(instance, "c") == ["whsec_of_the_vendor0000"]
    assert "private half" in done(instance, "add", "d", "--scheme", "ed25519", "--public-key", PUBLIC_KEY)
    told = json.loads(done(instance, "add", "e", "--scheme", "bearer", "--json"))
    assert (told["address"], told["secret"]) == ("http://127.0.0.1:7999/ingress/e", secrets(instance, "e")[0])
    assert [row["name"] for row in json.loads(done(instance, "list", "--json"))] == ["a", "b", "c", "d", "e"]


def test_a_secret_can_be_pasted(instance: Instance) -> None:
    words = ["--dir", str(instance.root), "sources", "add", "s", "--scheme", "slack", "--secret-file", "-"]
    assert CliRunner().invoke(cli, words, input="8f742231b10e8888abcd99yyyzzz85a5\n").exit_code == 0
    assert secrets(instance, "s") == ["8f742231b10e8888abcd99yyyzzz85a5"]


def test_the_owners_bytes_stay_when_a_source_comes_and_goes(instance: Instance) -> None:
    instance.sources.write_bytes(MINE.encode())
    instance.sources.chmod(0o640)
    done(instance, "add", "new", "--scheme", "bearer", "--trust", "member", "--principal", "user:shop:ana")
    grown = instance.sources.read_bytes().decode()
    assert grown.startswith(MINE)
    assert "\n" not in grown.replace("\r\n", "")
    assert instance.sources.stat().st_mode & 0o777 == 0o640
    source = SourcesFile(instance.sources).current.by_name["new"]
    assert (source.principal, source.trust.word) == ("user:shop:ana", "member")
    done(instance, "remove", "new")
    assert instance.sources.read_bytes().decode().strip() == MINE.strip()
    assert not source_secrets(instance, "new").exists()
    done(instance, "remove", "old")
    left = instance.sources.read_bytes().decode()
    assert "# mine" in left
    assert "name" not in left


def test_a_rotated_secret_counts_beside_the_new_one_for_a_day_unless_told_otherwise(instance: Instance) -> None:
    done(instance, "add", "n", "--scheme", "github")
    (first,) = secrets(instance, "n")
    said = done(instance, "rotate", "n")
    second, kept = secrets(instance, "n")
    assert kept == first
    assert second in said
    assert re.search(r"the old secret counts until 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", said)
    text = source_secrets(instance, "n").read_text()
    assert re.fullmatch(rf"{second}\n{first} until=20[-0-9T:]+Z\n", text)
    assert "the old ones count still" in done(instance, "show", "n")
    assert "no longer" in done(instance, "rotate", "n", "--now")
    assert len(secrets(instance, "n")) == 1


def test_lists_show_what_cannot_be_verified_here(instance: Instance) -> None:
    instance.sources.write_text('[[source]]\nname = "n"\nscheme = "github"\n')
    assert "n has no secret here: rucher sources rotate n" in done(instance, "check")
    (row,) = json.loads(done(instance, "list", "--json"))
    assert (row["secret"], row["accepted"]) == ("none", None)
    done(instance, "rotate", "n")
    source_secrets(instance, "n").chmod(0o644)
    (row,) = json.loads(done(instance, "list", "--json"))
    assert "chmod 600" in row["secret"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["add", "agent", "--scheme", "bearer"], "the instance's own"),
        (["add", "../x", "--scheme", "bearer"], "cannot be a name"),
        (["add", "old", "--scheme", "bearer"], "there is a source 'old' already"),
        (["add", "n", "--scheme", "hmac"], "hmac"),
        (["add", "n"], "--scheme"),
        (["add", "n", "--scheme", "stripe"], "Stripe makes the secret itself"),
        (["add", "n", "--scheme", "slack"], "Slack makes the secret itself"),
        (["add", "n", "--scheme", "ed25519"], "needs public_key"),
        (["add", "n", "--scheme", "ed25519", "--public-key", "x"], "no Ed25519 public key"),
        (["add", "n", "--scheme", "bearer", "--trust", "owner"], "vouches for member at most"),
        (["add", "n", "--scheme", "bearer", "--trust", "boss"], "is no trust"),
        (["add", "n", "--scheme", "bearer", "--principal", "system:x"], "cannot be a principal"),
        (["add", "n", "--scheme", "bearer", "--secret-file", "/nowhere/at/all"], "cannot be read"),
        (["rotate", "nobody"], "there is no source 'nobody'; known are old"),
        (["remove", "odl"], "did you mean old?"),
        (["show", "nobody"], "there is no source"),
        (["check", "/nowhere/at/all"], "no such file"),
    ],
)
def test_a_wrong_word_is_one_line_and_changes_nothing(instance: Instance, words: list[str], says: str) -> None:
    instance.sources.write_text('[[source]]\nname = "old"\nscheme = "bearer"\n')
    assert says in refused(instance, *words)


@pytest.mark.parametrize("text", ["[[source]\n", '[[source]]\nname = "a"\n', "\ufeff"])
def test_a_bad_file_is_refused_by_every_command_with_its_place(instance: Instance, text: str) -> None:
    instance.sources.write_text(text)
    commands: list[list[Any]] = [
        ["check"],
        ["list"],
        ["show", "a"],
        ["add", "b", "--scheme", "bearer"],
        ["remove", "a"],
    ]
    for words in commands:
        assert re.search(r"sources\.toml:\d+:\d+: ", refused(instance, *words))


def test_a_source_in_a_list_is_not_added_to_but_can_be_removed(instance: Instance) -> None:
    instance.sources.write_text('source = [{ name = "a", scheme = "bearer" }, { name = "b", scheme = "bearer" }]\n')
    assert "write each as a [[source]] table" in refused(instance, "add", "c", "--scheme", "bearer")
    done(instance, "remove", "a")
    assert list(SourcesFile(instance.sources).current.by_name) == ["b"]
