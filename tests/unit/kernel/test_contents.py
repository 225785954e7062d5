"""Laws of large contents: what is too large for the journal lies in a file, and comes back whole or not at all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rucher.kernel.contents import ARTIFACT, LARGEST_INLINE
from rucher.kernel.steps import RunSteps
from rucher.kernel.waits import question
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import Corrupt
from rucher.protocol.ports import StepKind
from tests.fakes.drafts import run_spec
from tests.fakes.kernel import Counter, Scene, parks, tell

SPEC = run_spec()
LARGE = "ß" * LARGEST_INLINE


async def large(_key: str) -> Mapping[str, Any]:
    return {"ok": True, "text": LARGE, "usage": {"input_tokens": 3, "output_tokens": 4}}


async def bodies(scene: Scene, kind: str) -> list[Mapping[str, Any]]:
    return [event.body for event in await scene.store.run_log(SPEC.run_id) if event.type == kind]


@pytest.mark.parametrize("effect", Effect)
def test_a_large_request_and_a_large_result_lie_in_files_and_come_back_whole(tmp_path: Path, effect: Effect) -> None:
    async def story(scene: Scene) -> None:
        asked, counter = {"text": LARGE, "n": 1}, Counter()
        run = await scene.open(SPEC)
        first = await RunSteps(run).perform(StepKind.TOOL_CALL, effect, asked, large)
        await run.finish("done", "")
        again = RunSteps(await scene.open(SPEC))
        assert await again.perform(StepKind.TOOL_CALL, effect, asked, counter.act) == first == await large("")
        assert counter.keys == []
        assert max(len(str(event.body)) for event in await scene.store.run_log(SPEC.run_id)) < 2000
        (recorded,) = await bodies(scene, "step.recorded")
        assert LARGE.startswith(recorded["result"]["preview"])
        assert recorded["result"]["usage"] == {"input_tokens": 3, "output_tokens": 4}
        assert (await scene.row(SPEC.run_id))["input_tokens"] == 3
        named = {row["digest"] for row in await scene.store.rows("artifacts.all")}
        (intended,) = await bodies(scene, "step.recorded" if effect is Effect.READ else "step.intended")
        assert named == {recorded["result"][ARTIFACT], intended["request"][ARTIFACT]}
        assert all(scene.artifacts.get(digest) for digest in named)

    tell(tmp_path, story)


@pytest.mark.parametrize("size", [LARGEST_INLINE - 40, LARGEST_INLINE + 40])
def test_what_fits_stays_in_the_journal(tmp_path: Path, size: int) -> None:
    async def story(scene: Scene) -> None:
        async def act(_key: str) -> Mapping[str, Any]:
            return {"text": "x" * size}

        run = await scene.open(SPEC)
        await RunSteps(run).perform(StepKind.TOOL_CALL, Effect.READ, {}, act)
        await run.finish("done", "")
        assert len(await scene.store.rows("artifacts.all")) == (size > LARGEST_INLINE)

    tell(tmp_path, story)


def test_the_file_is_there_before_anything_names_it(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        run = await scene.open(SPEC)
        await RunSteps(run).perform(StepKind.TOOL_CALL, Effect.READ, {}, large)
        # The result is held, as it would be at a kill: the file is there, and nothing names it.
        assert [path for path in (tmp_path / "artifacts").rglob("*") if len(path.name) == 62]
        assert await scene.store.rows("artifacts.all") == []
        await run.finish("done", "")
        assert len(await scene.store.rows("artifacts.all")) == 1

    tell(tmp_path, story)


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_result_whose_file_is_gone_or_changed_is_never_returned(tmp_path: Path, damage: str) -> None:
    async def story(scene: Scene) -> None:
        run = await scene.open(SPEC)
        await RunSteps(run).perform(StepKind.TOOL_CALL, Effect.READ, {}, large)
        await run.finish("done", "")
        (path,) = [path for path in (tmp_path / "artifacts").rglob("*") if len(path.name) == 62]
        path.unlink()
        if damage == "changed":
            path.write_bytes(b"other")
        with pytest.raises(Corrupt):
            await RunSteps(await scene.open(SPEC)).perform(StepKind.TOOL_CALL, Effect.READ, {}, Counter().act)

    tell(tmp_path, story)


def test_notes_and_answers_may_be_large_too(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async def work() -> Any:
            steps = await scene.steps(SPEC)
            noted = await steps.note(StepKind.COMPACTION, {"text": LARGE}, {"text": LARGE})
            return noted, await steps.wait(StepKind.WAIT_HUMAN, {}, "?", [question("q")])

        await parks(work())
        await scene.signal("q", {"text": LARGE})
        for _ in range(2):
            assert await work() == ({"text": LARGE}, [{"text": LARGE}])

    tell(tmp_path, story)


@pytest.mark.parametrize("words", [[LARGE], ["short", LARGE, "last"], ["x" * 3000] * 4])
def test_what_the_owner_said_at_length_is_heard_again_in_a_replay(tmp_path: Path, words: list[str]) -> None:
    async def story(scene: Scene) -> None:
        counter = Counter()

        async def work() -> list[str]:
            steps = await scene.steps(SPEC)
            heard = [*await steps.told()]
            request = {"heard": heard}
            await steps.perform(StepKind.MODEL_CALL, Effect.MODEL_CALL, request, counter.act)
            await steps.note(StepKind.CHECKPOINT, {}, {})
            return heard

        await scene.kernel().create(SPEC)
        for number, word in enumerate(words):
            await scene.orders.steer(SPEC.run_id, f"{number}", word)
        assert [await work() for _ in range(2)] == [words] * 2
        assert len(counter.keys) == 1

    tell(tmp_path, story)
