"""What the router and the dispatcher do when something fails: try again, ever more slowly, or say why not."""

from collections.abc import Iterator

from rucher.protocol.errors import Retryable, RucherError
from rucher.protocol.events import Draft
from rucher.protocol.ports import Appended, Clock, Journal

FIRST_S = 0.1
LONGEST_S = 30.0
MOST_REASON = 500
"""The longest reason, in characters, that is recorded of an error nobody foresaw."""


def waits() -> Iterator[float]:
    """Seconds to wait before each further attempt: doubling, never more than LONGEST_S."""
    wait = FIRST_S
    while True:
        yield wait
        wait = min(wait * 2, LONGEST_S)


async def append_surely(journal: Journal, clock: Clock, *drafts: Draft) -> tuple[Appended, ...]:
    """Append, waiting as long as it takes while the journal cannot write; every other error is raised."""
    for wait in waits():
        try:
            return await journal.append(*drafts)
        except Retryable as error:
            await clock.sleep(wait if error.retry_after is None else error.retry_after)
    raise AssertionError("waits never ends")


def reason(error: Exception) -> str:
    """What is recorded of an error: its own text, or, of one nobody foresaw, its kind and the beginning of its text."""
    return str(error) if isinstance(error, RucherError) else f"{type(error).__name__}: {error}"[:MOST_REASON]
