"""Laws of `rucher store`: a copy is the same store or is refused, a migration happens once, and no password is shown."""

import asyncio
import json
import os
import re
import shutil
import socket
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from rucher.daemon.lock import sole_daemon
from rucher.instance.layout import Instance
from rucher.instance.secrets import node_key
from rucher.journal.places import shown
from rucher.journal.rows import RunHead, RunWrite
from rucher.journal.seals import Sealer
from rucher.journal.statements import SCHEMA_VERSION, migrations
from rucher.journal.store import Place, open_store, read_store
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.errors import BadInput, Fenced, Retryable, RucherError
from tests.fakes.drafts import said
from tests.fakes.marks import leave_mark
from tests.fakes.postgres import PASSWORD, shared
from tests.unit.cli.recorded import Ticking, asked, hop_of, make_instance, record, rucher, say

WRONG = "wrong secret"
pytestmark = pytest.mark.xdist_group("postgres")


def refusal(result: Result, kind: type[RucherError] = BadInput) -> str:
    """The one line with which a command was refused."""
    assert isinstance(result.exception, kind), (result.output, result.exception)
    assert "\n" not in str(result.exception)
    return str(result.exception)


def status(instance: Instance) -> dict[str, Any]:
    result = rucher(instance, "store", "status", "--json")
    assert result.exit_code == 0, result
    told: dict[str, Any] = json.loads(result.output)
    return told


def use(instance: Instance, url: str) -> None:
    """Let the instance keep its journal there."""
    instance.config.write_text(f'{instance.config.read_text()}\n[store]\nurl = "{url}"\n')


def public(instance: Instance) -> str:
    return bytes(node_key(instance.node_key, SystemEntropy()).verify_key).hex()


def everything(place: Place) -> dict[str, list[list[Any]]]:
    """All that a copy must hold."""

    async def reading() -> dict[str, list[list[Any]]]:
        async with read_store(place, SystemClock()) as store:
            rows: dict[str, list[list[Any]]] = {}
            for name in ("seals.all", "archives.all"):
                rows[name] = [list(row) for row in await store.rows(name)]
            starts: dict[str, tuple[Any, ...]] = {"runs": ("",), "hops": ("",), "waits": ("", "", -1), "cursors": ("",)}
            for table, start in starts.items():
                rows[table] = [list(row) for row in await store.rows(f"page.{table}", *start, 1000)]
            return rows | {"events": await store.stored("event.after", 0, 1000)}

    return asyncio.run(reading())


def copied(instance: Instance, source: Place, target: Place) -> Result:
    return rucher(instance, "store", "copy", str(source), str(target))


def loaded(place: Place, table: str, rows: Sequence[Sequence[Any]]) -> None:
    async def loading() -> None:
        async with open_store(place, SystemClock()) as store:
            await store.load(table, rows)

    asyncio.run(loading())


async def belonging(place: Place, instance: Instance) -> None:
    """What a daemon of this instance does first with its store."""
    async with open_store(place, SystemClock()) as store:
        await store.belong_to(public(instance))


def older(path: Path) -> None:
    """A store as the first Rucher wrote it, with one event."""
    ((version, script), *_) = migrations("sqlite")
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"{script}\nPRAGMA user_version = {version};")
        db.execute(
            "INSERT INTO events (seq, id, tenant, source, type, principal, trust, trace_id, occurred_at, recorded_at, body)"
            " VALUES (1, 'A', 'local', 'cli', 'message', 'owner:ana', 5, 'T', 1, 1, '{}')"
        )
        db.commit()


@pytest.fixture
def database() -> str:
    return shared().new_database()


def test_status_says_what_is_there(tmp_path: Path) -> None:
    story = record(tmp_path / "hive", waiting=True)
    told = status(story.instance)
    assert (told["store"], told["place"]) == ("sqlite", str(story.instance.journal))
    assert (told["schema"], told["writes"], told["views"]) == (SCHEMA_VERSION, SCHEMA_VERSION, "current")
    assert (told["events"], told["head"], told["seals"], told["sealed_to"], told["archives"]) == (25, 25, 1, 25, 0)
    assert told["size"] >= story.instance.journal.stat().st_size > 0
    assert (told["workers"], told["todo"]) == ([], None)
    assert re.search(r"^events +25$", rucher(story.instance, "store", "status").output, re.MULTILINE)


def test_status_tells_workers_that_live_from_those_that_are_dead(tmp_path: Path, database: str) -> None:
    instance = make_instance(tmp_path / "hive")
    use(instance, database)
    asyncio.run(_with_workers(database))
    leave_mark(instance.workers, "DEAD")
    told = status(instance)
    assert told["store"] == "postgresql"
    assert [(row["worker"], row["role"], row["state"]) for row in told["workers"]] == [
        ("ALIVE", "worker", "working"),
        ("DEAD", "worker", "dead"),
    ]
    assert "ALIVE  worker on there  working" in rucher(instance, "store", "status").output


async def _with_workers(place: Place) -> None:
    async with open_store(place, SystemClock()) as store:
        for worker in ("ALIVE", "DEAD"):
            await store.command("worker.join", {"worker": worker, "host": "there", "role": "worker", "at": 1})


def test_an_older_store_is_migrated_once_with_what_is_in_it(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    older(instance.journal)
    assert (status(instance)["schema"], status(instance)["todo"]) == (1, "rucher store migrate")
    assert "rucher store migrate" in refusal(rucher(instance, "events"))
    done = rucher(instance, "store", "migrate")
    assert (done.exit_code, f"has schema {SCHEMA_VERSION} now" in done.output) == (0, True)
    assert [event["id"] for event in json.loads(rucher(instance, "events", "--json").output)] == ["A"]
    assert "nothing to do" in rucher(instance, "store", "migrate").output


def test_a_store_of_a_newer_rucher_is_left_alone(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    with closing(sqlite3.connect(story.instance.journal)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = story.instance.journal.read_bytes()
    for words in (
        ("store", "migrate"),
        ("store", "copy", str(story.instance.journal), str(tmp_path / "to.db")),
        ("runs",),
    ):
        assert "use the newer Rucher that wrote it" in refusal(rucher(story.instance, *words))
    assert status(story.instance)["todo"] == "use the newer Rucher that wrote it"
    assert (story.instance.journal.read_bytes(), (tmp_path / "to.db").exists()) == (before, False)


def test_where_there_is_no_journal_nothing_is_made(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    for words in (("store", "status"), ("store", "migrate")):
        assert "there is no journal at" in refusal(rucher(instance, *words))
    assert not instance.journal.exists()


def test_a_copy_to_postgresql_and_back_is_the_same_store(tmp_path: Path, database: str) -> None:
    story = record(tmp_path / "hive", waiting=True)
    there = copied(story.instance, story.instance.journal, database)
    assert there.exit_code == 0, (there.output, there.exception)
    assert "copied 25 events" in there.output
    assert f'[store]\nurl = "{database}"' in there.output
    use(story.instance, database)
    verified = json.loads(rucher(story.instance, "journal", "verify", "--json").output)
    assert (verified["ok"], verified["events"]) == (True, 25)
    assert status(story.instance)["instance"] == public(story.instance)
    say(story.instance, "a message beside")  # the file is not the store any more, and stays as it is
    back = copied(story.instance, database, tmp_path / "back.db")
    assert back.exit_code == 0, (back.output, back.exception)
    assert everything(database) == everything(tmp_path / "back.db")
    assert len(everything(database)["events"]) == 25


def test_work_goes_on_in_a_copy_where_it_was(tmp_path: Path, database: str) -> None:
    story = record(tmp_path / "hive", waiting=True)
    assert copied(story.instance, story.instance.journal, database).exit_code == 0

    async def going_on() -> list[tuple[int, bool]]:
        async with open_store(database, SystemClock()) as store:
            await store.belong_to(public(story.instance))
            with pytest.raises(Fenced):
                await store.write(
                    RunWrite(RunHead(story.waiting_run, "local", "T", None), 0, 0, 1, [("run.noted", "{}")])
                )
            appended = await store.append(asked(Ticking(), "first", "delivered late again"), said("new"))
            return [(each.event.seq, each.first) for each in appended]

    assert asyncio.run(going_on()) == [(1, False), (26, True)]


def test_what_was_archived_is_known_in_a_copy_too(tmp_path: Path, database: str) -> None:
    story = record(tmp_path / "hive")
    clock, head = Ticking(), story.instance.seal_head
    key = node_key(story.instance.node_key, SystemEntropy())

    async def more() -> None:
        async with open_store(story.instance.journal, clock) as store:
            for name in ("later", "last"):
                await hop_of(store, clock, asked(clock, name, name), "default", "agent:scribe")
                await Sealer(store, key, head, clock).seal()

    asyncio.run(more())
    archived = json.loads(rucher(story.instance, "journal", "archive", "--before", "2100-01-01", "--json").output)
    assert archived["last_seq"] == 18
    for source, target in ((story.instance.journal, database), (database, tmp_path / "back.db")):
        result = copied(story.instance, source, target)
        assert result.exit_code == 0, (result.output, result.exception)
        assert "copied 6 events" in result.output
    assert everything(tmp_path / "back.db") == everything(story.instance.journal)

    async def again() -> tuple[int, bool]:
        async with open_store(database, SystemClock(), story.instance.archive) as store:
            (appended,) = await store.append(asked(clock, "first", "delivered late again"))
            return appended.event.seq, appended.first

    assert asyncio.run(again()) == (1, False)
    use(story.instance, database)
    assert json.loads(rucher(story.instance, "journal", "verify", "--json").output)["ok"]


def test_an_interrupted_copy_is_refused_by_a_daemon_and_goes_on_when_asked_again(tmp_path: Path) -> None:
    story = record(tmp_path / "hive", waiting=True)
    target = tmp_path / "to.db"
    rows = everything(story.instance.journal)["events"]
    loaded(target, "meta", [["copying", public(story.instance)]])
    loaded(target, "events", rows[:10])

    with pytest.raises(BadInput, match="unfinished copy"):
        asyncio.run(belonging(target, story.instance))
    assert copied(story.instance, story.instance.journal, target).exit_code == 0
    assert everything(target) == everything(story.instance.journal)
    asyncio.run(belonging(target, story.instance))


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        (12, '{"text": "forged"}', "event 3 differs in the copy: its body is"),
        (11, 1, "event 3 differs in the copy: its recorded_at is 1 instead of"),
    ],
)
def test_a_copy_that_differs_is_told_and_not_used(tmp_path: Path, column: int, value: object, says: str) -> None:
    story = record(tmp_path / "hive")
    target = tmp_path / "to.db"
    rows = everything(story.instance.journal)["events"]
    changed = list(rows[2])
    changed[column] = value
    loaded(target, "meta", [["copying", public(story.instance)]])
    loaded(target, "events", [*rows[:2], changed, *rows[3:5]])
    before = story.instance.journal.read_bytes()
    result = copied(story.instance, story.instance.journal, target)
    assert result.exit_code == 1
    assert says in result.output
    assert "the seals do not hold in the copy: an event under the seal over events 1 to 18 was changed" in result.output
    assert "is no faithful copy and stays unusable" in result.output
    assert story.instance.journal.read_bytes() == before
    with pytest.raises(BadInput, match="unfinished copy"):
        asyncio.run(belonging(target, story.instance))


def test_views_that_are_not_what_the_events_say_are_told(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    with closing(sqlite3.connect(story.instance.journal)) as db:
        db.execute("UPDATE runs SET reason = 'made up'")
        db.execute("DELETE FROM hops")
        db.commit()
    result = copied(story.instance, story.instance.journal, tmp_path / "to.db")
    assert result.exit_code == 1
    assert f"runs {story.run_id} differs in the copy: its reason is '' instead of 'made up'" in result.output
    assert "hops: the copy has more rows" in result.output


def test_an_unfinished_copy_of_another_store_is_not_gone_on_with(tmp_path: Path) -> None:
    story, other = record(tmp_path / "hive"), record(tmp_path / "other", waiting=True)
    rows = everything(other.instance.journal)["events"]
    for name, mark in (("its", public(story.instance)), ("other's", public(other.instance))):
        target = tmp_path / f"{name}.db"
        loaded(target, "meta", [["copying", mark]])
        loaded(target, "events", rows)
        text = refusal(copied(story.instance, story.instance.journal, target))
        assert "an unfinished copy of another store" in text


def test_a_copy_is_refused_where_it_would_mix_or_race(tmp_path: Path, database: str) -> None:
    story = record(tmp_path / "hive")
    other = record(tmp_path / "other")
    journal = story.instance.journal
    assert "are the same store" in refusal(copied(story.instance, journal, journal))
    assert "is in use: it holds 18 events" in refusal(copied(story.instance, journal, other.instance.journal))
    older(tmp_path / "old.db")
    assert "is in use: " in refusal(copied(story.instance, journal, tmp_path / "old.db"))
    assert copied(story.instance, journal, tmp_path / "to.db").exit_code == 0
    assert "belongs to another instance" in refusal(copied(other.instance, tmp_path / "to.db", tmp_path / "x.db"))
    assert "there is no journal at" in refusal(copied(story.instance, tmp_path / "none.db", tmp_path / "y.db"))
    assert "cannot be opened" in refusal(copied(story.instance, journal, tmp_path / "no" / "folder.db"))
    with sole_daemon(story.instance.lock):
        assert "a daemon runs on" in refusal(copied(story.instance, journal, database))


def test_a_copy_waits_for_the_workers_of_the_source_to_be_stopped(tmp_path: Path, database: str) -> None:
    instance = make_instance(tmp_path / "hive")
    node_key(instance.node_key, SystemEntropy())
    asyncio.run(_with_workers(database))
    text = refusal(rucher(instance, "store", "copy", database, str(tmp_path / "to.db")))
    assert "worker ALIVE on there works on postgresql://" in text


def test_a_wrong_place_is_one_line_and_no_password_is_ever_shown(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    server, journal = shared(), story.instance.journal
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        away = server.url("t1", tcp=True, port=free.getsockname()[1])
        for url, kind, says in (
            ("mysql://ana:secret@h/db", BadInput, "mysql:// is no store"),
            (server.url("postgres", tcp=True, password=WRONG), BadInput, "refuses to log in"),
            (server.url("nosuch", tcp=True), BadInput, "there is no database at"),
            (away, Retryable, "cannot be used just now"),
            ("postgresql://u:secret@[::1", BadInput, "cannot be understood"),
            ("postgresql://u:secret@127.0.0.1:99999/db", BadInput, "cannot be understood"),
        ):
            text = refusal(copied(story.instance, journal, url), kind)
            assert says in text
            assert [word for word in ("secret", PASSWORD, "honey", "wrong") if word in text] == []
    use(story.instance, away)
    for words in (("store", "status"), ("store", "migrate"), ("runs",)):
        assert "honey" not in refusal(rucher(story.instance, *words), Retryable)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://ana:pw@h:5/db", "postgresql://ana@h:5/db"),
        ("postgresql://h/db?user=ana&password=pw&sslpassword=pw", "postgresql://h/db?user=ana"),
        ("postgresql://ana@/db?host=/run/pg", "postgresql://ana@/db?host=/run/pg"),
        ("postgresql://h/db?user=ana&PASSWORD=pw", "postgresql://h/db?user=ana"),
        ("postgresql://ana:p/w@h/db", "the PostgreSQL URL"),
        ("postgresql://ana:p#w@h/db", "the PostgreSQL URL"),
        ("postgresql://ana:p?w@h/db", "the PostgreSQL URL"),
    ],
)
def test_a_url_is_shown_as_it_can_be_used_but_for_its_password(url: str, told: str) -> None:
    assert shown(url) == told


def test_a_worker_is_refused_where_the_journal_is_a_file(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")
    assert "workers share a PostgreSQL store" in refusal(rucher(instance, "up", "--role", "worker"))


def test_a_store_of_another_instance_is_neither_read_nor_changed(tmp_path: Path) -> None:
    story = record(tmp_path / "hive")
    other = make_instance(tmp_path / "other")
    other.journal.parent.mkdir(exist_ok=True)
    asyncio.run(belonging(story.instance.journal, story.instance))
    shutil.copy(story.instance.journal, other.journal)
    for words in (("runs",), ("events",), ("journal", "rebuild"), ("journal", "export"), ("store", "migrate")):
        assert "belongs to another instance" in refusal(rucher(other, *words)), words


def test_views_are_not_rebuilt_beside_a_worker(tmp_path: Path, database: str) -> None:
    instance = make_instance(tmp_path / "hive")
    use(instance, database)
    asyncio.run(_with_workers(database))
    assert "worker ALIVE on " in refusal(rucher(instance, "journal", "rebuild"))


def test_what_nobody_can_write_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = record(tmp_path / "hive")
    before = rucher(story.instance, "events", "--json").output
    monkeypatch.setattr("os.access", lambda _path, mode: mode != os.W_OK)
    for rest in story.instance.journal.parent.glob("rucher.db-*"):
        rest.unlink()
    assert rucher(story.instance, "events", "--json").output == before
    assert not list(story.instance.journal.parent.glob("rucher.db-*"))


@pytest.mark.parametrize("given", ["host=h password=secret", "dbname=x user=y"])
def test_a_database_in_other_words_than_a_url_is_not_taken_for_a_file(tmp_path: Path, given: str) -> None:
    story = record(tmp_path / "hive")
    text = refusal(copied(story.instance, story.instance.journal, given))
    assert "postgresql://" in text
    assert "secret" not in text


def test_a_store_of_another_instance_is_not_worked_on(tmp_path: Path, database: str) -> None:
    first, second = make_instance(tmp_path / "first", 7998), make_instance(tmp_path / "second", 7997)
    use(first, database)
    use(second, database)

    asyncio.run(belonging(database, first))
    text = refusal(rucher(second, "up", "--role", "worker"))
    assert "belongs to another instance" in text
    assert public(first)[:12] in text
