"""Keeps one session's runner alive: starts it, notices that it died or is stuck, replaces it, rests when that is vain.

Called by the session's hands on the event loop's thread; nothing here waits, but for `ended` and `end_any`.
"""

from pathlib import Path

from rucher.mailbox.errors import MailboxCorrupt
from rucher.protocol.errors import Retryable
from rucher.protocol.ports import Clock
from rucher.sandbox.bubblewrap import Bubblewrap, Sandbox
from rucher.sandbox.holders import is_held, kill_holder
from rucher.sandbox.patience import Breaker, Patience, Pulse

_EXIT_CORRUPT = 4
_TICK_S = 0.005


class Tended:
    """The runner of one session, whichever process that is at the moment."""

    def __init__(self, session_dir: Path, launcher: Bubblewrap, clock: Clock, patience: Patience) -> None:
        self._dir = session_dir
        self._launcher = launcher
        self._clock = clock
        self._patience = patience
        self._breaker = Breaker(patience)
        self._heartbeat = session_dir / ".heartbeat"
        self._pulse = Pulse(self._heartbeat, clock.monotonic())
        self._sandbox: Sandbox | None = None
        self._dying: list[Sandbox] = []
        self.last_words = ""
        """What the last dead runner printed last."""
        self.served = 0
        """How many of the runners so far lived long enough to show a beat."""

    @property
    def pid(self) -> int | None:
        """The process to kill when everything in the sandbox is to die, as a test does."""
        return self._sandbox.pid if self._sandbox else None

    def keep_alive(self) -> bool:
        """Have a runner, a new one if need be; False while too many have died for another try.

        Raises Retryable when no process can be started, Denied when no sandbox can be prepared, MailboxCorrupt when the
        runner ended because of what it found in the mailbox.
        """
        self._forget_dead()
        now = self._clock.monotonic()
        if self._sandbox is not None:
            if self._sandbox.alive and self._pulse.silent_s(now) <= self._patience.stuck_s:
                return True
            self._bury(self._sandbox, now)
        if self.rests_s() > 0:
            return False
        try:
            self._sandbox = self._launcher.start_runner(self._dir)
        except OSError as error:
            raise Retryable(f"session {self._dir.name}: no process can be started for its tools: {error}") from error
        self._pulse = Pulse(self._heartbeat, now)
        return True

    def rests_s(self) -> float:
        """Seconds for which no runner will be started, because too many died."""
        return self._breaker.rests_s(self._clock.monotonic())

    def worked(self) -> None:
        """A call came to its end."""
        self._breaker.worked()

    def kill(self) -> None:
        """End the runner because it does not do its work: that counts as a death."""
        if self._sandbox is not None:
            self._sandbox.kill()

    def stop(self) -> None:
        """End the runner because it is not needed."""
        if self._sandbox is not None:
            self._sandbox.kill()
            self._dying.append(self._sandbox)
            self._sandbox = None

    async def ended(self) -> None:
        """Return once every runner that was ended is gone."""
        for sandbox in tuple(self._dying):
            await sandbox.ended()
        self._forget_dead()

    def any_lives(self) -> bool:
        """Whether the session has a runner, be it another process's."""
        own = (self._sandbox, *self._dying)
        return any(sandbox is not None and sandbox.alive for sandbox in own) or is_held(self._heartbeat)

    async def end_any(self) -> None:
        """End the session's runner, be it another process's, with its sandbox, and return once it is gone.

        Raises Retryable for one that cannot be killed from here, as it runs on another machine.
        """
        self.stop()
        await self.ended()
        deadline = self._clock.monotonic() + self._patience.cancel_s
        while is_held(self._heartbeat):
            if self._clock.monotonic() > deadline:
                raise Retryable(
                    f"{self._heartbeat}: a runner that nobody here can end holds it and does not obey; end it where it runs"
                )
            kill_holder(self._heartbeat)
            await self._clock.sleep(_TICK_S)

    def _bury(self, sandbox: Sandbox, now: float) -> None:
        self._pulse.silent_s(now)
        self.served += self._pulse.beaten
        self.stop()
        code, self.last_words = sandbox.exit_code, sandbox.said().rpartition("\n")[2]
        if code == _EXIT_CORRUPT:
            raise MailboxCorrupt(self.last_words)
        if code != 0:
            self._breaker.died(now - sandbox.started_at, now)

    def _forget_dead(self) -> None:
        for sandbox in [one for one in self._dying if not one.alive]:
            self._dying.remove(sandbox)
            sandbox.close()
