"""The port with real weights in llama.cpp's server, which nobody here wrote: the embedded model, and `chat` against it.

Needs the small weights (491 MB), and for one story the standard ones (1.1 GB): fetched once into RUCHER_WEIGHTS, or else into
the user's cache.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from rucher.engine import weights
from rucher.engine.models.chat import ChatModel, ToolMode
from rucher.engine.models.embedded import EmbeddedModel
from rucher.engine.tools.workspace import WORKSPACE_TOOLS
from rucher.protocol.conversation import (
    Assistant,
    CallRequested,
    Conversation,
    Finished,
    ModelEvent,
    ModelOptions,
    Stop,
    TextDelta,
    ToolResult,
    ToolSpec,
    Usage,
    User,
)
from rucher.protocol.errors import Permanent, Retryable
from rucher.protocol.ports import Model

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

PERSONA = "You are Scribe, a careful assistant with a workspace folder of files."
HELLO = Conversation(PERSONA, (User("Hello, who are you?"),))
WRITE = Conversation(PERSONA, (User("Write the word heather to the file plant.txt."),))


def _weights(pinned: weights.Weights) -> Path:
    folder = os.environ.get("RUCHER_WEIGHTS")  # noqa: TID251 - a test's own input, not a setting
    return weights.ensure(pinned, Path(folder or "~/.cache/rucher/weights").expanduser(), lambda *_: None)


@pytest.fixture(scope="module")
def small() -> Path:
    return _weights(weights.SMALL)


async def heard(
    asked: Model, conversation: Conversation, tools: Sequence[ToolSpec] = WORKSPACE_TOOLS, max_tokens: int = 200
) -> list[ModelEvent]:
    options = ModelOptions(max_tokens=max_tokens, timeout_s=300)
    return [event async for event in asked.stream(conversation, tools, options)]


def told(events: Sequence[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def running(path: Path, log: Path, check: Callable[[EmbeddedModel], Awaitable[None]]) -> None:
    async def story() -> None:
        asked = EmbeddedModel(path, log)
        try:
            await check(asked)
        finally:
            await asked.close()

    asyncio.run(story())


@asynccontextmanager
async def chat(asked: EmbeddedModel, mode: ToolMode, key: str | None = None) -> AsyncIterator[ChatModel]:
    """The adapter for any endpoint, pointed at the embedded model's server."""
    endpoint = await asked.server.endpoint()
    url = str(vars(endpoint)["_url"]).removesuffix("/chat/completions")
    secret = SecretStr(key) if key else vars(endpoint)["_key"]
    found = ChatModel("m", url, secret, mode)
    try:
        yield found
    finally:
        await found.close()


def test_every_reply_is_a_valid_call_or_an_answer(small: Path, tmp_path: Path) -> None:
    async def check(asked: EmbeddedModel) -> None:
        for conversation in (HELLO, WRITE):
            first = await heard(asked, conversation)
            assert isinstance(first[-1], Finished)
            assert first[-1].usage.input_tokens > 50
            assert first[-1].usage.output_tokens > 1
            calls = [event.call for event in first if isinstance(event, CallRequested)]
            assert bool(calls) != bool(told(first))
            assert {call.name for call in calls} <= {spec.name for spec in WORKSPACE_TOOLS}

    running(small, tmp_path / "log", check)


def test_chat_speaks_to_a_server_that_nobody_here_wrote(small: Path, tmp_path: Path) -> None:
    async def check(asked: EmbeddedModel) -> None:
        async with chat(asked, ToolMode.CONSTRAINED) as constrained:
            assert (await heard(constrained, WRITE))[-1] != Finished(Stop.END, Usage())
        async with chat(asked, ToolMode.NATIVE) as native:
            events = await heard(native, HELLO, tools=())
            assert told(events)
            assert isinstance(events[-1], Finished)
            assert events[-1].usage.output_tokens > 1
            cut = await heard(native, HELLO, tools=(), max_tokens=2)
            assert isinstance(cut[-1], Finished)
            assert cut[-1].stop is Stop.MAX_TOKENS
            with pytest.raises(Permanent, match="longer than the model can read"):
                await heard(native, Conversation("", (User("bee " * 20_000),)), tools=())
        async with chat(asked, ToolMode.NATIVE, key="wrong") as stranger:
            with pytest.raises(Permanent, match="key"):
                await heard(stranger, HELLO)

    running(small, tmp_path / "log", check)


def test_a_conversation_longer_than_the_window_is_still_answered(small: Path, tmp_path: Path) -> None:
    long = Conversation(
        PERSONA, tuple(m for n in range(400) for m in (User(f"Say {n} " + "bee " * 40), Assistant(f"{n}")))
    )

    async def check(asked: EmbeddedModel) -> None:
        events = await heard(asked, long.plus(User("Hello, who are you?")), max_tokens=60)
        assert isinstance(events[-1], Finished)
        assert events[-1].usage.input_tokens < 8192

    running(small, tmp_path / "log", check)


def test_a_crash_costs_one_answer_and_the_next_call_starts_anew(small: Path, tmp_path: Path) -> None:
    async def check(asked: EmbeddedModel) -> None:
        await asked.warm()
        first = asked.server.pid
        assert first is not None
        stream = asked.stream(Conversation(PERSONA, (User("Tell a long story."),)), (), ModelOptions(max_tokens=400))
        await anext(stream)
        os.kill(first, signal.SIGSEGV)
        with pytest.raises(Retryable):
            async for _ in stream:
                pass
        async with asyncio.timeout(10):
            while asked.server.alive:  # noqa: ASYNC110 - what is waited for is another process's end
                await asyncio.sleep(0.01)
        assert told(await heard(asked, HELLO, ()))
        assert asked.server.pid not in {None, first}

    running(small, tmp_path / "log", check)


def test_an_answer_that_nobody_waits_for_does_not_hold_up_the_next(small: Path, tmp_path: Path) -> None:
    async def check(asked: EmbeddedModel) -> None:
        story = Conversation(PERSONA, (User("Tell a story of a thousand words."),))
        await heard(asked, HELLO, (), 20)
        stream = asked.stream(story, (), ModelOptions(max_tokens=4000))
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]  # a generator
        started = time.monotonic()
        await heard(asked, HELLO, (), 20)
        assert time.monotonic() - started < 30

    running(small, tmp_path / "log", check)


DAEMON = """
import asyncio, sys
from pathlib import Path
from rucher.engine.models.embedded import EmbeddedModel
async def main():
    asked = EmbeddedModel(Path(sys.argv[1]), Path(sys.argv[2]))
    await asked.warm()
    print(asked.server.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_the_idle_server_costs_no_processor_and_dies_with_a_killed_daemon(small: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", DAEMON, str(small), str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        child = int(daemon.stdout.readline())
        before = _cpu_ticks(child)
        time.sleep(5)  # the measured interval, not a wait for something
        spent = (_cpu_ticks(child) - before) / os.sysconf("SC_CLK_TCK")
        daemon.kill()
        daemon.wait()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{child}").exists()
    assert spent / 5 < 0.01


def test_the_standard_weights_look_before_they_answer(tmp_path: Path) -> None:
    question = Conversation(PERSONA, (User("What is the wifi password of the guest network at the lake house?"),))

    async def check(asked: EmbeddedModel) -> None:
        await asked.warm(PERSONA, WORKSPACE_TOOLS)
        conversation, events = question, await heard(asked, question)
        for _ in range(4):
            calls = tuple(event.call for event in events if isinstance(event, CallRequested))
            if not calls:
                break
            found = "lake-house.md:3: Guest network password: heron-42-blue"
            result = ToolResult(calls[0].id, calls[0].name, ok=True, text=found)
            conversation = conversation.plus(Assistant(told(events), calls), result)
            events = await heard(asked, conversation)
        assert len(conversation.messages) > len(question.messages)
        assert "heron-42-blue" in told(events)

    running(_weights(weights.STANDARD), tmp_path / "log", check)
