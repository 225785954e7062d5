"""What is poisoned stays alone: the daemon stays up, other sessions answer, and the poisoned thing is visible."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rucher.cli.client import Daemon
from tests.fakes.hive import Hive, resting, running, until

SCRIPT = r"""
[[rule]]
on = "user"
match = "^list"
call = [{ tool = "list_dir", arguments = { path = "." } }]

[[rule]]
on = "result"
answer = "it says: {result}"

[[rule]]
answer = "echo: {text}"
"""
ENDED = frozenset({"answered", "failed", "waiting", "stopped", "undelivered", "dropped"})


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    with running(tmp_path, SCRIPT) as started:
        yield started


def said(hive: Hive, text: str, group: str = "main") -> Mapping[str, Any]:
    """What becomes of a message in time, whatever its text and its end."""
    done = hive.rucher("send", "-", "--group", group, "--wait", "--timeout", "40", "--json", text=text)
    assert "Traceback" not in done.stderr
    result: Mapping[str, Any] = json.loads(done.stdout)
    assert result["status"] in ENDED, f"{result['status']}: it must come to an end that its sender sees"
    return result


def unharmed(hive: Hive) -> None:
    """The daemon is up, and a session that has nothing to do with it answers."""
    assert hive.process is not None
    assert hive.process.poll() is None
    assert said(hive, "still there", "other")["answer"] == "echo: still there"


def damaged(hive: Hive, damage: Callable[[Path], object]) -> Path:
    """Do this to the folder of the session of the group `bad`, made before, while the daemon is stopped."""
    assert said(hive, "list", "bad")["status"] == "answered"
    (session,) = (hive.state / "sessions").iterdir()
    hive.stop()
    damage(session)
    hive.start()
    return session


def test_a_text_that_grows_beyond_a_mebibyte_as_json_comes_to_a_visible_end(hive: Hive) -> None:
    poisoned = said(hive, "\x01" * 170_000, "bad")
    unharmed(hive)
    assert said(hive, "after it", "bad")["answer"] == "echo: after it"
    assert hive.rucher("trace", poisoned["trace_id"]).returncode == 0


def test_a_session_that_was_told_much_still_answers(hive: Hive) -> None:
    for letter in "abc":
        assert said(hive, letter * 220_000, "bad")["status"] == "answered"
    assert said(hive, "the fourth", "bad")["answer"] == "echo: the fourth"
    unharmed(hive)


@pytest.mark.parametrize(
    "body",
    [
        rb'{"text": "\ud800"}',
        rb'{"text": "hello", "group": "\ud800"}',
        rb'{"text": "hello", "thread": "\udfff"}',
        rb'{"text": "hello", "key": "\ud800"}',
        rb'{"text": "hello", "agent": "\ud800"}',
        rb'{"text": "hello", "\ud800": 1}',
        rb'{"text": ["\ud800"]}',
        b'{"text": "\xff"}',
        b"\xff",
        b"[" * 100_000,
    ],
    ids=["text", "group", "thread", "key", "agent", "field", "nested", "not-utf-8", "no-json", "deep"],
)
def test_a_request_that_is_no_text_is_refused_with_a_reason_and_nothing_is_kept(hive: Hive, body: bytes) -> None:
    before = len(hive.events("ev.*.cli.>"))
    answer = hive.post("messages", body)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["detail"]
    assert len(hive.events("ev.*.cli.>")) == before
    unharmed(hive)


def test_a_verdict_that_is_no_text_is_refused_with_a_reason(hive: Hive) -> None:
    answer = hive.post(f"runs/{'0' * 26}/resolve", rb'{"step": "\ud800", "verdict": "ran"}')
    assert 400 <= answer.status_code < 500, answer.text
    unharmed(hive)


def test_a_mailbox_row_that_nobody_wrote_into_the_journal_changes_nothing(hive: Hive) -> None:
    def put(session: Path) -> None:
        database = sqlite3.connect(session / "inbound.db")
        (last,) = database.execute("SELECT max(seq) FROM inbound").fetchone()
        with database:
            database.execute(
                "INSERT INTO inbound (seq, key, kind, created_at, body) VALUES (?, 'odd', 'message', 1, '{}')",
                (last + 2,),
            )
        database.close()

    damaged(hive, put)
    unharmed(hive)
    assert said(hive, "as before", "bad")["answer"] == "echo: as before"
    assert len(hive.events("ev.*.cli.message")) == 3


def test_a_session_folder_that_is_a_file_stops_that_session_only(hive: Hive) -> None:
    def replace(session: Path) -> None:
        shutil.rmtree(session)
        session.write_text("no folder")

    session = damaged(hive, replace)
    poisoned = said(hive, "two", "bad")
    assert (poisoned["status"], str(session) in poisoned["answer"]) == ("stopped", True), poisoned
    unharmed(hive)
    session.unlink()
    until(lambda: hive.delivered("bad")[1:] == ["echo: two"], "the session did not go on")


def test_a_workspace_that_is_a_dangling_link_is_told_and_nothing_is_made_behind_it(hive: Hive, tmp_path: Path) -> None:
    def replace(session: Path) -> None:
        shutil.rmtree(session / "workspace")
        (session / "workspace").symlink_to(tmp_path / "nowhere")

    damaged(hive, replace)
    poisoned = said(hive, "list", "bad")
    assert poisoned["status"] in ("failed", "stopped") or "workspace" in poisoned["answer"], poisoned
    assert not (tmp_path / "nowhere").exists()
    unharmed(hive)


def test_a_link_where_the_agents_database_keeps_its_journal_is_not_followed(hive: Hive, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep")

    def replace(session: Path) -> None:
        (session / "outbound.db-journal").unlink(missing_ok=True)
        (session / "outbound.db-journal").symlink_to(precious)

    session = damaged(hive, replace)
    poisoned = said(hive, "list", "bad")
    assert poisoned["status"] in ("failed", "stopped") or "outbound.db" in poisoned["answer"], poisoned
    assert precious.read_text() == "keep"
    unharmed(hive)
    (session / "outbound.db-journal").unlink()
    until(lambda: said(hive, "list", "bad")["status"] == "answered", "the session did not go on")


def _folder(token: Path) -> None:
    token.unlink()
    token.mkdir()


def _emptied(token: Path) -> None:
    token.write_bytes(b"")


@pytest.mark.parametrize("damage", [_folder, _emptied], ids=["folder", "empty"])
def test_a_damaged_token_lets_nobody_in_and_says_which_file_to_mend(
    hive: Hive, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    token, kept = hive.instance.token, tmp_path / "kept"
    shutil.copy(token, kept)
    damage(token)
    refused(hive, "send", "hello", names=token)
    assert hive.process is not None
    assert hive.process.poll() is None
    hive.stop()
    refused(hive, "up", names=token)
    if token.is_dir():
        token.rmdir()
    shutil.copy(kept, token)
    hive.start()
    unharmed(hive)


def refused(hive: Hive, *words: str, names: Path) -> None:
    done = hive.rucher(*words)
    assert (done.returncode, len(done.stderr.splitlines()), str(names) in done.stderr) == (2, 1, True), done.stderr


def test_two_rules_that_take_everything_give_one_answer(hive: Hive) -> None:
    rules = hive.root / "rules.toml"
    everything = "".join(
        f'[[rule]]\nid = "all-{name}"\nmatch = {{ subject = "ev.>" }}\nto = "agent:scribe"\ncontinue = true\n\n'
        for name in ("one", "two")
    )
    default, mark, generated = rules.read_text().partition("# Below stand")
    rules.write_text(default + everything + mark + generated)
    until(lambda: len(hive.events("ev.*.*.rules.applied")) == 2, "the rules were not taken")
    once = said(hive, "hello", "bad")
    assert (once["status"], once["answer"]) == ("answered", "echo: hello")
    unharmed(hive)
    assert hive.delivered("bad") == ["echo: hello"]
    hops = [event["body"]["to"] for event in hive.told("trace", once["trace_id"])["events"] if _is_hop(event)]
    assert sorted(hops) == ["agent:scribe", "surface:cli"]


def _is_hop(event: Mapping[str, Any]) -> bool:
    return bool(event["type"] == "hop.made")


def test_a_rule_with_a_broken_pattern_is_named_and_the_rules_in_force_go_on(hive: Hive) -> None:
    rules = hive.root / "rules.toml"
    good = rules.read_text()
    rules.write_text(f'{good}\n[[rule]]\nid = "broken"\nmatch = {{ text = \'(\' }}\nto = "agent:talker"\n')
    until(lambda: hive.events("ev.*.*.rules.refused"), "the refusal was not recorded")
    (refusal,) = hive.events("ev.*.*.rules.refused")
    assert "broken" in refusal["body"]["reason"]
    unharmed(hive)
    assert hive.rucher("doctor").returncode == 1
    hive.stop()
    refused(hive, "up", names=rules)
    rules.write_text(good)
    hive.start()
    unharmed(hive)


@pytest.mark.parametrize(
    "raw", [b"---\nname: \xff\n---\n", b"---\nname: [\n---\n", b"no front matter", b"---\nname: 2026-99-99\n---\n"],
    ids=["not-utf-8", "no-yaml", "no-front", "no-date"],
)  # fmt: skip
def test_an_agent_file_that_is_broken_is_named_at_the_start_and_nothing_is_begun(tmp_path: Path, raw: bytes) -> None:
    with resting(tmp_path, SCRIPT) as hive:
        kernel = hive.root / "kernel"
        original = kernel.resolve()
        kernel.unlink()
        shutil.copytree(original, kernel)
        odd = kernel / "agents" / "odd.md"
        odd.write_bytes(raw)
        refused(hive, "up", names=odd)
        assert not hive.instance.journal.exists()
        odd.unlink()
        hive.start()
        unharmed(hive)
        odd.write_bytes(raw)
        unharmed(hive)
        hive.stop()


def test_a_mailbox_removed_while_nobody_held_it_open_loses_no_message(tmp_path: Path) -> None:
    more_than_are_kept_open = 140
    slow = """
[[rule]]
match = "^slow"
delay_ms = 9000
answer = "slow done"

[[rule]]
answer = "echo: {text}"
"""
    with running(tmp_path, slow) as hive:
        hive.told("send", "slow", "--group", "bad")
        hive.told("send", "waiting", "--group", "bad")
        (session,) = (hive.state / "sessions").iterdir()
        with Daemon(hive.instance) as daemon:
            for number in range(more_than_are_kept_open):
                daemon.accept({"text": "hello", "group": f"other-{number}"})
        until(lambda: len(list((hive.state / "surfaces" / "cli").iterdir())) == more_than_are_kept_open, "all answered")
        (session / "inbound.db").unlink()
        (session / "inbound.db-journal").unlink(missing_ok=True)
        until(lambda: hive.delivered("bad") == ["slow done", "echo: waiting"], "both must be answered", 60)
