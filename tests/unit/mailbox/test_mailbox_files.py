"""Both sides of a mailbox on real files: one writer each, parity, one order, and no belief in a spoilt file."""

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rucher.mailbox import schema
from rucher.mailbox.errors import HotJournal, MailboxCorrupt, MailboxUnavailable
from rucher.mailbox.host import HostMailbox, create
from rucher.mailbox.rows import Kind, Outcome
from rucher.mailbox.runner import RunnerMailbox
from tests.unit.mailbox.killed import kill_in_commit

NOW = 1_700_000_000_000_000


def call_body(name: str = "read_file", effect: str = "read") -> dict[str, object]:
    return {"name": name, "arguments": {"path": "a"}, "effect": effect, "timeout_s": 5}


def said_by_the_runner(session: Path) -> list[tuple[int, str, str]]:
    connection = sqlite3.connect(f"file:{session / schema.OUTBOUND}?mode=ro", uri=True)
    rows = connection.execute("SELECT seq, kind, key FROM outbound ORDER BY seq").fetchall()
    connection.close()
    return rows


@pytest.fixture
def session(tmp_path: Path) -> Path:
    create(tmp_path / "s1", "s1")
    return tmp_path / "s1"


@pytest.fixture
def host(session: Path) -> Iterator[HostMailbox]:
    mailbox = HostMailbox(session)
    yield mailbox
    mailbox.close()


@pytest.fixture
def runner(session: Path) -> Iterator[RunnerMailbox]:
    mailbox = RunnerMailbox(str(session), lambda: NOW)
    mailbox.recover()
    yield mailbox
    mailbox.close()


def test_the_host_writes_even_numbers_and_the_runner_odd_ones_in_one_order(
    session: Path, host: HostMailbox, runner: RunnerMailbox
) -> None:
    first = host.put(Kind.TOOL_CALL, "k1", call_body(), NOW)
    (call,) = runner.open_calls()
    runner.claim([call])
    runner.finish(call, Outcome.OK, "text")
    second = host.put(Kind.TOOL_CALL, "k2", call_body(), NOW)
    assert (first, second) == (2, 6)
    assert said_by_the_runner(session) == [(3, "processing", "k1"), (5, "result", "k1")]


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        (schema.INBOUND, "INSERT INTO inbound VALUES (3, 'k', 'tool_call', 1, '{}', 'pending')"),
        (schema.INBOUND, "INSERT INTO inbound VALUES (2, 'k', 'gossip', 1, '{}', 'pending')"),
        (schema.INBOUND, "INSERT INTO inbound VALUES (2, 'k', 'tool_call', 1, 'no json', 'pending')"),
        (schema.INBOUND, "INSERT INTO inbound VALUES (2, 'k', 'tool_call', 1, '{}', 'perhaps')"),
        (schema.OUTBOUND, "INSERT INTO outbound VALUES (2, 'result', 2, 'k', 1, '{}')"),
        (schema.OUTBOUND, "INSERT INTO outbound VALUES (3, 'result', 3, 'k', 1, '{}')"),
        (schema.OUTBOUND, "INSERT INTO outbound VALUES (3, 'gossip', 2, 'k', 1, '{}')"),
        (schema.OUTBOUND, "INSERT INTO outbound VALUES (3, 'result', 2, 'k', 'noon', '{}')"),
    ],
)
def test_the_files_themselves_refuse_rows_that_the_protocol_does_not_know(
    session: Path, file: str, statement: str
) -> None:
    connection = sqlite3.connect(session / file)
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(statement)
    connection.close()


def test_a_key_put_twice_keeps_its_first_row(host: HostMailbox) -> None:
    first = host.put(Kind.TOOL_CALL, "k", call_body(), NOW)
    again = host.put(Kind.TOOL_CALL, "k", call_body("shell"), NOW + 1)
    assert again == first
    assert [row.body["name"] for row in host.pending(Kind.TOOL_CALL)] == ["read_file"]


def test_the_first_result_of_a_key_stays(host: HostMailbox, runner: RunnerMailbox) -> None:
    host.put(Kind.TOOL_CALL, "k", call_body(), NOW)
    (call,) = runner.open_calls()
    runner.finish(call, Outcome.OK, "first")
    runner.finish(call, Outcome.ERROR, "second")
    result = host.result("k")
    assert result is not None
    assert (result.text, result.outcome, runner.open_calls()) == ("first", Outcome.OK, [])


def test_a_call_that_the_host_gave_up_is_offered_to_no_runner(host: HostMailbox, runner: RunnerMailbox) -> None:
    host.put(Kind.TOOL_CALL, "k", call_body(), NOW)
    assert host.give_up("k")
    assert runner.open_calls() == []
    assert runner.cancelled("k")
    assert not host.give_up("k")
    assert not host.give_up("never put")
    host.put(Kind.TOOL_CALL, "k", call_body(), NOW)
    assert [call.key for call in runner.open_calls()] == ["k"], "asked for again, it is wanted again"


def test_settled_calls_are_marked_in_the_commit_of_the_next_put(host: HostMailbox) -> None:
    first = host.put(Kind.TOOL_CALL, "k1", call_body(), NOW)
    host.put(Kind.TOOL_CALL, "k2", call_body(), NOW, done=[first])
    assert [row.key for row in host.pending(Kind.TOOL_CALL)] == ["k2"]


def test_a_cancel_reaches_the_runner_under_the_key_of_the_call(host: HostMailbox, runner: RunnerMailbox) -> None:
    host.put(Kind.TOOL_CALL, "k", call_body(), NOW)
    assert not runner.cancelled("k")
    host.cancel("k", NOW)
    assert runner.cancelled("k")


def test_two_commits_in_one_tick_of_the_clock_both_ring_the_bell(host: HostMailbox, runner: RunnerMailbox) -> None:
    versions = {runner.inbound_version()}
    for number in range(20):
        host.put(Kind.TOOL_CALL, f"k{number}", call_body(), NOW)
        versions.add(runner.inbound_version())
    assert len(versions) == 21


def test_a_session_has_one_runner_at_a_time(session: Path, runner: RunnerMailbox) -> None:
    with pytest.raises(MailboxUnavailable, match="another runner"):
        RunnerMailbox(str(session), lambda: NOW)
    assert runner.open_calls() == []


def test_a_runner_killed_in_a_commit_loses_nothing_and_only_a_runner_undoes_it(session: Path) -> None:
    host = HostMailbox(session)
    host.put(Kind.TOOL_CALL, "k", call_body(), NOW)
    first = RunnerMailbox(str(session), lambda: NOW)
    first.recover()
    first.finish(first.open_calls()[0], Outcome.OK, "kept")
    first.close()
    kill_in_commit(session / schema.OUTBOUND, "outbound")
    spilled = (session / schema.OUTBOUND).read_bytes()
    for read in (lambda: host.result("k"), host.demand_readable, lambda: host.put(Kind.MESSAGE, "m", {}, NOW)):
        with pytest.raises(HotJournal):
            read()
    assert (session / schema.OUTBOUND).read_bytes() == spilled
    second = RunnerMailbox(str(session), lambda: NOW)
    second.recover()
    result = host.result("k")
    assert result is not None
    assert result.text == "kept"
    assert said_by_the_runner(session) == [(3, "result", "k")]
    second.close()
    host.close()


def test_a_host_killed_in_a_commit_undoes_it_when_it_is_back_and_runners_wait(session: Path) -> None:
    host = HostMailbox(session)
    host.put(Kind.TOOL_CALL, "k", call_body(), NOW)
    host.close()
    kill_in_commit(session / schema.INBOUND, "inbound")
    runner = RunnerMailbox(str(session), lambda: NOW)
    with pytest.raises(HotJournal):
        runner.open_calls()
    back = HostMailbox(session)
    assert [row.key for row in back.pending(Kind.TOOL_CALL)] == ["k"]
    assert back.pending(Kind.MESSAGE) == []
    assert [call.key for call in runner.open_calls()] == ["k"]
    runner.close()
    back.close()


def test_the_host_never_acts_on_a_forged_journal_that_names_another_file_to_delete(
    session: Path, tmp_path: Path
) -> None:
    kill_in_commit(session / schema.OUTBOUND, "outbound")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    name = str(victim).encode()
    page = (2**30 // 4096 + 1).to_bytes(4, "big")
    magic = bytes.fromhex("d9d505f920a163d7")
    record = page + name + len(name).to_bytes(4, "big") + (sum(name) & 0xFFFFFFFF).to_bytes(4, "big") + magic
    with (session / "outbound.db-journal").open("ab") as journal:
        journal.write(record)
    host = HostMailbox(session)
    with pytest.raises(HotJournal):
        host.result("k")
    host.close()
    assert victim.read_text() == "precious"
    careless = sqlite3.connect(session / schema.OUTBOUND)
    careless.execute("SELECT count(*) FROM outbound").fetchone()
    careless.close()
    assert not victim.exists(), "the attack works on whoever opens the file for writing, so this test can fail"


def _spoil_header(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)


def _spoil_pages(path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[:100] + b"\xff" * (len(raw) - 100))


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _turn_to_wal(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[18:20] = b"\x02\x02"
    path.write_bytes(raw)


def _link(path: Path) -> None:
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _execute(path: Path, script: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()


def _add_table(path: Path) -> None:
    _execute(path, "CREATE TABLE extra(x)")


def _add_trigger(path: Path) -> None:
    _execute(path, "CREATE TRIGGER t AFTER INSERT ON meta BEGIN SELECT 1; END")


def _other_session(path: Path) -> None:
    _execute(path, "UPDATE meta SET value = 's2' WHERE key = 'session'")


def _other_protocol(path: Path) -> None:
    _execute(path, "UPDATE meta SET value = '999' WHERE key = 'protocol'")


SPOILERS = [
    _spoil_header, _spoil_pages, _truncate, _empty, _turn_to_wal, _link, _pipe, _add_table, _add_trigger,
    _other_protocol,
]  # fmt: skip


@pytest.mark.parametrize("file", [schema.INBOUND, schema.OUTBOUND])
@pytest.mark.parametrize("spoil", [*SPOILERS, _other_session])
def test_a_spoilt_file_is_named_with_what_to_do(session: Path, file: str, spoil: Callable[[Path], None]) -> None:
    spoil(session / file)
    with pytest.raises(MailboxCorrupt, match=r"(inbound|outbound)\.db.*; .*(remove|move) this file") as caught:
        _use(session)
    assert "\n" not in str(caught.value)


def _use(session: Path) -> None:
    host = HostMailbox(session)
    try:
        host.result("k")
    finally:
        host.close()


def test_an_unspoilt_pair_is_usable(session: Path) -> None:
    _use(session)


VIEW = (
    "ALTER TABLE outbound RENAME TO hidden;"
    "CREATE VIEW outbound AS WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 2 FROM n)"
    " SELECT seq, 'result' AS kind, 2 AS reply_to, 'k' AS key, 1 AS created_at, '{}' AS body FROM n;"
)


def test_a_table_replaced_by_an_endless_view_while_the_host_reads_is_noticed(
    session: Path, host: HostMailbox, runner: RunnerMailbox
) -> None:
    assert host.result("k") is None
    assert runner.open_calls() == []
    _execute(session / schema.OUTBOUND, VIEW)
    with pytest.raises(MailboxCorrupt, match="not those of a mailbox"):
        host.demand_readable()


@pytest.mark.parametrize(
    "values",
    [
        (3, "result", 2, "k", 1, "no json"),
        (3, "result", 2, "k", 1, "[1]"),
        (3, "result", 2, "k", 1, "[" * 100_000),
        (3, "result", 2, "k", 1, '{"outcome": "splendid", "text": ""}'),
        (3, "result", 2, "k", 1, '{"outcome": "ok", "text": 7}'),
        (3, "result", 2, "k", 1, '{"outcome": "ok", "text": "", "truncated": "no"}'),
        (2**62 + 1, "result", 2, "k", 1, '{"outcome": "ok", "text": ""}'),
        (3, "result", 2, "k", 1, '{"outcome": "ok", "text": "half: \\ud800"}'),
        (3, "result", 2, "k", 1, '{"outcome": "ok", "text": "nothing: \\u0000"}'),
        (3, "result", 2, "k", 1, '{"outcome": "ok", "text": "", "more": NaN}'),
        (3, "result", 2, "k", 1, '{"outcome": "ok", "text": "", "more": [1e999]}'),
        (3, "result", 2, "k", 1, '{"outcome": "ok", "text": "", "more": {"a": 9223372036854775808}}'),
        (3, "result", 2, "k", 1, '{"outcome": "ok", "text": "", "\\udfff": 1}'),
        (3, "result", 2, "k", 1, '{"outcome": "ok", "text": "' + "x" * schema.MAX_REPLY + '"}'),
        (3, "result", 2, "k", 1, "x" * 5_000_000),
    ],
)
def test_a_row_of_a_wrong_type_stops_the_session_and_nothing_else(
    session: Path, host: HostMailbox, values: tuple[object, ...]
) -> None:
    connection = sqlite3.connect(session / schema.OUTBOUND)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.execute("INSERT INTO outbound VALUES (?, ?, ?, ?, ?, ?)", values)
    connection.commit()
    connection.close()
    with pytest.raises(MailboxCorrupt, match=r"outbound\.db"):
        _believe_all(host)


def _believe_all(host: HostMailbox) -> None:
    host.result("k")
    host.claimed("k")
    host.put(Kind.MESSAGE, "m", {}, NOW)


def test_a_missing_inbound_file_is_made_anew_and_counts_on(session: Path, runner: RunnerMailbox) -> None:
    first = HostMailbox(session)
    first.put(Kind.TOOL_CALL, "k", call_body(), NOW)
    runner.finish(runner.open_calls()[0], Outcome.OK, "kept")
    first.close()
    (session / schema.INBOUND).unlink()
    create(session, "s1")
    host = HostMailbox(session)
    assert host.pending(Kind.TOOL_CALL) == []
    assert host.put(Kind.TOOL_CALL, "k", call_body(), NOW) == 4
    assert host.result("k") is not None
    host.close()


def test_a_missing_outbound_file_is_not_papered_over(session: Path) -> None:
    (session / schema.OUTBOUND).unlink()
    with pytest.raises(MailboxCorrupt, match=r"outbound\.db is missing"):
        create(session, "s1")


def test_half_made_files_of_a_killed_host_are_replaced(tmp_path: Path) -> None:
    session = tmp_path / "s1"
    session.mkdir()
    (session / "outbound.db.new").write_bytes(b"half")
    (session / "inbound.db.new-journal").write_bytes(b"half")
    create(session, "s1")
    _use(session)
    assert sorted(path.name for path in session.iterdir()) == [
        ".heartbeat", "inbound.db", "inbound.db-journal", "outbound.db", "outbound.db-journal", "workspace",
    ]  # fmt: skip


def test_a_read_only_inbound_file_stops_the_session_with_a_clear_line() -> None:
    source = Path(schema.__file__).parents[2]
    script = f"""
        import os, sys
        sys.path.insert(0, {str(source)!r})
        from pathlib import Path
        from rucher.mailbox.errors import MailboxCorrupt
        from rucher.mailbox.host import HostMailbox, create
        if os.geteuid() == 0:
            os.setgroups([]); os.setgid(65532); os.setuid(65532)
        create(Path("s1"), "s1")
        HostMailbox(Path("s1")).close()
        os.chmod("s1/inbound.db", 0o444)
        try:
            HostMailbox(Path("s1"))
        except MailboxCorrupt as error:
            print(error)
    """
    # Not in tmp_path: root's lies in a folder that the user who meets a read-only file cannot reach.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        done = subprocess.run(
            [sys.executable, "-I", "-c", textwrap.dedent(script)],
            check=True, capture_output=True, text=True, cwd=folder,
        )  # fmt: skip
    assert "inbound.db" in done.stdout
    assert "read-only" in done.stdout


def test_a_file_locked_by_another_is_unavailable_not_corrupt(session: Path, host: HostMailbox) -> None:
    holder = sqlite3.connect(session / schema.OUTBOUND, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(MailboxUnavailable, match="retry"):
        host.result("k")
    holder.execute("ROLLBACK")
    holder.close()
    assert host.result("k") is None


def test_only_their_owner_can_look_into_a_session(session: Path) -> None:
    assert stat.S_IMODE(session.stat().st_mode) == 0o700
