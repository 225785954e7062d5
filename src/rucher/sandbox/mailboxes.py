"""The mailboxes of all sessions, opened once a session and process, for everyone on the host who needs one.

Made by the daemon; used by its sessions for messages and by the hands for tool calls, from one event loop. Nobody else
opens a HostMailbox: a second one of the same session would cost descriptors, and drop the first one's locks when closed.
"""

import asyncio
import re
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from rucher.mailbox.errors import HotJournal, MailboxCorrupt, MailboxError, MailboxUnavailable
from rucher.mailbox.host import HostMailbox, create
from rucher.mailbox.rows import InboundRow, Kind
from rucher.mailbox.schema import refused
from rucher.protocol.errors import BadInput, Corrupt, Retryable
from rucher.sandbox.options import SandboxOptions
from rucher.sandbox.ownership import adopt_session

_T = TypeVar("_T")
_SESSION_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_MOST_OPEN = 128
_THREADS = 32


@contextmanager
def translated() -> Iterator[None]:
    """The mailbox's errors in the words that cross packages: Corrupt stops the one session, Retryable may pass."""
    try:
        yield
    except MailboxCorrupt as error:
        raise Corrupt(str(error)) from error
    except MailboxUnavailable as error:
        raise Retryable(str(error)) from error


@dataclass(slots=True)
class _Slot:
    """One session's mailbox while somebody uses it or may soon; `turn` is held by whoever acts on it."""

    users: int = 0
    turn: threading.Lock = field(default_factory=threading.Lock)
    mailbox: HostMailbox | None = None

    def close(self) -> None:
        if self.mailbox is not None:
            self.mailbox.close()
            self.mailbox = None


class Mailboxes:
    """At most `most_open` mailboxes are open, as long as fewer are in use; the one longest unused is closed for another.

    One that met a fault is closed, and opened again at its next use. Leaving the context closes all.
    """

    def __init__(self, sessions_dir: Path, options: SandboxOptions, most_open: int = _MOST_OPEN) -> None:
        self._sessions_dir = sessions_dir
        self._options = options
        self._most_open = most_open
        self._guard = threading.Lock()
        self._slots: OrderedDict[str, _Slot] = OrderedDict()
        # One thread a session, so that a session whose files are locked cannot take the threads of all the others.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="mailbox")
        self.recover: Callable[[str], Awaitable[None]] | None = None
        """Has a session's half commit of a dead runner undone; the pool of hands puts itself here."""

    def folder(self, session_id: str) -> Path:
        """Where the session's files lie or will lie. Raises BadInput for an id that cannot name a folder."""
        if not _SESSION_NAME.fullmatch(session_id):
            raise BadInput(f"{session_id!r} cannot name a session; use letters, digits, and - _ . within")
        return self._sessions_dir / session_id

    async def use(self, session_id: str, act: Callable[[HostMailbox], _T]) -> _T:
        """Do `act` with the session's mailbox, made if need be, in a thread; a cancelled one is finished there.

        `act` is done again after a recovery. Raises Corrupt, or Retryable when nothing can be done just now.
        """
        with translated():
            try:
                return await self.attempt(session_id, act)
            except HotJournal:
                if self.recover is None:
                    raise
                await self.recover(session_id)
                return await self.attempt(session_id, act)

    async def attempt(self, session_id: str, act: Callable[[HostMailbox], _T]) -> _T:
        """Like `use`, once, without recovery and with the mailbox's own errors: for whoever does something about them."""
        self.folder(session_id)
        async with self._turns.setdefault(session_id, asyncio.Lock()):
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._act, session_id, act)

    async def put_message(self, session_id: str, key: str, body: Mapping[str, Any], now: int) -> None:
        """Commit a message to the session's inbound.db; the same key again changes nothing."""
        await self.use(session_id, lambda box: box.put(Kind.MESSAGE, key, body, now))

    async def pending_messages(self, session_id: str) -> list[InboundRow]:
        """Messages that are not done, in order."""
        return await self.use(session_id, lambda box: box.pending(Kind.MESSAGE))

    async def message_done(self, session_id: str, seq: int) -> None:
        """Note that a message's turn is committed."""
        await self.use(session_id, lambda box: box.mark_done((seq,)))

    def outbound_version(self, session_id: str) -> bytes | None:
        """Bytes that change with every commit of the runner, at once; None when only `attempt` can tell."""
        slot = self._slots.get(session_id)
        if slot is None or not slot.turn.acquire(blocking=False):
            return None
        try:
            return slot.mailbox.outbound_version() if slot.mailbox else None
        finally:
            slot.turn.release()

    def _act(self, session_id: str, act: Callable[[HostMailbox], _T]) -> _T:
        slot = self._enter(session_id)
        try:
            with slot.turn:
                try:
                    slot.mailbox = slot.mailbox or self._opened(session_id)
                    return act(slot.mailbox)
                except MailboxError:
                    slot.close()
                    raise
        finally:
            self._leave(session_id, slot)

    def _opened(self, session_id: str) -> HostMailbox:
        folder = self.folder(session_id)
        create(folder, session_id)
        try:
            adopt_session(folder, self._options)
        except OSError as error:
            raise refused(str(error.filename or folder), error) from error
        return HostMailbox(folder)

    def _enter(self, session_id: str) -> _Slot:
        with self._guard:
            if session_id not in self._slots:
                self._make_room()
                self._slots[session_id] = _Slot()
            self._slots.move_to_end(session_id)
            slot = self._slots[session_id]
            slot.users += 1
            return slot

    def _leave(self, session_id: str, slot: _Slot) -> None:
        with self._guard:
            slot.users -= 1
            if not slot.users and slot.mailbox is None:
                del self._slots[session_id]

    def _make_room(self) -> None:
        # Closed under the guard: were it opened anew meanwhile, closing the old one would drop the new one's locks.
        while len(self._slots) >= self._most_open:
            unused = next((session_id for session_id, slot in self._slots.items() if not slot.users), None)
            if unused is None:
                return
            slot = self._slots.pop(unused)
            with slot.turn:
                slot.close()

    def __enter__(self) -> "Mailboxes":
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()
