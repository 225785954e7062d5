"""Laws of runs: recorded results come back, unfinished steps follow their effect, and only one owner writes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from rucher.journal.store import JournalStore, open_store
from rucher.kernel.runs import Kernel, Run, RunSpec
from rucher.protocol.clock import SystemEntropy
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import BadInput, Diverged, Fenced, Retryable, Suspended, Uncertain
from rucher.protocol.events import Draft
from rucher.protocol.ids import derived
from rucher.protocol.ports import Appended, Proof
from tests.fakes.clock import ManualClock

SPEC = RunSpec(hop="H", session="S", agent="scribe", model="m", tenant="local", trace_id=derived("trace", "t"))
Story = Callable[[JournalStore], Awaitable[None]]


class Counter:
    """An effect outside the system: counts how often it was acted, and returns the count."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def act(self, key: str) -> Mapping[str, Any]:
        self.keys.append(key)
        return {"count": len(self.keys)}


async def uncertain(_key: str) -> Mapping[str, Any]:
    raise Uncertain("it may have run")


def kernel(store: JournalStore) -> Kernel:
    return Kernel(store, ManualClock(), SystemEntropy())


def tell(tmp_path: Path, story: Story) -> None:
    async def run() -> None:
        async with open_store(tmp_path / "rucher.db", ManualClock()) as store:
            await story(store)

    asyncio.run(run())


async def step(
    run: Run, act: Callable[[str], Awaitable[Mapping[str, Any]]], effect: Effect = Effect.NON_IDEMPOTENT
) -> Any:
    return await run.perform("tool_call", effect, {"tool": "x"}, act)


def test_a_recorded_result_is_returned_and_never_acted_again(tmp_path: Path) -> None:
    async def story(store: JournalStore) -> None:
        counter = Counter()
        first = await kernel(store).open(SPEC)
        await step(first, counter.act)
        await step(first, counter.act)
        again = await kernel(store).open(SPEC)
        assert await step(again, counter.act) == {"count": 1}
        assert len(counter.keys) == 2

    tell(tmp_path, story)


@pytest.mark.parametrize("effect", Effect)
def test_an_unfinished_step_is_tried_again_under_the_same_key(tmp_path: Path, effect: Effect) -> None:
    async def story(store: JournalStore) -> None:
        counter = Counter()

        async def dies(key: str) -> Mapping[str, Any]:
            await counter.act(key)
            raise Retryable("the process died here")

        with pytest.raises(Retryable):
            await step(await kernel(store).open(SPEC), dies, effect)
        await step(await kernel(store).open(SPEC), counter.act, effect)
        assert len(set(counter.keys)) == 1

    tell(tmp_path, story)


def test_an_uncertain_step_parks_the_run_until_the_owner_speaks(tmp_path: Path) -> None:
    async def story(store: JournalStore) -> None:
        with pytest.raises(Suspended) as parked:
            await step(await kernel(store).open(SPEC), uncertain)
        assert parked.value.step == "1"
        waiting = await kernel(store).open(SPEC)
        assert (waiting.waiting_for, waiting.waiting_reason) == ("1", "it may have run")
        await kernel(store).resolve(SPEC, "1", {"ok": True})
        resumed = await kernel(store).open(SPEC)
        assert resumed.waiting_for == ""
        assert await step(resumed, uncertain) == {"ok": True}

    tell(tmp_path, story)


def test_a_step_that_did_not_run_is_done_again_under_a_new_key(tmp_path: Path) -> None:
    async def story(store: JournalStore) -> None:
        counter = Counter()

        async def interrupted(key: str) -> Mapping[str, Any]:
            await counter.act(key)
            raise Uncertain("no idea")

        with pytest.raises(Suspended):
            await step(await kernel(store).open(SPEC), interrupted)
        await kernel(store).resolve(SPEC, "1", None)
        await step(await kernel(store).open(SPEC), counter.act)
        assert len(set(counter.keys)) == 2

    tell(tmp_path, story)


def test_only_the_step_that_waits_can_be_resolved_and_only_once(tmp_path: Path) -> None:
    async def story(store: JournalStore) -> None:
        with pytest.raises(Suspended):
            await step(await kernel(store).open(SPEC), uncertain)
        with pytest.raises(BadInput, match="waits for step 1"):
            await kernel(store).resolve(SPEC, "2", {})
        await kernel(store).resolve(SPEC, "1", {})
        with pytest.raises(BadInput, match="waits for nothing"):
            await kernel(store).resolve(SPEC, "1", {})

    tell(tmp_path, story)


def test_a_replay_that_asks_for_something_else_is_divergence(tmp_path: Path) -> None:
    async def story(store: JournalStore) -> None:
        counter = Counter()
        run = await kernel(store).open(SPEC)
        await step(run, counter.act)
        await run.perform("tool_call", Effect.READ, {"tool": "y"}, counter.act)
        await run.finish("done", "")
        other = await kernel(store).open(SPEC)
        with pytest.raises(Diverged):
            await other.perform("tool_call", Effect.READ, {"tool": "other"}, counter.act)

    tell(tmp_path, story)


def test_the_former_owner_of_a_run_can_write_nothing_more(tmp_path: Path) -> None:
    async def story(store: JournalStore) -> None:
        counter = Counter()
        zombie = await kernel(store).open(SPEC)
        owner = await kernel(store).open(SPEC)
        with pytest.raises(Fenced):
            await step(zombie, counter.act)
        with pytest.raises(Fenced):
            await zombie.finish("done", "")
        assert counter.keys == []
        await step(owner, counter.act)
        await owner.finish("done", "")
        assert (await store.rows("run.get", SPEC.run_id))[0]["state"] == "done"

    tell(tmp_path, story)


def test_a_zombie_whose_write_failed_once_stays_silent(tmp_path: Path) -> None:
    async def story(store: JournalStore) -> None:
        zombie = await kernel(store).open(SPEC)
        await kernel(store).open(SPEC)
        for _ in range(3):
            with pytest.raises(Fenced):
                await zombie.finish("done", "")

    tell(tmp_path, story)


def test_two_that_open_a_run_at_once_never_both_own_it(tmp_path: Path) -> None:
    async def story(store: JournalStore) -> None:
        opened = await asyncio.gather(*(kernel(store).open(SPEC) for _ in range(4)), return_exceptions=True)
        owners = [one for one in opened if isinstance(one, Run)]
        written = await asyncio.gather(*(owner.finish("done", "") for owner in owners), return_exceptions=True)
        assert sum(result is None for result in written) == 1

    tell(tmp_path, story)


def test_a_result_and_the_next_intention_share_one_commit(tmp_path: Path) -> None:
    async def story(store: JournalStore) -> None:
        counter = Counter()
        commits: list[int] = []

        class Counted(JournalStore):
            @override
            async def append(self, *drafts: Draft) -> tuple[Appended, ...]:
                commits.append(len(drafts))
                return await super().append(*drafts)

        store.__class__ = Counted
        run = await kernel(store).open(SPEC)
        for _ in range(3):
            await step(run, counter.act)
        await run.finish("done", "")
        assert commits == [2, 1, 2, 2, 2]

    tell(tmp_path, story)


def test_reads_side_by_side_keep_their_keys_at_replay(tmp_path: Path) -> None:
    async def story(store: JournalStore) -> None:
        async def read(run: Run, name: str, delay: float) -> Any:
            async def act(_key: str) -> Mapping[str, Any]:
                await asyncio.sleep(delay)
                return {"read": name}

            return await run.perform("tool_call", Effect.READ, {"name": name}, act)

        first = await kernel(store).open(SPEC)
        await asyncio.gather(read(first, "slow", 0.02), read(first, "fast", 0))
        await first.finish("done", "")
        again = await kernel(store).open(SPEC)
        results = await asyncio.gather(read(again, "slow", 9), read(again, "fast", 9))
        assert [each["read"] for each in results] == ["slow", "fast"]

    tell(tmp_path, story)


def test_a_finished_run_is_not_taken_again(tmp_path: Path) -> None:
    async def story(store: JournalStore) -> None:
        run = await kernel(store).open(SPEC)
        await run.finish("failed", "because")
        head = store.head
        assert (await kernel(store).open(SPEC)).finished == "failed"
        assert store.head == head

    tell(tmp_path, story)


@pytest.mark.parametrize("verdict", [{"ok": True}, None])
def test_an_uncertain_read_can_be_resolved_like_any_other_step(
    tmp_path: Path, verdict: Mapping[str, Any] | None
) -> None:
    async def story(store: JournalStore) -> None:
        counter = Counter()
        with pytest.raises(Suspended):
            await step(await kernel(store).open(SPEC), uncertain, Effect.READ)
        await kernel(store).resolve(SPEC, "1", verdict)
        assert await step(await kernel(store).open(SPEC), counter.act, Effect.READ) == (verdict or {"count": 1})

    tell(tmp_path, story)


def test_a_result_that_cannot_be_stored_leaves_a_run_that_can_be_finished(tmp_path: Path) -> None:
    async def story(store: JournalStore) -> None:
        async def huge(_key: str) -> Mapping[str, Any]:
            return {"text": "x" * (2 << 20)}

        run = await kernel(store).open(SPEC)
        await step(run, huge)
        with pytest.raises(BadInput):
            await run.finish("done", "")
        await run.finish("failed", "too large")
        assert (await store.rows("run.get", SPEC.run_id))[0]["state"] == "failed"

    tell(tmp_path, story)


@pytest.mark.parametrize(("proof", "parked"), [(Proof.UNKNOWN, True), (Proof.NOT_DONE, False), (Proof.DONE, False)])
def test_an_interrupted_step_that_must_not_run_twice_is_probed_before_it_is_acted(
    tmp_path: Path,
    proof: Proof,
    parked: bool,  # noqa: FBT001 - a table's column
) -> None:
    async def story(store: JournalStore) -> None:
        counter = Counter()

        async def dies(_key: str) -> Mapping[str, Any]:
            raise Retryable("the process died here")

        async def probe(_key: str) -> Proof:
            return proof

        async def again(run: Run) -> Any:
            return await run.perform("tool_call", Effect.NON_IDEMPOTENT, {"tool": "x"}, counter.act, probe)

        with pytest.raises(Retryable):
            await step(await kernel(store).open(SPEC), dies)
        if parked:
            with pytest.raises(Suspended):
                await again(await kernel(store).open(SPEC))
            await kernel(store).resolve(SPEC, "1", None)
        await again(await kernel(store).open(SPEC))
        assert len(counter.keys) == 1

    tell(tmp_path, story)
