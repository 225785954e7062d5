"""The hands of all sessions of an instance. Made by the daemon, which runs its sweep and closes it."""

import asyncio
from weakref import WeakValueDictionary

from rucher.protocol.errors import Corrupt, Retryable
from rucher.protocol.ports import Clock
from rucher.sandbox.bubblewrap import Bubblewrap
from rucher.sandbox.hands import SessionHands
from rucher.sandbox.mailboxes import Mailboxes, translated
from rucher.sandbox.patience import Patience

_SWEEP_S = 5.0
_ALL_PATIENCE = Patience()


class HandsPool:
    """One SessionHands per session, made when first asked for, and forgotten when idle and held by nobody."""

    def __init__(
        self, mailboxes: Mailboxes, launcher: Bubblewrap, clock: Clock, patience: Patience = _ALL_PATIENCE
    ) -> None:
        self._mailboxes = mailboxes
        self._launcher = launcher
        self._clock = clock
        self._patience = patience
        # Whoever still holds hands that were idle for long must meet the same ones as everybody else.
        self._known: WeakValueDictionary[str, SessionHands] = WeakValueDictionary()
        self._active: dict[str, SessionHands] = {}
        mailboxes.recover = self._recover

    def session(self, session_id: str) -> SessionHands:
        """The hands of a session, whose folder is made at its first call. Raises BadInput for an id unfit for that."""
        hands = self._known.get(session_id)
        if hands is None:
            hands = SessionHands(session_id, self._mailboxes, self._launcher, self._clock, self._patience, self._keep)
            self._known[session_id] = hands
        return hands

    async def run(self) -> None:
        """Stop runners that nobody uses, until cancelled."""
        while True:
            await self._clock.sleep(_SWEEP_S)
            await self.sweep()

    async def sweep(self) -> None:
        """Stop runners that nobody has used for a while, and forget the hands that have none."""
        for hands in tuple(self._active.values()):
            hands.rest_if_idle()
            try:
                if await hands.settle():
                    del self._active[hands.session_id]
            except (Corrupt, Retryable):
                # Whoever uses the session next meets the same and says so; until then its notes wait here.
                continue

    async def end_sandbox(self, session_id: str) -> None:
        """End the session's sandbox, in whichever process of this machine; the next call starts another.

        Raises Retryable for one that cannot be ended from here, Corrupt for a session whose files are damaged.
        """
        with translated():
            await self.session(session_id).runner.end_any()

    async def close(self) -> None:
        """End every sandbox."""
        self._mailboxes.recover = None
        async with asyncio.TaskGroup() as closing:
            for hands in self._active.values():
                closing.create_task(hands.close())
        self._active.clear()

    def _keep(self, hands: SessionHands) -> None:
        self._active[hands.session_id] = hands

    async def _recover(self, session_id: str) -> None:
        await self.session(session_id).recover()
