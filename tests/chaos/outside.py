"""What is outside the system, and counts: files that a killed process cannot take back.

Worker processes act on it; tests read it, and open its gates.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

Counts = Counter[tuple[str, str]]
"""How often each effect happened, by run and label."""


async def once(holds: Callable[[], bool]) -> None:
    """Return once `holds()`."""
    while not holds():  # noqa: ASYNC110 - other processes make it true
        await asyncio.sleep(0.01)


class Outside:
    """One folder; any number of processes use it at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "once").mkdir(parents=True, exist_ok=True)

    def note(self, book: str, *words: str) -> None:
        """Write one line into a book, and make sure of it."""
        self._append(self._folder / book, " ".join(words) + "\n")

    def lines(self, book: str) -> list[list[str]]:
        """What was noted, in order, a list of words a line."""
        path = self._folder / book
        return [line.split(" ") for line in path.read_text("utf-8").splitlines()] if path.exists() else []

    def act(self, way: str, run: str, label: str, key: str) -> None:
        """Have an effect: it happens as often as this is called."""
        self.note("effects", way, run, label, key)

    def act_once(self, run: str, label: str, key: str) -> None:
        """Have an effect that happens once a key, however often this is called."""
        path = self._folder / "once" / f"{run}.{label}.{key}"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))

    def knows(self, key: str) -> bool:
        """Whether there was an effect under this key."""
        return any(words[-1] == key for words in self.lines("effects"))

    def counts(self) -> Counts:
        """All effects."""
        counts = Counter((run, label) for _, run, label, _ in self.lines("effects"))
        counts.update((run, label) for run, label, _ in (path.name.split(".") for path in self._once()))
        return counts

    def open(self, gate: str) -> None:
        """Let pass whoever waits at this gate."""
        self._append(self._folder / gate, "")

    def is_open(self, gate: str) -> bool:
        """Whether this gate was opened."""
        return (self._folder / gate).exists()

    def set_clock(self, name: str, seconds: float) -> None:
        """Make the wall clock called `name` go wrong by so much."""
        new = self._folder / f"new-clock-{name}"
        new.write_text(str(seconds), "ascii")
        new.replace(self._folder / f"clock-{name}")

    def clock_of(self, name: str) -> float:
        """By how many seconds that wall clock is wrong."""
        path = self._folder / f"clock-{name}"
        return float(path.read_text("ascii")) if path.exists() else 0.0

    def _once(self) -> list[Path]:
        return list((self._folder / "once").iterdir())

    def _append(self, path: Path, text: str) -> None:
        descriptor = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.write(descriptor, text.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
