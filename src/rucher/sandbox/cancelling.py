"""Ends calls whose run was cancelled: by their runner if it obeys, and else together with the sandbox.

Used by a session's hands alone. It starts no runner, and waits for none longer than the patience says.
"""

from collections.abc import Collection

from rucher.mailbox.errors import MailboxError
from rucher.mailbox.host import HostMailbox
from rucher.protocol.ports import Clock
from rucher.sandbox.mailboxes import Mailboxes
from rucher.sandbox.patience import Patience
from rucher.sandbox.tending import Tended

_LOOK_S = 0.01


class Cancelling:
    """Of one session, whose runner may be this process's, another worker's or nobody's."""

    def __init__(self, session_id: str, mailboxes: Mailboxes, runner: Tended, clock: Clock, patience: Patience) -> None:
        self._session_id = session_id
        self._mailboxes = mailboxes
        self._runner = runner
        self._clock = clock
        self._patience = patience

    async def end(self, keys: Collection[str]) -> None:
        """Return once none of these calls goes on, and no runner can begin one of them any more.

        Raises Retryable while a runner can neither be told nor killed, and the mailbox's own errors when that cannot be
        written down; what ran in a sandbox of this machine is ended then all the same.
        """
        if not await self._obeyed(keys):
            await self._runner.end_any()
        await self._mailboxes.attempt(self._session_id, lambda box: _give_up(box, keys))

    async def _obeyed(self, keys: Collection[str]) -> bool:
        """Tell the runner; whether nothing of these calls is under way any more."""
        deadline = self._clock.monotonic() + self._patience.cancel_s
        now = self._clock.now()
        try:
            await self._mailboxes.attempt(self._session_id, lambda box: _cancel(box, keys, now))
            while await self._mailboxes.attempt(self._session_id, lambda box: _under_way(box, keys)):
                if not self._runner.any_lives():
                    return True
                if self._clock.monotonic() > deadline:
                    return False
                await self._clock.sleep(_LOOK_S)
        except MailboxError:
            # Its files are locked, half-written or forged: no answer of that runner would be believed.
            return False
        return True


def _cancel(mailbox: HostMailbox, keys: Collection[str], now: int) -> None:
    # The row stays even where there is no call under its key: a hand that was slow may put one yet.
    for key in keys:
        mailbox.cancel(key, now)


def _under_way(mailbox: HostMailbox, keys: Collection[str]) -> bool:
    return any(mailbox.row(key) is not None and mailbox.result(key) is None for key in keys)


def _give_up(mailbox: HostMailbox, keys: Collection[str]) -> None:
    for key in keys:
        mailbox.give_up(key)
