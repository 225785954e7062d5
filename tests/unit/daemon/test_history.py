"""Laws of what a session remembers: the calls of an earlier request are shown again, however large they were."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rucher.daemon.history import exchange
from rucher.engine.context import EARLIER_CHARACTERS, EARLIER_RESULT, assemble, recent
from rucher.kernel.contents import LARGEST_INLINE
from rucher.kernel.steps import RunSteps
from rucher.protocol.conversation import Assistant, Effect, Message, ToolCall, ToolResult
from rucher.protocol.ports import StepKind
from tests.fakes.drafts import run_spec
from tests.fakes.kernel import Scene, tell

SPEC = run_spec()
LARGE = "ß" * LARGEST_INLINE


async def remembered(
    scene: Scene, effect: Effect, arguments: Mapping[str, Any], *, ok: bool = True, text: str = "well"
) -> tuple[Message, ...]:
    """What a model is shown of a run that made this call and got this result, between request and answer."""

    async def act(_key: str) -> Mapping[str, Any]:
        return {"ok": ok, "text": text}

    run = await scene.open(SPEC)
    await RunSteps(run).perform(StepKind.TOOL_CALL, effect, {"tool": "save", "arguments": arguments}, act)
    await run.finish("done", "")
    earlier = recent([exchange("q", "a", await scene.store.run_log(SPEC.run_id))])
    assert len(str(earlier)) < EARLIER_CHARACTERS
    _, *between, answer, _ = assemble("", earlier, "now").messages
    assert answer == Assistant("a")
    return tuple(between)


@pytest.mark.parametrize("effect", [Effect.READ, Effect.IDEMPOTENT_WRITE])
def test_a_small_call_is_shown_as_it_was(tmp_path: Path, effect: Effect) -> None:
    async def story(scene: Scene) -> None:
        asked, told = await remembered(scene, effect, {"path": "a.txt", "content": "x"}, ok=False)
        assert asked == Assistant("", (ToolCall("earlier-0-0", "save", {"path": "a.txt", "content": "x"}),))
        assert told == ToolResult("earlier-0-0", "save", ok=False, text="well")

    tell(tmp_path, story)


@pytest.mark.parametrize("ok", [True, False])
def test_of_a_large_result_as_much_is_shown_as_of_any_other(
    tmp_path: Path, ok: bool  # noqa: FBT001 - a table's column
) -> None:  # fmt: skip
    async def story(scene: Scene) -> None:
        asked, told = await remembered(scene, Effect.READ, {"path": "a.txt"}, ok=ok, text=LARGE)
        assert asked == Assistant("", (ToolCall("earlier-0-0", "save", {"path": "a.txt"}),))
        assert told == ToolResult("earlier-0-0", "save", ok=ok, text=LARGE[:EARLIER_RESULT] + " [...]")

    tell(tmp_path, story)


@pytest.mark.parametrize("effect", [Effect.READ, Effect.IDEMPOTENT_WRITE])
@pytest.mark.parametrize(
    "large",
    [{"content": LARGE}, {"content": LARGE, "other": [LARGE]}, {LARGE: 1}, {f"{n}": LARGE for n in range(2000)}],
    ids=["one", "two", "name", "many"],
)
def test_a_large_call_is_shown_with_its_small_arguments_whole_and_the_others_cut(
    tmp_path: Path, effect: Effect, large: Mapping[str, Any]
) -> None:
    async def story(scene: Scene) -> None:
        asked, told = await remembered(scene, effect, {**large, "path": "a.txt", "n": 3})
        assert isinstance(asked, Assistant)
        (call,) = asked.calls
        assert call.name == "save"
        assert (call.arguments["path"], call.arguments["n"]) == ("a.txt", 3)
        if "content" in large:
            assert call.arguments["content"].endswith("ß [...]")
        assert told == ToolResult("earlier-0-0", "save", ok=True, text="well")

    tell(tmp_path, story)
