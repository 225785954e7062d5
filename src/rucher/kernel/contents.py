"""What a step asked and answered, as the journal holds it: itself, or when it is large the name of the file that it is in."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from rucher.journal.artifacts import Artifacts
from rucher.journal.rows import encoded
from rucher.kernel.records import Record, record

LARGEST_INLINE = 8192
"""Bytes of a request or result that the journal holds itself."""
MAX_CONTENT = 64 << 20
"""Bytes that a result may have at all."""
SMALL = LARGEST_INLINE // 4
"""Characters of a text that surely is not larger."""
_PREVIEW = 400
ARTIFACT = "@artifact"
"""The key under which a request or result names the file that it is in, beside its `bytes` and a `preview`."""
_KEPT_BESIDE = ("ok", "usage", "tool")
"""What views, lists and later conversations read of a request or result without opening its file."""


async def kept(artifacts: Artifacts, run: str, text: str, value: Mapping[str, Any]) -> tuple[str, list[Record]]:
    """The JSON text that stands in the journal for `text`, and what must be recorded with it."""
    if len(text) <= SMALL or len(raw := text.encode()) <= LARGEST_INLINE:
        return text, []
    digest = await asyncio.to_thread(artifacts.put, raw)
    preview = str(value.get("text") or text)[:_PREVIEW]
    named: dict[str, Any] = {ARTIFACT: digest, "bytes": len(raw), "preview": preview}
    named |= {name: value[name] for name in _KEPT_BESIDE if name in value}
    if isinstance(value.get("arguments"), Mapping):
        named["arguments"] = _begun(value["arguments"])
    stored = record("artifact.stored", {"run": run, "digest": digest, "bytes": len(raw)})
    return encoded(named, "a result"), [stored]


async def whole(artifacts: Artifacts, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """A recorded result, read back from its file if it is in one; raises Corrupt when that file is not what it was."""
    if ARTIFACT not in result:
        return result
    value: Mapping[str, Any] = json.loads(await asyncio.to_thread(artifacts.get, result[ARTIFACT]))
    return value


def _begun(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call as a list shows them: the small ones whole, the others cut or left out."""
    texts = {name: told if isinstance(told, str) else json.dumps(told) for name, told in arguments.items()}
    shown: dict[str, Any] = {}
    left = _PREVIEW
    for name in sorted(texts, key=lambda name: len(name) + len(texts[name])):
        left -= len(name)
        if left <= 0:
            break
        shown[name] = arguments[name] if len(texts[name]) <= left else f"{texts[name][:left]} [...]"
        left -= len(texts[name])
    return shown
