"""The mailboxes of all sessions in use, opened once each; blocking work is done in threads, faults are translated."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rucher.mailbox.errors import MailboxCorrupt, MailboxUnavailable
from rucher.mailbox.host import HostMailbox, create
from rucher.mailbox.rows import InboundRow, Kind, State
from rucher.protocol.errors import Corrupt, Retryable

T = TypeVar("T")


class Mailboxes:
    """One open mailbox a session; a mailbox that met a fault is closed and opened again at its next use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, HostMailbox] = {}

    def folder(self, session_id: str) -> Path:
        """Where the session's files lie."""
        return self._folder / session_id

    async def put_message(self, session_id: str, key: str, body: Mapping[str, Any], now: int) -> None:
        """Commit a message to the session's inbound.db; the same key again changes nothing."""
        await self.use(session_id, lambda box: box.put(Kind.MESSAGE, key, body, now))

    async def pending_messages(self, session_id: str) -> list[InboundRow]:
        """Messages that are not done, in order."""
        return await self.use(session_id, lambda box: box.pending(Kind.MESSAGE))

    async def message_done(self, session_id: str, seq: int) -> None:
        """Note that a message's turn is committed."""
        await self.use(session_id, lambda box: box.mark(seq, State.DONE))

    async def use(self, session_id: str, act: Callable[[HostMailbox], T]) -> T:
        """Do `act` with the session's mailbox in a thread; raises Corrupt or Retryable."""
        return await asyncio.to_thread(self._use, session_id, act)

    def _use(self, session_id: str, act: Callable[[HostMailbox], T]) -> T:
        try:
            box = self._open.get(session_id)
            if box is None:
                create(self.folder(session_id), session_id)
                box = self._open[session_id] = HostMailbox(self.folder(session_id))
            return act(box)
        except MailboxCorrupt as error:
            self._forget(session_id)
            raise Corrupt(str(error)) from error
        except MailboxUnavailable as error:
            self._forget(session_id)
            raise Retryable(str(error)) from error

    def _forget(self, session_id: str) -> None:
        if box := self._open.pop(session_id, None):
            box.close()

    def __enter__(self) -> "Mailboxes":
        return self

    def __exit__(self, *_: object) -> None:
        for session_id in list(self._open):
            self._forget(session_id)
