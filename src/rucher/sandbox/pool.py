"""The hands of all sessions of an instance. Made by the daemon, which runs its sweep and closes it."""

import asyncio
import re
from pathlib import Path

from rucher.protocol.errors import BadInput
from rucher.protocol.ports import Clock
from rucher.sandbox.bubblewrap import Bubblewrap
from rucher.sandbox.hands import SessionHands
from rucher.sandbox.patience import Patience

_SESSION_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_SWEEP_S = 5.0
_ALL_PATIENCE = Patience()


class HandsPool:
    """One SessionHands per session, made when first asked for."""

    def __init__(
        self, sessions_dir: Path, launcher: Bubblewrap, clock: Clock, patience: Patience = _ALL_PATIENCE
    ) -> None:
        self._sessions_dir = sessions_dir
        self._launcher = launcher
        self._clock = clock
        self._patience = patience
        self._sessions: dict[str, SessionHands] = {}

    def session(self, session_id: str) -> SessionHands:
        """The hands of a session, whose folder is made at its first call. Raises BadInput for an id unfit for that."""
        if not _SESSION_NAME.fullmatch(session_id):
            raise BadInput(f"{session_id!r} cannot name a session; use letters, digits, and - _ . within")
        if session_id not in self._sessions:
            session_dir = self._sessions_dir / session_id
            self._sessions[session_id] = SessionHands(session_dir, self._launcher, self._clock, self._patience)
        return self._sessions[session_id]

    async def run(self) -> None:
        """Stop runners that nobody uses, until cancelled."""
        while True:
            await self._clock.sleep(_SWEEP_S)
            for hands in self._sessions.values():
                hands.rest_if_idle()

    async def close(self) -> None:
        """End every sandbox and let go of every session."""
        async with asyncio.TaskGroup() as closing:
            for hands in self._sessions.values():
                closing.create_task(hands.close())
        self._sessions.clear()
