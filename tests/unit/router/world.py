"""A router on a journal in memory, for its tests."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from rucher.router.reload import RulesFile
from rucher.router.router import Router
from tests.fakes.clock import ManualClock
from tests.fakes.journal import MemoryJournal
from tests.fakes.registry import FoldedRegistry
from tests.unit.router.builders import HEAD

KNOWN = {"agent:scribe", "agent:other", "surface:cli"}
FAN_OUT = '[[rule]]\nid = "fan"\nmatch = { text = "both" }\nto = ["agent:scribe", "agent:other"]\n'


class World:
    """A router on a journal in memory, and what it has recorded."""

    def __init__(self, folder: Path, text: str = HEAD) -> None:
        self.path = folder / "rules.toml"
        self.path.write_text(text)
        self.file = RulesFile(self.path, lambda: KNOWN)
        self.journal = MemoryJournal()
        self.clock = ManualClock()

    def router(self, cursor: int = 0) -> Router:
        return Router(self.journal, self.clock, self.file, FoldedRegistry(self.journal), "home", cursor)

    def hops(self) -> list[tuple[str, str, str]]:
        """Text of the event, rule and destination of each hop."""
        texts = {event.id: event.body.get("text") for event in self.journal.events}
        return [
            (str(texts[made.body["event"]]), made.body["rule"], made.body["to"])
            for made in self.journal.of_type("hop.made")
        ]

    def routed(self) -> int:
        return len({one.body["event"] for kind in ("hop.made", "route.dropped") for one in self.journal.of_type(kind)})


def during(router: Router, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Play the story while the router runs, then stop it."""

    async def play() -> None:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(router.run())
            await story()
            running.cancel()

    asyncio.run(play())
