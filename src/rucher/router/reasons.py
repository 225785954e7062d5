"""What is recorded of an error, and writes that wait for the journal."""

from rucher.protocol.backoff import surely
from rucher.protocol.errors import RucherError
from rucher.protocol.events import Draft
from rucher.protocol.ports import Appended, Clock, Journal

MOST_REASON = 500
"""The longest reason, in characters, that is recorded of an error nobody foresaw."""


async def append_surely(journal: Journal, clock: Clock, *drafts: Draft) -> tuple[Appended, ...]:
    """Append, waiting as long as it takes while the journal cannot write; every other error is raised."""
    return await surely(clock, lambda: journal.append(*drafts))


def reason(error: Exception) -> str:
    """What is recorded of an error: its own text, or, of one nobody foresaw, its kind and the beginning of its text."""
    return str(error) if isinstance(error, RucherError) else f"{type(error).__name__}: {error}"[:MOST_REASON]
