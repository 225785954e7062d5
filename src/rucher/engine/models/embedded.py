"""The model that comes with Rucher: llama.cpp's server with small weights, in a child process of its own.

Built by `rucher.daemon` from `[model] kind = "embedded"`, started at its first use. The native code runs only in the
child (`embedded_server.py`), so that its crash costs one answer and never the daemon; the child ends when its stdin
closes, so that a killed daemon leaves nothing behind.
"""

import asyncio
import contextlib
import json
import os
import platform
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from rucher.engine.models.wire.chunks import Chunk
from rucher.engine.models.wire.constrained import ConstrainedReader, render
from rucher.engine.models.wire.endpoint import Endpoint
from rucher.protocol.clock import SystemEntropy
from rucher.protocol.conversation import Conversation, ModelEvent, ModelOptions, ToolSpec, User
from rucher.protocol.errors import Permanent, Retryable
from rucher.protocol.ports import Entropy

CONTEXT_TOKENS = 8192
_LOAD_S = 300.0
_FAREWELL_S = 5.0
_CHILD = Path(__file__).with_name("embedded_server.py")
_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}
"""All that the child gets, for the daemon's own may hold keys. Threads that spin while they wait cost a busy machine nearly
all of the model's speed: measured beside one busy process, 2 tokens a second instead of 6."""
_OTHER_MODEL = 'or set another kind under [model], such as "compatible"'
_FULL_MEMORY = 1.9
"""Memory over the size of the weights, as measured with llama.cpp's repacked copy of them."""
_LEAN_MEMORY = 1.3
"""The same without that copy, at half the speed."""


class EmbeddedModel:
    """The embedded model behind the port; `log` takes what the native server writes."""

    def __init__(self, weights: Path, log: Path, entropy: Entropy | None = None) -> None:
        self.name = weights.stem
        self.server = EmbeddedServer(weights, log, entropy or SystemEntropy())

    async def stream(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> AsyncIterator[ModelEvent]:
        """One answer as events, ending with Finished; see the port for what it raises."""
        endpoint = await self.server.endpoint()
        body = render(self.name, conversation, tools, options, CONTEXT_TOKENS)
        try:
            async with contextlib.aclosing(
                endpoint.stream(body, ConstrainedReader(conversation), options.timeout_s)
            ) as events:
                async for event in events:
                    yield event
        except Retryable as error:
            if self.server.alive:
                raise
            raise Retryable(f"the embedded model stopped while it answered (see {self.server.log})") from error

    async def warm(self, system: str = "", tools: Sequence[ToolSpec] = ()) -> None:
        """Load the weights, and read the prefix that `system` and `tools` make: the first answer then comes sooner."""
        endpoint = await self.server.endpoint()
        if system:
            options = ModelOptions(max_tokens=1)
            body = render(self.name, Conversation(system, (User("Hello"),)), tools, options, CONTEXT_TOKENS)
            async for _ in endpoint.stream(body, _Discard(), options.timeout_s):
                pass

    async def close(self) -> None:
        """End the child process."""
        await self.server.close()


class EmbeddedServer:
    """The child process, started when asked for its endpoint and it is not there."""

    def __init__(self, weights: Path, log: Path, entropy: Entropy) -> None:
        self.log = log
        self._weights = weights
        self._entropy = entropy
        self._starting = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._endpoint: Endpoint | None = None

    @property
    def pid(self) -> int | None:
        """The child's process id while it lives."""
        return self._process.pid if self._process and self.alive else None

    @property
    def alive(self) -> bool:
        """Whether the child runs, as far as is known."""
        return self._process is not None and self._process.returncode is None

    async def endpoint(self) -> Endpoint:
        """The way to the running server. Raises Permanent when this machine cannot run it, Retryable when it died."""
        async with self._starting:
            if self._endpoint is None or not self.alive:
                await self.close()
                self._endpoint = await self._start()
            return self._endpoint

    async def close(self) -> None:
        """End the child: ask by closing its stdin, then kill."""
        if self._endpoint is not None:
            await self._endpoint.close()
            self._endpoint = None
        process, self._process = self._process, None
        if process is not None:
            await _ended(process)

    async def _start(self) -> Endpoint:
        lean = await asyncio.to_thread(_fitness, self._weights)
        key = self._entropy.bytes(32).hex()
        config = {
            "weights": str(self._weights),
            "key": key,
            "context_tokens": CONTEXT_TOKENS,
            "threads": _cores(),
            "lean": lean,
        }
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                str(_CHILD),
                env=_ENVIRONMENT,
                start_new_session=True,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        try:
            said = await self._heard(process, config)
        except BaseException:
            await self.close()
            raise
        return Endpoint(said["url"] + "/v1", SecretStr(key))

    async def _heard(self, process: asyncio.subprocess.Process, config: dict[str, Any]) -> dict[str, str]:
        to_child, from_child = process.stdin, process.stdout
        if to_child is None or from_child is None:
            raise Retryable("the embedded model was started without its pipes")
        to_child.write(json.dumps(config).encode() + b"\n")
        try:
            async with asyncio.timeout(_LOAD_S):
                line = await from_child.readline()
        except TimeoutError as error:
            raise Retryable(f"the embedded model did not load within {_LOAD_S:g} s (see {self.log})") from error
        if not line:
            raise _died(await process.wait(), self.log)
        said: dict[str, str] = json.loads(line)
        if "obstacle" in said:
            raise Permanent(_advice(said["obstacle"], said["detail"], self._weights))
        return said


class _Discard:
    """Reads a stream whose only purpose is to have been computed."""

    def feed(self, _chunk: Chunk) -> Iterator[ModelEvent]:
        return iter(())

    def end(self) -> Iterator[ModelEvent]:
        return iter(())


async def _ended(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_FAREWELL_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _died(code: int, log: Path) -> Permanent | Retryable:
    if code == -signal.SIGILL:
        return Permanent(
            f"this processor lacks an instruction (AVX2) of the embedded model's: use another machine, {_OTHER_MODEL}"
        )
    why = "was killed, perhaps for want of memory," if code == -signal.SIGKILL else f"ended with code {code}"
    return Retryable(f"the embedded model {why} while it loaded (see {log})")


def _advice(obstacle: str, detail: str, weights: Path) -> str:
    if obstacle == "runtime":
        return f"the embedded model's runtime does not load ({detail}): install the package xllamacpp, {_OTHER_MODEL}"
    return f"the weights {weights} do not load ({detail}): delete the file so that it is fetched again, {_OTHER_MODEL}"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _fitness(weights: Path) -> bool:
    """Whether the server must be lean here; raises Permanent when it cannot run here at all."""
    try:
        size = weights.stat().st_size
    except OSError as error:
        raise Permanent(
            f"the weights {weights} cannot be read ({error.strerror}): start again to fetch them, {_OTHER_MODEL}"
        ) from error
    return lean_here(size, platform.machine(), _text("/proc/cpuinfo"), _text("/proc/meminfo"))


def _text(path: str) -> str:
    """What Linux says about itself; nothing elsewhere, where the same is found out by trying."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def lean_here(weights_size: int, machine: str, cpuinfo: str, meminfo: str) -> bool:
    """Whether to do without the repacked copy of the weights, given what /proc says (empty texts where there is none).

    Raises Permanent when processor or memory do not suffice.
    """
    if machine == "x86_64" and cpuinfo and " avx2" not in cpuinfo:
        raise Permanent(
            f"this processor lacks AVX2, which the embedded model needs: use another machine, {_OTHER_MODEL}"
        )
    words = meminfo.partition("MemAvailable:")[2].split()
    if not words:
        return False
    available = int(words[0]) * 1024
    if available < weights_size * _LEAN_MEMORY:
        raise Permanent(
            f"the embedded model needs {weights_size * _LEAN_MEMORY / 1e9:.1f} GB of memory and {available / 1e9:.1f} GB "
            f"are free: close something, choose smaller weights, {_OTHER_MODEL}"
        )
    return available < weights_size * _FULL_MEMORY
