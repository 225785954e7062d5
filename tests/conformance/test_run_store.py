"""What every store of runs does, SQLite or PostgreSQL: places, fences, budgets, claims and views, whole or not at all."""

import asyncio
import json
import random
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rucher.journal.artifacts import Artifacts
from rucher.journal.rows import RunHead, RunWrite
from rucher.journal.store import JournalStore, Place, open_store
from rucher.kernel.orders import Orders
from rucher.kernel.records import record
from rucher.kernel.spec import RunSpec
from rucher.kernel.steps import RunSteps
from rucher.kernel.waits import MOST_TOPIC, approval, event, timer
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import BadInput, Exhausted, Fenced
from rucher.protocol.events import control_event
from rucher.protocol.ports import StepKind
from tests.conformance.conftest import Opener, new_place
from tests.fakes.clock import ManualClock
from tests.fakes.drafts import NOW, run_spec, said
from tests.fakes.kernel import OWNER, Scene, parks, tell, tool, views_of
from tests.fakes.kernel import Counter as Acts

SPEC = run_spec()


def created(spec: RunSpec = SPEC) -> RunWrite:
    return RunWrite(spec.head, 0, 0, NOW, [record("run.created", spec.created())])


def write(seq: int, fence: int, count: int = 1, spec: RunSpec = SPEC, **beside: Any) -> RunWrite:
    """So many plain events of the run."""
    return RunWrite(spec.head, seq, fence, NOW, [("step.noted", "{}")] * count, **beside)


async def places(store: JournalStore, spec: RunSpec = SPEC) -> list[tuple[int, int]]:
    """The places of a run's log and the fences that they were written under."""
    return [(event.run.seq, event.run.fence) for event in await store.run_log(spec.run_id) if event.run]


def kinds(results: Iterable[Any]) -> list[type]:
    return [type(result) for result in results]


def test_a_run_is_made_once_and_what_was_beside_the_second_time_is_not_kept(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as store:
            await store.write(created())
            again = created()
            again.beside = [said("beside")]
            with pytest.raises(Fenced):
                await store.write(again)
            assert await places(store) == [(0, 0)]
            assert await store.event(said("beside").id) is None

    asyncio.run(check())


def test_of_many_that_make_one_run_at_once_one_does(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as store:
            made = await asyncio.gather(*(store.write(created()) for _ in range(5)), return_exceptions=True)
            assert Counter(kinds(made)) == {type(None): 1, Fenced: 4}
            assert await places(store) == [(0, 0)]

    asyncio.run(check())


def test_only_the_next_place_by_the_hand_that_wrote_the_last_or_that_takes_over_is_written(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as store:
            await store.write(created())
            await store.write(write(1, 1, 3))
            for seq, fence in [(0, 0), (3, 1), (5, 1), (4, 0), (4, 2), (4, 3), (3, 3), (9, 9)]:
                with pytest.raises(Fenced):
                    await store.write(write(seq, fence))
            await store.write(write(4, 1))
            await store.write(write(5, 5))
            with pytest.raises(Fenced):
                await store.write(write(6, 1))
            await store.write(write(6, 5))
            assert await places(store) == [(0, 0), (1, 1), (2, 1), (3, 1), (4, 1), (5, 5), (6, 5)]

    asyncio.run(check())


def test_a_zombie_finds_every_write_refused_also_those_that_were_queued(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as store:
            await store.write(created())
            await store.write(write(1, 1))
            taken = asyncio.ensure_future(store.write(write(2, 2)))
            late = [asyncio.ensure_future(store.write(write(seq, 1))) for seq in (2, 3, 4)]
            results = await asyncio.gather(taken, *late, return_exceptions=True)
            assert kinds(results) == [type(None), Fenced, Fenced, Fenced]
            assert await places(store) == [(0, 0), (1, 1), (2, 2)]

    asyncio.run(check())


def test_what_is_refused_fails_its_own_writer_only_in_a_crowd(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as store:
            specs = [run_spec(f"{number}") for number in range(20)]
            await asyncio.gather(*(store.write(created(spec)) for spec in specs))
            units = [store.write(write(1, 1, 2, spec)) for spec in specs]
            units += [store.write(write(7, 7, 1, spec)) for spec in specs[:5]]
            units += [store.write(created(specs[6])), store.write(write(1, 1, 1, specs[7]))]
            results = await asyncio.gather(*units, store.append(said("a")), return_exceptions=True)
            assert kinds(results) == [type(None)] * 20 + [Fenced] * 7 + [tuple]
            assert [await places(store, spec) for spec in specs] == [[(0, 0), (1, 1), (2, 1)]] * 20
            assert [event.seq for event in await store.read(0, 999)] == list(range(1, 62))
            # Those that were in one batch with a fault go on as before.
            await asyncio.gather(*(store.write(write(3, 1, 1, spec)) for spec in specs))

    asyncio.run(check())


@pytest.mark.parametrize("fault", [False, True])
def test_of_what_is_committed_together_commands_find_what_the_rows_made(opened: Opener, *, fault: bool) -> None:
    """Also when one unit of them fails, for which the others are taken again."""

    async def check() -> None:
        async with opened() as store:
            await store.command("worker.join", {"worker": "w", "host": "h", "role": "all", "at": 1})
            claim = {"runs": json.dumps([SPEC.run_id]), "worker": "w", "at": 1}
            late = [store.write(write(9, 9))] if fault else []
            told: list[Any] = await asyncio.gather(
                store.command("claim.take", claim), *late, store.write(created()), return_exceptions=True
            )
            assert [row["run_id"] for row in told[0]] == [SPEC.run_id]
            pause = control_event(
                tenant="local", part="test", kind="run.paused", key="1", trace_id=SPEC.trace_id, occurred_at=NOW,
                body={"run": SPEC.run_id},
            )  # fmt: skip
            late = [store.write(write(9, 9))] if fault else []
            told = await asyncio.gather(
                store.command("claim.release", claim), store.command("claim.take", claim), *late, store.append(pause),
                return_exceptions=True,
            )  # fmt: skip
            assert [row["run_id"] for row in told[0]] == [SPEC.run_id]
            assert told[1] == []

    asyncio.run(check())


@pytest.mark.parametrize("fault", ["fenced", "refused"])
def test_what_is_beside_a_write_is_committed_with_it_or_not_at_all(opened: Opener, fault: str) -> None:
    async def check() -> None:
        async with opened() as store:
            child = run_spec("child", parent=SPEC.run_id)
            await store.write(created())
            beside = [said("answer"), created(child)]
            if fault == "fenced":
                failing = write(5, 5, beside=beside)
            else:
                reserved = {"run": SPEC.run_id, "step": "1", "accounts": ["nobody's"], "amounts": {"tokens": 1}}
                failing = write(1, 1, beside=beside)
                failing.records = [("step.noted", "{}"), ("budget.reserved", json.dumps(reserved))]
            with pytest.raises((Fenced, Exhausted)):
                await store.write(failing)
            assert await places(store) == [(0, 0)]
            assert await store.rows("run.get", child.run_id) == []
            await store.write(write(1, 1, beside=beside))
            assert await store.event(said("answer").id) is not None
            assert [row["run_id"] for row in await store.rows("run.children", SPEC.run_id)] == [child.run_id]
            (told,) = await store.append(said("answer"))
            assert not told.first

    asyncio.run(check())


def test_a_batch_may_hold_a_run_and_all_that_it_does(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as store:
            finished = {"run": SPEC.run_id, "state": "done", "reason": ""}
            ended = write(4, 1)
            ended.records = [record("run.finished", finished)]
            await asyncio.gather(
                *(store.write(each) for each in (created(), write(1, 1), write(2, 1, 2), ended)),
                store.append(said("a")),
            )
            assert (await store.rows("run.get", SPEC.run_id))[0]["state"] == "done"
            assert len(await places(store)) == 5

    asyncio.run(check())


def test_a_budget_that_does_not_cover_it_refuses_its_own_unit_only(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as store:
            specs = [run_spec(f"{number}") for number in range(6)]
            limited = [
                replace(spec, accounts=(spec.run_id, "mission"), ceilings={"mission": {"tokens": 40}}) for spec in specs
            ]
            await asyncio.gather(*(store.write(created(spec)) for spec in limited))

            def reserve(spec: RunSpec) -> RunWrite:
                body = {"run": spec.run_id, "step": "1", "accounts": list(spec.accounts), "amounts": {"tokens": 10}}
                return RunWrite(spec.head, 1, 1, NOW, [("step.noted", "{}"), record("budget.reserved", body)])

            results = await asyncio.gather(*(store.write(reserve(spec)) for spec in limited), return_exceptions=True)
            assert Counter(kinds(results)) == {type(None): 4, Exhausted: 2}
            (tokens,) = [row for row in await store.rows("run.budget", "mission") if row["measure"] == "tokens"]
            assert (tokens["reserved"], tokens["spent"]) == (40, 0)
            logs = [await places(store, spec) for spec in limited]
            assert sorted(map(len, logs)) == [1, 1, 3, 3, 3, 3]

    asyncio.run(check())


async def taken(store: JournalStore, worker: str, *specs: RunSpec) -> list[str]:
    claim = {"runs": json.dumps([spec.run_id for spec in specs]), "worker": worker, "at": NOW}
    return [row["run_id"] for row in await store.command("claim.take", claim)]


async def join(store: JournalStore, *workers: str) -> None:
    for worker in workers:
        await store.command("worker.join", {"worker": worker, "host": "h", "role": "all", "at": NOW})


def test_each_run_is_claimed_by_one_worker_however_many_try_at_once(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as store:
            specs = [run_spec(f"{number}") for number in range(8)]
            await asyncio.gather(*(store.write(created(spec)) for spec in specs))
            await join(store, "a", "b", "c")
            got = await asyncio.gather(*(taken(store, worker, *specs) for worker in ("a", "b", "c", "nobody")))
            assert sorted(run for each in got for run in each) == sorted(spec.run_id for spec in specs)
            assert got[3] == []
            assert await store.rows("runs.claimable", 9) == []
            counts = await store.rows("claims.counts")
            assert [dict(row) for row in counts] == [{"tenant": "local", "agent": "scribe", "mission": "", "count": 8}]

    asyncio.run(check())


def test_what_cannot_go_on_cannot_be_claimed(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as store:
            await join(store, "a")
            ready, queued, paused = run_spec("ready", lane="L"), run_spec("queued", lane="L"), run_spec("paused")
            for spec in (ready, queued, paused):
                await store.write(created(spec))
            await Orders(store, ManualClock(), OWNER).pause(paused.run_id, "1")
            assert await taken(store, "a", ready, queued, paused, run_spec("unknown")) == [ready.run_id]
            released = {"runs": json.dumps([ready.run_id]), "worker": "another"}
            assert list(await store.command("claim.release", released)) == []
            assert len(await store.command("claim.release", released | {"worker": "a"})) == 1

    asyncio.run(check())


def test_candidates_are_told_by_priority_and_age_and_only_so_many_of_each_agent(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as store:
            specs = [run_spec(f"x{n}", agent="x", priority=n % 2) for n in range(5)]
            specs += [run_spec(f"y{n}", agent="y", tenant=f"t{n}") for n in range(3)]
            for spec in specs:
                await store.write(created(spec))
            names = {spec.run_id: f"{spec.agent}{number}" for number, spec in enumerate(specs)}
            told = [names[row["run_id"]] for row in await store.rows("runs.claimable", 2)]
            assert told == ["x1", "x3", "y5", "y6", "y7"]

    asyncio.run(check())


def test_the_bell_rings_for_views_and_commands_and_not_for_plain_steps(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as store:
            await store.write(created())
            seen = await asyncio.wait_for(store.refolded(0), 5)
            waiting = asyncio.ensure_future(store.refolded(seen))
            await store.write(write(1, 1))
            await store.append(said("a"))
            await asyncio.sleep(0.01)
            assert not waiting.done()
            await join(store, "a")
            seen = await asyncio.wait_for(waiting, 5)
            await store.write(created(run_spec("another")))
            assert await asyncio.wait_for(store.refolded(seen), 5) > seen

    asyncio.run(check())


def test_a_runs_log_is_its_own_and_its_trace_holds_it(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as store:
            other = run_spec("other")
            await store.append(said("a"))
            await store.write(created())
            await store.write(created(other))
            await store.write(write(1, 1, 2))
            await store.write(write(1, 1, 1, other))
            log = await store.run_log(SPEC.run_id)
            assert [event.seq for event in log] == [2, 4, 5]
            assert list(await store.trace(SPEC.trace_id)) == list(log)
            assert await store.event_anywhere(log[2].id) == log[2]
            assert await store.run_log("unknown") == []
            both = await store.run_logs([other.run_id, "unknown", SPEC.run_id])
            assert both == {other.run_id: await store.run_log(other.run_id), "unknown": [], SPEC.run_id: log}
            assert [event.seq for event in both[other.run_id]] == [3, 6]
            assert await store.run_logs([]) == {}

    asyncio.run(check())


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_an_owner_in_another_process_fences_whoever_held_the_run_before(place: Place) -> None:
    async def check() -> None:
        async with open_store(place, ManualClock()) as one, open_store(place, ManualClock()) as two:
            await one.write(created())
            await one.write(write(1, 1))
            await two.write(write(2, 2))
            for late in (write(2, 1), write(3, 1), write(2, 2)):
                with pytest.raises(Fenced):
                    await one.write(late)
            await two.write(write(3, 2))
            both = await asyncio.gather(one.write(write(4, 4)), two.write(write(4, 4)), return_exceptions=True)
            assert Counter(kinds(both)) == {type(None): 1, Fenced: 1}
            assert await places(one) == [(0, 0), (1, 1), (2, 2), (3, 2), (4, 4)]

    asyncio.run(check())


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_what_another_process_commits_rings_here(place: Place) -> None:
    async def check() -> None:
        async with open_store(place, ManualClock()) as one, open_store(place, ManualClock()) as two:
            await two.write(created(run_spec("before")))
            seen = await two.refolded(0)
            waiting = asyncio.gather(two.refolded(seen), two.grown(two.head))
            await one.write(created())
            await asyncio.wait_for(waiting, 10)
            assert (await two.read(1, 9))[-1].type == "run.created"

    asyncio.run(check())


def test_a_run_that_ends_leaves_no_descendant_at_work(opened: Opener, tmp_path: Path) -> None:
    async def check() -> None:
        async with opened() as store:
            scene = Scene(store, ManualClock(NOW), Artifacts(tmp_path / "artifacts"))
            root = run_spec("root")

            def child(of: RunSpec) -> Callable[[str], RunSpec]:
                return lambda run_id: run_spec("c", run_id=run_id, parent=of.run_id, lane=run_id)

            steps = await scene.steps(root)
            ended = await steps.spawn({"n": 1}, child(root))
            await (await scene.kernel().open(await scene.spec(ended))).finish("done", "")
            living = await scene.spec(await steps.spawn({"n": 2}, child(root)))
            leaf = await (await scene.steps(living)).spawn({}, child(living))
            other = run_spec("other")
            await store.write(created(other))
            again = await scene.open(root)
            await again.finish("failed", "no")
            ids = (root.run_id, ended, living.run_id, leaf, other.run_id)
            rows = [(await store.rows("run.get", run_id))[0] for run_id in ids]
            assert [(row["state"], row["wish"]) for row in rows] == [
                ("failed", ""), ("done", ""), ("running", "cancel"), ("ready", "cancel"), ("ready", ""),
            ]  # fmt: skip

    asyncio.run(check())


def test_every_topic_that_the_kernel_takes_can_be_kept_as_a_key(place: Place, tmp_path: Path) -> None:
    topic = "".join(random.Random(1).choices(string.ascii_letters, k=MOST_TOPIC))

    async def story(scene: Scene) -> None:
        steps = await scene.steps(SPEC)
        await parks(steps.wait(StepKind.JOIN, {}, "x", [event(topic)]))
        await scene.signal(topic, {"n": 1})
        assert await scene.state(SPEC) == ["ready"]

    tell(tmp_path, story, place)
    with pytest.raises(BadInput, match="a topic of 1,001 bytes"):
        event(topic + "x")


class Steady:
    """Entropy without chance, so that two tales of one story are the same."""

    def bytes(self, count: int) -> bytes:
        return bytes(count)


async def a_life(scene: Scene) -> None:
    """Runs that do everything that runs do."""
    root = replace(
        run_spec("root"), accounts=("own", "mission"), ceilings={"own": {"tokens": 500}, "mission": {"tool_calls": 9}}
    )
    run = await scene.open(root)
    steps = RunSteps(run)
    acts = Acts(usage={"input_tokens": 5, "output_tokens": 6})
    await steps.perform(StepKind.MODEL_CALL, Effect.MODEL_CALL, {"n": 1}, acts.act, most={"tokens": 50})
    await tool(steps, Acts().act)
    await steps.note(StepKind.CHECKPOINT, {"text": "ü\u2028" * 9000}, {})
    children = [
        await steps.spawn({"n": n}, lambda run_id: run_spec("c", run_id=run_id, parent=root.run_id, lane=run_id))
        for n in range(2)
    ]
    await scene.orders.steer(root.run_id, "1", "so \u00e4ndere es")
    await parks(steps.join(children))
    kernel = scene.kernel()
    await (await kernel.open(await scene.spec(children[0]))).finish("done", "", result={"text": "x"})
    await scene.orders.cancel(children[1], "2")
    await (await kernel.open(await scene.spec(children[1]), to_end=True)).finish("cancelled", "no")
    waiting, lane = run_spec("waiting", lane="L"), run_spec("second", lane="L", priority=2)
    await scene.kernel().create(waiting)
    await scene.kernel().create(lane)
    items = [approval("a", NOW + 5_000_000), timer(NOW + 3_000_000), event("e")]
    await parks((await scene.steps(waiting)).wait(StepKind.WAIT_HUMAN, {}, "may I?", items))
    await scene.signal("e", {"n": 1})
    scene.clock.advance(4)
    await scene.timers.fire_due()
    await scene.orders.pause(lane.run_id, "3")
    await scene.orders.answer(waiting.run_id, "1", {"approved": True})
    await scene.orders.fork(root.run_id, "2", "4", "otherwise")
    with pytest.raises(BadInput):
        await scene.orders.pause(children[0], "5")
    await (await scene.open(root)).finish("done", "")


def test_views_folded_again_are_the_views_as_they_were(place: Place, tmp_path: Path) -> None:
    async def again(scene: Scene) -> None:
        assert await scene.store.rebuild() == scene.store.head

    tell(tmp_path, a_life, place)
    before = views_of(place)
    assert all(before[view] for view in ("runs", "waits", "signals", "budgets", "steers", "artifacts"))
    tell(tmp_path, again, place)
    assert views_of(place) == before


def test_the_same_life_leaves_the_same_views_in_both_stores(tmp_path: Path) -> None:
    def lived(kind: str) -> Mapping[str, Any]:
        folder = tmp_path / kind
        folder.mkdir()
        place = new_place(kind, folder)

        async def live() -> None:
            async with AsyncExitStack() as stack:
                clock = ManualClock()
                store = await stack.enter_async_context(open_store(place, clock))
                await a_life(Scene(store, clock, Artifacts(folder / "artifacts"), Steady()))

        asyncio.run(live())
        return views_of(place)

    assert lived("sqlite") == lived("postgres")


def test_a_head_tells_whose_events_they_are(opened: Opener) -> None:
    async def check() -> None:
        async with opened() as store:
            head = RunHead(SPEC.run_id, "local", SPEC.trace_id, "the hop")
            made = created()
            made.head = head
            await store.write(made)
            (first,) = await store.run_log(SPEC.run_id)
            assert (first.parent_id, first.principal, first.source) == ("the hop", "system:kernel", "rucher")

    asyncio.run(check())
