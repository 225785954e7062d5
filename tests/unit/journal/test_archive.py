"""Laws of the archive, on both databases: what leaves the store is verified, known, folded and told as if it had stayed."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from nacl.signing import SigningKey
from typing_extensions import override

from rucher.journal import archive as archiving
from rucher.journal.archive import Plan, archive, plan
from rucher.journal.artifacts import Artifacts
from rucher.journal.history import all_events, trace_starting, whole_trace
from rucher.journal.postgres import schema
from rucher.journal.rows import RunWrite
from rucher.journal.seals import Sealer, Verified, verify, verify_last
from rucher.journal.store import JournalStore, Place, open_store
from rucher.journal.units import Adapter, Archive
from rucher.journal.views import VIEWS
from rucher.kernel.spec import RunSpec
from rucher.kernel.steps import RunSteps
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import BadInput, Corrupt, Fenced, Retryable
from rucher.protocol.events import Draft, Event, control_event
from rucher.protocol.ports import StepKind
from tests.fakes.clock import ManualClock
from tests.fakes.drafts import run_spec, said
from tests.fakes.kernel import Scene, tool
from tests.fakes.postgres import shared

KEY = SigningKey(bytes(32))
DAY_S = 86_400
EVER = 1 << 60
Story = Callable[["Hive"], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hive(Scene):
    """A store with its seals and its archive, lived in day by day."""

    folder: Path

    @property
    def archive(self) -> Path:
        return self.folder / "archive"

    async def seal(self) -> None:
        await Sealer(self.store, KEY, self.folder / "seal.head", self.clock).seal()

    async def day(self, key: str, *, ends: bool = True) -> Event:
        """A message, its hop, its run with a step and, if it ends, its end; then a seal, and a day goes by."""
        message = (await self.store.append(said(key)))[0].event
        spec = self.run_for(message)
        await self.store.append(*self.hop(message))
        run = await self.open(spec)
        steps = RunSteps(run)

        async def act(_key: str) -> Mapping[str, Any]:
            return {"usage": {"input_tokens": 3, "output_tokens": 4}}

        await steps.perform(StepKind.MODEL_CALL, Effect.MODEL_CALL, {"messages": 1}, act)
        await tool(steps, act, Effect.IDEMPOTENT_WRITE)
        if ends:
            await run.finish("done", "")
        await self.seal()
        self.clock.advance(DAY_S)
        return message

    def run_for(self, message: Event) -> RunSpec:
        hop = self.hop(message)[0].id
        return run_spec(message.id, hop=hop, event=message.id, trace_id=message.trace_id, accounts=("all",))

    def hop(self, message: Event) -> tuple[Draft, Draft]:
        body = {"event": message.id, "event_seq": message.seq, "rule": "r", "rules": "v", "to": "agent:scribe"}
        made = self.told("hop.made", message, body)
        return made, self.told("hop.acknowledged", message, {"hop": made.id, "session": "S"})

    def told(self, kind: str, about: Event, body: Mapping[str, Any]) -> Draft:
        return control_event(
            tenant="local", part="router", kind=kind, key=f"{kind}:{about.id}", trace_id=about.trace_id,
            occurred_at=self.clock.now(), body=body,
        )  # fmt: skip

    async def archived(self, before_us: int = EVER) -> Plan:
        return await archive(self.store, self.archive, KEY.verify_key, self.clock, before_us, lambda _done, _all: None)

    async def verified(self, key: SigningKey = KEY) -> Verified:
        return await verify(self.store, key.verify_key, self.folder / "seal.head", self.archive)

    async def whole(self, after: int = 0) -> list[Event]:
        return [event async for batch in all_events(self.store, self.archive, after) for event in batch]

    def segments(self) -> list[Path]:
        return sorted(self.archive.glob("*.jsonl.gz"))

    async def live(self) -> list[int]:
        return [event.seq for event in await self.store.events("event.after", 0, 10_000)]


async def nothing(_hive: Hive) -> None:
    pass


def hive_of(store: JournalStore, clock: ManualClock, folder: Path) -> Hive:
    return Hive(store=store, clock=clock, artifacts=Artifacts(folder / "artifacts"), folder=folder)


def live(folder: Path, *stories: Story, place: Place | None = None) -> None:
    """Let each story happen in an opening of its own of the same store."""
    clock = ManualClock()

    async def run(story: Story) -> None:
        async with open_store(place or folder / "rucher.db", clock, folder / "archive") as store:
            await story(hive_of(store, clock, folder))

    for story in stories:
        asyncio.run(run(story))


def views(place: Place) -> Mapping[str, list[tuple[Any, ...]]]:
    """All rows of all views, in one order."""
    queries = {view: f"SELECT * FROM {view}" for view in VIEWS}  # noqa: S608 - the package's own names
    if isinstance(place, Path):
        with closing(sqlite3.connect(place)) as db:
            return {view: sorted(db.execute(query).fetchall(), key=repr) for view, query in queries.items()}

    async def read() -> dict[str, list[tuple[Any, ...]]]:
        db = await asyncpg.connect(place)
        found = {view: sorted(map(tuple, await db.fetch(query)), key=repr) for view, query in queries.items()}
        await db.close()
        return found

    return asyncio.run(read())


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return tmp_path / "rucher.db" if request.param == "sqlite" else shared().new_database()


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "SEGMENT_EVENTS", 15)
    monkeypatch.setattr(archiving, "ROWS_AT_ONCE", 4)


def test_archived_events_are_verified_told_and_folded_as_if_they_had_stayed(tmp_path: Path, place: Place) -> None:
    before: list[Event] = []
    seen: list[Mapping[str, Any]] = []

    async def lived(hive: Hive) -> None:
        for day in "abcdef":
            await hive.day(day)
        before.extend(await hive.whole())

    async def moved(hive: Hive) -> None:
        done = await hive.archived()
        assert done.first_seq == 1
        assert done.held == "seal"
        assert len(hive.segments()) == 3
        assert await hive.live() == [event.seq for event in before if event.seq > done.last_seq]
        assert await hive.whole() == before
        assert await hive.whole(after=17) == before[17:]
        found = await hive.verified()
        assert found == Verified(len(before), 6, 0, "", done.last_seq)
        assert not (await verify_last(hive.store, KEY.verify_key)).fault
        assert (await hive.archived()).events == 0

    async def folded(hive: Hive) -> None:
        assert await hive.store.rebuild() == len(before)
        await hive.day("g")
        assert (await hive.verified()).fault == ""
        assert (await hive.archived()).first_seq > 1
        assert [event.seq for event in await hive.whole()][: len(before)] == [event.seq for event in before]
        assert (await hive.verified()).fault == ""

    live(tmp_path, lived, place=place)
    seen.append(views(place))
    assert all(seen[0][view] for view in ("cursors", "hops", "runs", "budgets"))
    live(tmp_path, moved, place=place)
    assert views(place) == seen[0]

    async def rebuilt(hive: Hive) -> None:
        await hive.store.rebuild()

    live(tmp_path, rebuilt, place=place)
    assert views(place) == seen[0]
    live(tmp_path, folded, place=place)


def test_views_of_another_definition_are_folded_from_the_archive_too(tmp_path: Path) -> None:
    async def lived(hive: Hive) -> None:
        for day in "abc":
            await hive.day(day)
        await hive.archived()

    live(tmp_path, lived)
    before = views(tmp_path / "rucher.db")
    with closing(sqlite3.connect(tmp_path / "rucher.db")) as db:
        db.executescript("UPDATE meta SET value = 'older' WHERE key = 'views'; DELETE FROM runs; DELETE FROM hops;")
        db.commit()

    live(tmp_path, nothing)
    assert views(tmp_path / "rucher.db") == before


def test_a_late_second_delivery_of_what_was_archived_changes_nothing(tmp_path: Path, place: Place) -> None:
    async def story(hive: Hive) -> None:
        first = await hive.day("a")
        await hive.day("b")
        await hive.archived()
        assert first.seq not in await hive.live()
        head = hive.store.head
        again = await hive.store.append(said("new"), said("a"), *hive.hop(first))
        assert [(one.first, one.event.seq) for one in again[:2]] == [(True, head + 1), (False, first.seq)]
        assert not any(one.first for one in again[1:])
        assert again[1].event.trace_id == again[1].event.id, "which leads to the trace that was archived with it"
        alone = await asyncio.gather(hive.store.append(said("newer")), hive.store.append(said("a")))
        assert [one.first for (one,) in alone] == [True, False]
        assert hive.store.head == head + 2

    live(tmp_path, story, place=place)


def test_a_run_that_was_archived_is_neither_made_again_nor_written_nor_forked(tmp_path: Path, place: Place) -> None:
    async def lived(hive: Hive) -> None:
        await hive.day("a")
        await hive.day("b")
        await hive.archived()

    async def later(hive: Hive) -> None:
        message = (await hive.whole())[0]
        spec = hive.run_for(message)
        head = await hive.store.head_seq()
        for seq in (0, 1, 9):
            with pytest.raises(Fenced):
                await hive.store.write(RunWrite(spec.head, seq, seq, hive.clock.now(), [("step.noted", "{}")]))
        with pytest.raises(BadInput, match="archived"):
            await hive.orders.fork(spec.run_id, "1", "k")
        assert await hive.store.head_seq() == head

    live(tmp_path, lived, later, place=place)


def test_what_unfinished_work_may_need_stays(tmp_path: Path, place: Place) -> None:
    async def story(hive: Hive) -> None:
        await hive.day("a")
        asked = await hive.day("b")
        branch = run_spec("branch", event=asked.id)
        run = await hive.open(branch)
        for day in "cd":
            await hive.day(day)
        assert await plan(hive.store, EVER) == Plan(1, asked.seq - 1, "run")
        assert (await hive.archived()).last_seq == asked.seq - 1
        assert await hive.store.event(asked.id) == asked
        await run.finish("done", "")
        await hive.seal()
        await hive.day("e", ends=False)
        await hive.day("f")
        found = await plan(hive.store, EVER)
        assert found.held == "hop"
        unanswered = (await hive.store.append(said("e")))[0].event
        assert found.last_seq == unanswered.seq - 1
        await (await hive.open(hive.run_for(unanswered))).finish("done", "")
        await hive.seal()
        assert (await plan(hive.store, EVER)).last_seq > unanswered.seq

    live(tmp_path, story, place=place)


def test_what_is_on_its_way_or_not_routed_yet_stays(tmp_path: Path) -> None:
    async def story(hive: Hive) -> None:
        await hive.day("a")
        (open_one,) = await hive.store.append(said("b"))
        await hive.seal()
        made, acknowledged = hive.hop(open_one.event)
        await hive.store.append(made)
        await hive.seal()
        for day in "cd":
            await hive.day(day)
        assert await plan(hive.store, EVER) == Plan(1, open_one.event.seq - 1, "hop")
        end = hive.told("hop.failed", open_one.event, {"hop": made.id, "reason": "x"})
        await hive.store.append(acknowledged, end)
        await hive.seal()
        (unread,) = await hive.store.append(said("e"))
        await hive.seal()
        for number in range(3):
            await hive.store.append(said(f"later {number}"))
            await hive.seal()
        found = await plan(hive.store, EVER)
        assert found.held == "cursor"
        assert found.last_seq < unread.event.seq

    live(tmp_path, story)


def test_only_what_was_sealed_before_the_moment_is_archived(tmp_path: Path) -> None:
    async def story(hive: Hive) -> None:
        await hive.day("a")
        moment = hive.clock.now()
        second = await hive.day("b")
        await hive.day("c")
        assert await plan(hive.store, moment) == Plan(1, second.seq - 1, "age")
        assert await hive.archived(moment) == Plan(1, second.seq - 1, "age")
        assert (await hive.archived(moment)).events == 0

    live(tmp_path, story)


class Cut(JournalStore):
    """Is killed as it lets go of a segment's events: before or after the store has committed that."""

    def __init__(self, adapter: Adapter, *, after: bool) -> None:
        super().__init__(adapter)
        self._after = after

    @override
    async def let_go(self, archive: Archive) -> None:
        if self._after:
            await super().let_go(archive)
        raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True])
def test_an_archiving_that_was_killed_goes_on_and_neither_loses_nor_doubles(
    tmp_path: Path, place: Place, *, after: bool
) -> None:
    before: list[Event] = []

    async def lived(hive: Hive) -> None:
        for day in "abcde":
            await hive.day(day)
        before.extend(await hive.whole())

    async def killed(hive: Hive) -> None:
        cut = Cut(hive.store._adapter, after=after)  # noqa: SLF001 - the same database
        with pytest.raises(KeyboardInterrupt):
            await hive_of(cut, hive.clock, hive.folder).archived()
        assert await hive.whole() == before
        assert not (await hive.verified()).fault
        await hive.day("f")

    async def again(hive: Hive) -> None:
        done = await hive.archived()
        assert done.held == "seal"
        assert (await hive.whole())[: len(before)] == before
        found = await hive.verified()
        assert (found.fault, found.archived) == ("", done.last_seq)

    live(tmp_path, lived, killed, again, place=place)


def test_a_segment_that_is_missing_damaged_or_another_is_named(tmp_path: Path) -> None:
    async def lived(hive: Hive) -> None:
        for day in "abcd":
            await hive.day(day)
        await hive.archived()

    def told(path: Path, *, unreadable: bool) -> Story:
        async def story(hive: Hive) -> None:
            found = await hive.verified()
            assert str(path) in found.fault
            assert found.events == int(path.name[:10]) - 1
            if unreadable:
                with pytest.raises(Corrupt, match=path.name):
                    await hive.store.rebuild()
                with pytest.raises(Corrupt, match=path.name):
                    await hive.whole()

        return story

    async def whole(hive: Hive) -> None:
        assert not (await hive.verified()).fault

    live(tmp_path, lived)
    for path in sorted((tmp_path / "archive").glob("*.jsonl.gz"))[:2]:
        good = path.read_bytes()
        path.unlink()
        live(tmp_path, told(path, unreadable=True))
        for data in (good[:-9], bytes([*good[:60], good[60] ^ 1, *good[61:]]), good + b"\0"):
            path.write_bytes(data)
            live(tmp_path, told(path, unreadable=len(data) < len(good)))
        path.write_bytes(good)
        live(tmp_path, whole)


TAMPERING = {
    "an archive forgotten": "DELETE FROM archives WHERE first_seq = 1",
    "another file vouched for": "UPDATE archives SET digest = 'ab' WHERE first_seq = 1",
    "the last seal of the archive removed": "DELETE FROM seals WHERE last_seq = (SELECT max(last_seq) FROM archives)",
    "the last seal of the archive changed": (
        "UPDATE seals SET digest = 'ab' WHERE last_seq = (SELECT max(last_seq) FROM archives)"
    ),
    "an archived event put back otherwise": (
        "INSERT INTO events SELECT 1, 'X', tenant, source, type, principal, trust, addressed_to, trace_id, parent_id,"
        " occurred_at, recorded_at, '{}', NULL, NULL, NULL, NULL FROM events LIMIT 1"
    ),
    "an event behind the archive removed": (
        "DROP TRIGGER events_never_vanish; DELETE FROM events WHERE seq = (SELECT min(seq) FROM events)"
    ),
}


@pytest.mark.parametrize("statement", TAMPERING.values(), ids=TAMPERING.keys())
def test_tampering_at_the_seam_between_archive_and_store_is_found(tmp_path: Path, statement: str) -> None:
    async def lived(hive: Hive) -> None:
        for day in "abcd":
            await hive.day(day)
        await hive.archived()
        assert not (await hive.verified()).fault

    async def looked(hive: Hive) -> None:
        assert (await hive.verified()).fault

    live(tmp_path, lived)
    with closing(sqlite3.connect(tmp_path / "rucher.db")) as db:
        db.executescript(statement)
    live(tmp_path, looked)


def test_the_store_lets_go_of_nothing_but_the_next_sealed_events(tmp_path: Path, place: Place) -> None:
    async def story(hive: Hive) -> None:
        last = [(await hive.day(day)).seq - 1 for day in "abcd"]
        for first, until in ((2, last[1]), (1, last[1] + 1), (last[1] + 1, last[2])):
            with pytest.raises(BadInput, match="not the next"):
                await hive.store.let_go(Archive(first, until, "f", "d", 0))
        assert await hive.live() == list(range(1, hive.store.head + 1))

    live(tmp_path, story, place=place)


def test_an_event_that_is_not_archived_still_cannot_be_removed(tmp_path: Path) -> None:
    async def story(hive: Hive) -> None:
        for day in "abc":
            await hive.day(day)
        await hive.archived()

    live(tmp_path, story)
    with (
        closing(sqlite3.connect(tmp_path / "rucher.db")) as db,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        db.execute("DELETE FROM events")


def test_a_journal_that_is_not_as_it_was_sealed_is_left_as_it_is(tmp_path: Path) -> None:
    async def lived(hive: Hive) -> None:
        for day in "abc":
            await hive.day(day)

    async def refused(hive: Hive) -> None:
        before = await hive.live()
        with pytest.raises(Corrupt, match="was changed"):
            await hive.archived()
        assert await hive.live() == before

    live(tmp_path, lived)
    with closing(sqlite3.connect(tmp_path / "rucher.db")) as db:
        db.executescript("DROP TRIGGER events_never_change; UPDATE events SET principal = 'owner:eve' WHERE seq = 2")
    live(tmp_path, refused)


def test_another_process_archives_while_a_daemon_writes(tmp_path: Path, place: Place) -> None:
    async def story(hive: Hive) -> None:
        for day in "abcd":
            await hive.day(day)
        async with open_store(place, hive.clock, hive.archive) as beside:
            busy = asyncio.gather(*(hive.store.append(said(f"busy {number}")) for number in range(50)))
            done = await hive_of(beside, hive.clock, hive.folder).archived()
            await busy
        assert done.events > 30
        ((late,), (more,)) = await asyncio.gather(hive.store.append(said("a")), hive.store.append(said("more")))
        assert (late.first, late.event.seq, more.first) == (False, 1, True)
        await hive.seal()
        assert not (await hive.verified()).fault

    live(tmp_path, story, place=place)


def test_two_do_not_archive_at_once(tmp_path: Path) -> None:
    async def story(hive: Hive) -> None:
        for day in "abcd":
            await hive.day(day)
        both = await asyncio.gather(hive.archived(), hive.archived(), return_exceptions=True)
        assert sorted(type(one).__name__ for one in both) == ["Plan", "Retryable"]
        assert any("another process archives" in str(one) for one in both)
        assert not (await hive.verified()).fault

    live(tmp_path, story)


def test_a_disk_that_is_full_stops_the_archiving_and_loses_nothing(tmp_path: Path) -> None:
    async def story(hive: Hive) -> None:
        for day in "abc":
            await hive.day(day)
        before = await hive.live()
        hive.archive.write_text("in the way")
        with pytest.raises(Retryable, match="cannot be used"):
            await hive.archived()
        assert await hive.live() == before

    live(tmp_path, story)


def test_a_trace_is_whole_also_when_a_part_of_it_or_all_of_it_was_archived(tmp_path: Path, place: Place) -> None:
    async def story(hive: Hive) -> None:
        first = await hive.day("a")
        split = await hive.day("b")
        late = hive.told("delivery.deferred", split, {"hop": hive.hop(split)[0].id, "reason": "later"})
        stray = control_event(
            tenant="local", part="daemon", kind="daemon.started", key="s", trace_id="9" * 26, occurred_at=1
        )
        await hive.store.append(stray)
        await hive.day("c")
        await hive.store.append(late)
        await hive.day("d")
        before: dict[str, list[Event]] = {event.trace_id: [] for event in await hive.whole()}
        for event in await hive.whole():
            before[event.trace_id].append(event)
        await hive.archived()
        for trace_id, events in before.items():
            assert await whole_trace(hive.store, hive.archive, trace_id) == events, trace_id
        assert len(await hive.store.trace(split.trace_id)) == 1
        for told in (first.trace_id[:12], first.trace_id, first.id):
            assert await trace_starting(hive.store, hive.archive, told) == [first.trace_id]
        for told in (stray.id, stray.trace_id, stray.trace_id[:9]):
            assert await trace_starting(hive.store, hive.archive, told) == [stray.trace_id]
        assert await trace_starting(hive.store, hive.archive, "0" * 26) == []

    live(tmp_path, story, place=place)


def test_events_that_are_archived_while_they_are_read_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rucher.journal.history.BATCH", 5)

    async def story(hive: Hive) -> None:
        for day in "abcdef":
            await hive.day(day)
        before = await hive.whole()
        found: list[Event] = []
        async for batch in all_events(hive.store, hive.archive):
            found += batch
            if len(found) == 5:
                await hive.archived()
        assert found == before

    live(tmp_path, story)


def test_a_month_whose_last_events_were_archived_leaves_the_database(tmp_path: Path) -> None:
    place = shared().new_database()

    async def months() -> list[str]:
        db = await asyncpg.connect(place)
        found = [row[0] for row in await db.fetch(schema._PARTITIONS)]  # noqa: SLF001 - what it looks at itself
        await db.close()
        return found

    async def story(hive: Hive) -> None:
        await hive.day("a")
        begun = await months()
        hive.clock.advance(70 * DAY_S)
        await hive.day("b")
        await hive.day("c")
        assert begun[0] in await months()
        await hive.archived()
        assert not set(begun) & set(await months())
        await hive.day("d")
        assert not (await hive.verified()).fault

    live(tmp_path, story, place=place)
