"""Asks the gate script of a schedule in a sandbox of its own: it has no network, and its folder is there again the next time.

Wired into the schedules by the daemon. It never calls a model, and believes nothing of what a script prints.
"""

import asyncio
import hashlib
import re
from pathlib import Path

from rucher.protocol.conversation import Effect, ToolCall, ToolSpec
from rucher.protocol.errors import BadInput, Permanent
from rucher.protocol.ids import derived
from rucher.sandbox.pool import HandsPool
from rucher.surfaces.schedules.file import is_script
from rucher.surfaces.schedules.plan import Schedule
from rucher.surfaces.schedules.runner import Verdict

MOST_SAID = 4000
"""The most characters of a script's output that are kept."""
MOST_SCRIPT_BYTES = 1024 * 1024
TIMEOUT_S = 60.0
_NOTHING = "[no output]"
_SAID_NO = re.compile(r"\n?\[the command ended with exit code (\d+)\]\Z")
_CANNOT_RUN = frozenset({126, 127})
"""The shell's exit codes for a script that is no program, and for one that names an interpreter which is not there."""
# A gate that was interrupted is simply asked again.
_SHELL = ToolSpec("shell", "", {}, Effect.IDEMPOTENT_WRITE, TIMEOUT_S)


class ScriptGates:
    """The gates of one instance, as files below its folder."""

    def __init__(self, pool: HandsPool, root: Path, tenant: str) -> None:
        self._pool = pool
        self._root = root
        self._tenant = tenant

    async def ask(self, schedule: Schedule, planned_at: int) -> Verdict:
        """Run the script: exit code 0 opens, another one does not. Raises BadInput, Permanent or what a sandbox raises."""
        script = await asyncio.to_thread(_script, self._root, schedule.gate)
        hands = self._pool.session(derived("session", self._tenant, "schedule", schedule.id))
        # Named by its bytes: an earlier one may be running yet, and no program can be written while it runs.
        path = await hands.workspace() / f".gate-{hashlib.sha256(script).hexdigest()[:12]}"
        await asyncio.to_thread(_put, path, script)
        await hands.adopt(path)
        key = f"gate:{schedule.id}:{planned_at}:{path.name}"
        call = ToolCall(key, "shell", {"command": f"./{path.name} {schedule.id} {planned_at}"})
        result = await hands.execute(call, _SHELL, key)
        if result.ok:
            return Verdict(opens=True, said=_shortened(result.text.removeprefix(_NOTHING)))
        ended = _SAID_NO.search(result.text)
        if ended is None or int(ended[1]) in _CANNOT_RUN:
            raise Permanent(f"the gate {schedule.gate} did not decide: {_shortened(result.text[-MOST_SAID:])}")
        return Verdict(opens=False, said=_shortened(result.text[: ended.start()]) or f"exit code {ended[1]}")


def _script(root: Path, name: str) -> bytes:
    if not is_script(root, name):
        raise BadInput(f"there is no gate {name} in the instance's folder; put the script there")
    with (root / name).open("rb") as file:
        script = file.read(MOST_SCRIPT_BYTES + 1)
    if len(script) > MOST_SCRIPT_BYTES:
        raise BadInput(f"the gate {name} is larger than {MOST_SCRIPT_BYTES} bytes; shorten it")
    return script


def _put(path: Path, script: bytes) -> None:
    """Put the script there whole, even where a tool had made a link of this name."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    path.unlink(missing_ok=True)
    with temporary.open("xb") as file:
        file.write(script)
    temporary.chmod(0o755)
    temporary.rename(path)


def _shortened(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MOST_SAID else f"{text[:MOST_SAID]}\n[... the rest is left out]"
