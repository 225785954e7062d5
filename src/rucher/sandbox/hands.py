"""Executes one session's tool calls: puts each into the mailbox, keeps a runner alive, waits for the result.

Handed out by the pool to the engine as the port `Tools`. It believes no runner unchecked, and runs nothing outside a
sandbox.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rucher.mailbox.errors import HotJournal, MailboxCorrupt, MailboxUnavailable
from rucher.mailbox.host import HostMailbox, create
from rucher.mailbox.rows import InboundRow, Kind, Outcome, ResultRow, State
from rucher.protocol.conversation import Effect, ToolCall, ToolResult, ToolSpec
from rucher.protocol.errors import Corrupt, Denied, Retryable, Uncertain
from rucher.protocol.ports import Clock
from rucher.sandbox.bubblewrap import Bubblewrap
from rucher.sandbox.ownership import adopt, adopt_session
from rucher.sandbox.patience import Patience
from rucher.sandbox.tending import Tended

_T = TypeVar("_T")
_FASTEST_S, _SLOWEST_S, _SLOWING = 0.002, 0.05, 1.15
_GIVEN_UP = "this call was stopped by the host before it ended"


@dataclass(slots=True)
class _Asked:
    """A call that was put into the mailbox, and what was seen of it since; times are the clock's monotonic seconds."""

    call: ToolCall
    spec: ToolSpec
    key: str
    seq: int
    put_at: float
    served_before: int
    claimed_at: float | None = None
    seen: bytes = b""


class SessionHands:
    """Port `Tools` for one session."""

    def __init__(self, session_dir: Path, launcher: Bubblewrap, clock: Clock, patience: Patience) -> None:
        self._dir = session_dir
        self._launcher = launcher
        self._clock = clock
        self._patience = patience
        self._mailbox: HostMailbox | None = None
        self._opening = asyncio.Lock()
        self._asked: dict[str, _Asked] = {}
        self._done: list[int] = []
        self._used_at = clock.monotonic()
        self.runner = Tended(session_dir, launcher, clock, patience)

    async def execute(self, call: ToolCall, spec: ToolSpec, key: str) -> ToolResult:
        """Run the call in the session's sandbox, or return the result that `key` already has; see port `Tools`.

        Raises Corrupt when the session's files are not to be believed: that session stops, no other. A task cancelled
        here stops waiting; the call itself goes on until `cancel` or `close`.
        """
        return await self._mapped(self._execute(call, spec, key))

    async def cancel(self, key: str) -> None:
        """Ask the runner to stop the call under `key`, which then ends as a failed one."""
        await self._mapped(self._cancel(key))

    async def workspace(self) -> Path:
        """The session's workspace, made if need be; what the host puts there it must give away with `adopt`."""
        await self._mapped(self._opened())
        return self._dir / "workspace"

    async def adopt(self, path: Path) -> None:
        """Give a file or folder that the host made in the workspace to the tools' user."""
        await asyncio.to_thread(adopt, path, self._launcher.options)

    def rest_if_idle(self) -> None:
        """Stop the runner if nobody has used it for a while."""
        if not self._asked and self._clock.monotonic() - self._used_at > self._patience.idle_s:
            self.runner.stop()

    async def close(self) -> None:
        """End the sandbox and let go of the files; the next runner settles a call that was under way, by its effect."""
        self.runner.stop()
        await self.runner.ended()
        if self._mailbox is not None:
            await asyncio.to_thread(self._mailbox.close)
            self._mailbox = None

    async def _mapped(self, act: Awaitable[_T]) -> _T:
        try:
            return await act
        except MailboxCorrupt as error:
            self.runner.stop()
            raise Corrupt(str(error)) from error
        except MailboxUnavailable as error:
            raise Retryable(str(error)) from error

    async def _opened(self) -> HostMailbox:
        async with self._opening:
            if self._mailbox is None:
                self._mailbox = await asyncio.to_thread(self._open)
            return self._mailbox

    def _open(self) -> HostMailbox:
        create(self._dir, self._dir.name)
        adopt_session(self._dir, self._launcher.options)
        return HostMailbox(self._dir)

    async def _cancel(self, key: str) -> None:
        mailbox = await self._opened()
        await asyncio.to_thread(mailbox.cancel, key, self._clock.now())

    async def _execute(self, call: ToolCall, spec: ToolSpec, key: str) -> ToolResult:
        mailbox = await self._opened()
        match await asyncio.to_thread(_stored, mailbox, key):
            case ResultRow() as result:
                return _told(call, result)
            case InboundRow(state=State.FAILED):
                return ToolResult(call.id, call.name, ok=False, text=_GIVEN_UP)
            case InboundRow() | None:
                pass
        capability = await self._launcher.capability()
        if not capability.ok:
            raise Denied(capability.reason)
        asked = await self._put(mailbox, call, spec, key)
        self._asked[key] = asked
        try:
            return await self._result_of(mailbox, asked)
        finally:
            del self._asked[key]
            self._used_at = self._clock.monotonic()

    async def _put(self, mailbox: HostMailbox, call: ToolCall, spec: ToolSpec, key: str) -> _Asked:
        body = {
            "name": call.name,
            "arguments": dict(call.arguments),
            "effect": spec.effect.value,
            "timeout_s": spec.timeout_s,
        }
        deadline = self._clock.monotonic() + self._patience.unclaimed_s
        while self.runner.keep_alive():
            try:
                done = tuple(self._done)
                seq = await asyncio.to_thread(mailbox.put, Kind.TOOL_CALL, key, body, self._clock.now(), done)
            except MailboxUnavailable as error:
                if self._clock.monotonic() > deadline:
                    raise
                self._end_lock_holders(error)
                await self._clock.sleep(_SLOWEST_S)
            else:
                self._done = [one for one in self._done if one not in done]
                return _Asked(call, spec, key, seq, self._clock.monotonic(), self.runner.served)
        raise self._resting()

    def _end_lock_holders(self, error: MailboxUnavailable) -> None:
        # The new runner undoes a hot journal. Any other lock that lasts is held by a tool, and dies with the sandbox.
        if not isinstance(error, HotJournal):
            self.runner.kill()

    def _resting(self) -> Retryable:
        seconds = self.runner.rests_s()
        return Retryable(
            f"session {self._dir.name}: its sandbox died {self._patience.deaths} times in a row"
            f" (last words: {self.runner.last_words or 'none'}); it is tried again in {seconds:.0f} s",
            retry_after=seconds,
        )

    async def _result_of(self, mailbox: HostMailbox, asked: _Asked) -> ToolResult:
        pause = _FASTEST_S
        while True:
            result = await self._look(mailbox, asked)
            if result is not None:
                self.runner.worked()
                self._done.append(asked.seq)
                return _told(asked.call, result)
            if self._overdue(asked):
                self.runner.stop()
                return await self._give_up(mailbox, asked, f"it took longer than {asked.spec.timeout_s:g} s")
            if not self.runner.keep_alive():
                return await self._without_runner(mailbox, asked)
            await self._clock.sleep(pause)
            pause = min(pause * _SLOWING, _SLOWEST_S)

    async def _look(self, mailbox: HostMailbox, asked: _Asked) -> ResultRow | None:
        version = mailbox.outbound_version()
        if version == asked.seen:
            return None
        try:
            result, claimed = await asyncio.to_thread(_replies, mailbox, asked.key)
        except MailboxUnavailable as error:
            self._end_lock_holders(error)
            return None
        asked.seen = version
        if claimed and asked.claimed_at is None:
            asked.claimed_at = self._clock.monotonic()
        return result

    def _overdue(self, asked: _Asked) -> bool:
        """Whether the call has had its time; a runner that does not even begin the oldest call is ended on the way."""
        now = self._clock.monotonic()
        allowed_s = asked.spec.timeout_s + self._patience.margin_s
        if asked.claimed_at is not None:
            return now - asked.claimed_at > allowed_s
        if not self._is_oldest(asked):
            asked.put_at = now
        if asked.spec.effect is Effect.READ:
            return now - asked.put_at > allowed_s
        if now - asked.put_at > self._patience.unclaimed_s:
            asked.put_at = now
            self.runner.kill()
        return False

    def _is_oldest(self, asked: _Asked) -> bool:
        return asked.seq == min(other.seq for other in self._asked.values())

    async def _without_runner(self, mailbox: HostMailbox, asked: _Asked) -> ToolResult:
        if asked.claimed_at is not None and asked.spec.effect is Effect.NON_IDEMPOTENT:
            raise Uncertain(f"{asked.call.name}: its runner died while it ran; whether it happened is not known")
        killed_runners = self.runner.served - asked.served_before >= self._patience.deaths
        if self._is_oldest(asked) and killed_runners:
            # Left pending, it would kill the next runner too, and no other call of the session would ever be reached.
            return await self._give_up(mailbox, asked, f"its runner died {self._patience.deaths} times")
        raise self._resting()

    async def _give_up(self, mailbox: HostMailbox, asked: _Asked, reason: str) -> ToolResult:
        await asyncio.to_thread(mailbox.mark, asked.seq, State.FAILED)
        return ToolResult(asked.call.id, asked.call.name, ok=False, text=f"{_GIVEN_UP}: {reason}")


def _stored(mailbox: HostMailbox, key: str) -> ResultRow | InboundRow | None:
    row = mailbox.row(key)
    if row is None:
        return None
    try:
        return mailbox.result(key) or row
    except HotJournal:
        # Only a runner can make the file readable again, and one is about to be started.
        return row


def _replies(mailbox: HostMailbox, key: str) -> tuple[ResultRow | None, bool]:
    return mailbox.result(key), mailbox.claimed(key)


def _told(call: ToolCall, result: ResultRow) -> ToolResult:
    if result.outcome is Outcome.UNCERTAIN:
        raise Uncertain(f"{call.name}: {result.text}")
    return ToolResult(call.id, call.name, ok=result.outcome is Outcome.OK, text=result.text)
