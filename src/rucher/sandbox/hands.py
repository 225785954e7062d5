"""Executes one session's tool calls: puts each into the mailbox, keeps a runner alive, waits for the result.

Handed out by the pool to the engine as the port `Tools`. It believes no runner unchecked, runs nothing outside a
sandbox, and lets no call be begun after it was reported as one that could not run.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rucher.mailbox.errors import HotJournal, MailboxError, MailboxUnavailable
from rucher.mailbox.host import HostMailbox
from rucher.mailbox.rows import InboundRow, Kind, Outcome, ResultRow, State
from rucher.protocol.conversation import Effect, ToolCall, ToolResult, ToolSpec
from rucher.protocol.errors import Corrupt, Denied, Retryable, Uncertain
from rucher.protocol.ports import Clock, Proof
from rucher.sandbox.bubblewrap import Bubblewrap
from rucher.sandbox.cancelling import Cancelling
from rucher.sandbox.mailboxes import Mailboxes, translated
from rucher.sandbox.ownership import adopt
from rucher.sandbox.patience import Patience
from rucher.sandbox.tending import Tended

_T = TypeVar("_T")
_FASTEST_S, _SLOWEST_S, _SLOWING = 0.002, 0.05, 1.15
_GIVEN_UP = "this call was stopped by the host before it ended"


@dataclass(frozen=True, slots=True)
class _Call:
    """One request of the port `Tools`."""

    call: ToolCall
    spec: ToolSpec
    key: str

    @property
    def once(self) -> bool:
        """Whether it must not be begun a second time."""
        return self.spec.effect is Effect.NON_IDEMPOTENT

    def answer(self, text: str, *, ok: bool = False) -> ToolResult:
        """A result of this call."""
        return ToolResult(self.call.id, self.call.name, ok=ok, text=text)


@dataclass(slots=True)
class _Asked:
    """A call that was put into the mailbox, and what was seen of it since; times are the clock's monotonic seconds."""

    of: _Call
    seq: int
    put_at: float
    served_before: int
    claimed_at: float | None = None
    seen: bytes | None = None


class SessionHands:
    """Port `Tools` for one session. `keep` is called whenever it begins something that its last user may not see end."""

    def __init__(
        self,
        session_id: str,
        mailboxes: Mailboxes,
        launcher: Bubblewrap,
        clock: Clock,
        patience: Patience,
        keep: Callable[["SessionHands"], None],
    ) -> None:
        self.session_id = session_id
        self._mailboxes = mailboxes
        self._launcher = launcher
        self._clock = clock
        self._patience = patience
        self._keep = keep
        self._dir = mailboxes.folder(session_id)
        self._asked: dict[str, _Asked] = {}
        self._done: list[int] = []
        self._working = 0
        self._unwanted: set[str] = set()
        self._recovering = asyncio.Lock()
        self._used_at = clock.monotonic()
        self.runner = Tended(self._dir, launcher, clock, patience)
        self._cancelling = Cancelling(session_id, mailboxes, self.runner, clock, patience)

    async def execute(self, call: ToolCall, spec: ToolSpec, key: str) -> ToolResult:
        """Run the call in the session's sandbox, or return the result that `key` already has; see port `Tools`.

        Raises Corrupt when the session's files are not to be believed: that session stops, no other. A call that ends in
        Retryable, Denied or Corrupt is begun by no later runner, unless it is asked for again. A task cancelled here
        stops waiting; the call itself goes on until `cancel` or `close`.
        """
        with self._at_work():
            return await self._execute(_Call(call, spec, key))

    async def probe(self, key: str) -> Proof:
        """Whether the call under `key` ran. A mailbox that does not know it may be a new one: then nobody can tell."""
        with self._at_work():
            return await self._mailboxes.use(self.session_id, lambda box: _proof(box, key))

    async def cancel(self, keys: Collection[str]) -> None:
        """End the calls under these keys, whichever process's runner is at them; see port `Tools`."""
        with self._at_work():
            await self._cancelling.end(keys)

    async def workspace(self) -> Path:
        """The session's workspace, made if need be; what the host puts there it must give away with `adopt`."""
        with self._at_work():
            await self._mailboxes.use(self.session_id, lambda _: None)
        return self._dir / "workspace"

    async def adopt(self, path: Path) -> None:
        """Give a file or folder that the host made in the workspace to the tools' user."""
        await asyncio.to_thread(adopt, path, self._launcher.options)

    async def recover(self) -> None:
        """Have a runner undo what one before it left half-committed, and return once outbound.db can be read again.

        Raises Retryable with the reason when that cannot be had, and the mailbox's own errors.
        """
        async with self._recovering:
            if not await self._hot():
                return
            if not self._asked:
                # A runner at rest does not look at its own file; only its start undoes a half commit.
                self.runner.stop()
            try:
                with self._at_work():
                    await self._recovered()
            except Denied as error:
                raise Retryable(f"{self._half_written()}, and no sandbox can be had for that: {error}") from error

    def rest_if_idle(self) -> None:
        """Stop the runner if nobody has used it for a while."""
        if self._idle():
            self.runner.stop()

    async def settle(self) -> bool:
        """Write down what is still to be noted; whether these hands can then be forgotten, since nothing depends on them.

        Raises Corrupt or Retryable.
        """
        if not self._idle() or self.runner.pid is not None or self.runner.rests_s() > 0:
            return False
        with translated():
            await self.runner.ended()
            done = tuple(self._done)
            if done:
                await self._attempt(lambda box: box.mark_done(done))
                self._done = [one for one in self._done if one not in done]
            await self._give_up_unwanted()
        return self._idle() and self.runner.pid is None and not self._done

    async def close(self) -> None:
        """End the sandbox; the next runner settles a call that was under way, by its effect."""
        self.runner.stop()
        await self.runner.ended()

    def _idle(self) -> bool:
        return not self._working and self._clock.monotonic() - self._used_at > self._patience.idle_s

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self._keep(self)
        self._working += 1
        try:
            with translated():
                yield
        except Corrupt:
            self.runner.stop()
            raise
        finally:
            self._working -= 1
            self._used_at = self._clock.monotonic()

    async def _attempt(self, act: Callable[[HostMailbox], _T]) -> _T:
        return await self._mailboxes.attempt(self.session_id, act)

    async def _execute(self, of: _Call) -> ToolResult:
        put = False
        try:
            row, result, begun = await self._mailboxes.use(self.session_id, lambda box: _known(box, of.key))
            if result is not None:
                return _told(of, result)
            put = row is not None
            if row is not None and row.state is State.FAILED and begun and of.once:
                raise Uncertain(f"{of.call.name}: the host gave it up while it ran; whether it happened is not known")
            await self._demand_capability()
            asked = await self._put(of)
            put = True
            return await self._result_of(asked)
        except (MailboxError, Denied, Retryable):
            ended = await self._withdrawn(of, put=put)
            if ended is None:
                raise
            return ended
        finally:
            self._asked.pop(of.key, None)

    async def _demand_capability(self) -> None:
        capability = await self._launcher.capability()
        if not capability.ok:
            raise Denied(capability.reason)

    async def _put(self, of: _Call) -> _Asked:
        body = {
            "name": of.call.name,
            "arguments": dict(of.call.arguments),
            "effect": of.spec.effect.value,
            "timeout_s": of.spec.timeout_s,
        }
        deadline = self._clock.monotonic() + self._patience.unclaimed_s
        while await self._alive():
            done, now = tuple(self._done), self._clock.now()
            try:
                seq = await self._attempt(lambda box: box.put(Kind.TOOL_CALL, of.key, body, now, done))  # noqa: B023 - at once
            except MailboxUnavailable as error:
                if self._clock.monotonic() > deadline:
                    raise
                self._end_lock_holders(error)
                await self._clock.sleep(_SLOWEST_S)
            else:
                self._done = [one for one in self._done if one not in done]
                asked = self._asked[of.key] = _Asked(of, seq, self._clock.monotonic(), self.runner.served)
                return asked
        raise self._resting()

    async def _alive(self) -> bool:
        """Have a runner, once nothing is left for it that was reported as given up; False while none can be had."""
        await self._give_up_unwanted()
        return self.runner.keep_alive()

    async def _give_up_unwanted(self) -> None:
        for key in tuple(self._unwanted):
            await self._attempt(lambda box: box.give_up(key))  # noqa: B023 - awaited at once
            self._unwanted.discard(key)

    def _end_lock_holders(self, error: MailboxUnavailable) -> None:
        # The new runner undoes a hot journal. Any other lock that lasts is held by a tool, and dies with the sandbox.
        if not isinstance(error, HotJournal):
            self.runner.kill()

    def _resting(self) -> Retryable:
        seconds = self.runner.rests_s()
        return Retryable(
            f"session {self.session_id}: its sandbox died {self._patience.deaths} times in a row"
            f" (last words: {self.runner.last_words or 'none'}); it is tried again in {seconds:.0f} s",
            retry_after=seconds,
        )

    async def _result_of(self, asked: _Asked) -> ToolResult:
        pause = _FASTEST_S
        while True:
            result = await self._look(asked)
            if result is not None:
                self.runner.worked()
                self._done.append(asked.seq)
                return _told(asked.of, result)
            if self._overdue(asked):
                self.runner.stop()
                await self._attempt(lambda box: box.give_up(asked.of.key))
                return asked.of.answer(f"{_GIVEN_UP}: it took longer than {asked.of.spec.timeout_s:g} s")
            if not await self._alive():
                return await self._without_runner(asked)
            await self._clock.sleep(pause)
            pause = min(pause * _SLOWING, _SLOWEST_S)

    async def _look(self, asked: _Asked) -> ResultRow | None:
        try:
            version = self._mailboxes.outbound_version(self.session_id)
            if version is not None and version == asked.seen:
                return None
            version, result, claimed = await self._attempt(lambda box: _replies(box, asked.of.key))
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
        allowed_s = asked.of.spec.timeout_s + self._patience.margin_s
        if asked.claimed_at is not None:
            return now - asked.claimed_at > allowed_s
        if not self._is_oldest(asked):
            asked.put_at = now
        if asked.of.spec.effect is Effect.READ:
            return now - asked.put_at > allowed_s
        if now - asked.put_at > self._patience.unclaimed_s:
            asked.put_at = now
            self.runner.kill()
        return False

    def _is_oldest(self, asked: _Asked) -> bool:
        return asked.seq == min(other.seq for other in self._asked.values())

    async def _without_runner(self, asked: _Asked) -> ToolResult:
        if asked.claimed_at is not None and asked.of.once:
            raise Uncertain(f"{asked.of.call.name}: its runner died while it ran; whether it happened is not known")
        killed_runners = self.runner.served - asked.served_before >= self._patience.deaths
        if not (self._is_oldest(asked) and killed_runners):
            raise self._resting()
        # Left pending, it would kill the next runner too, and no other call of the session would ever be reached.
        ended = await self._withdrawn(asked.of, put=True)
        return ended or asked.of.answer(f"{_GIVEN_UP}: its runner died {self._patience.deaths} times")

    async def _withdrawn(self, of: _Call, *, put: bool) -> ToolResult | None:
        """See that no runner begins the call any more; its result if it has one after all.

        `put` says that it is known to stand in the mailbox. Raises Uncertain when it may have been begun already, or may
        still be, and must not be begun twice.
        """
        try:
            if not await self._attempt(lambda box: box.give_up(of.key)):
                return None
        except MailboxUnavailable as error:
            self.runner.stop()
            self._unwanted.add(of.key)
            if of.once and put:
                raise _unknown(of) from error
            return None
        # It may have read the row before and be about to act on it.
        self.runner.stop()
        await self.runner.ended()
        try:
            _, result, begun = await self._attempt(lambda box: _replies(box, of.key))
        except MailboxUnavailable:
            result, begun = None, True
        if result is not None:
            return _told(of, result)
        if begun and of.once:
            raise _unknown(of)
        return None

    async def _recovered(self) -> None:
        await self._demand_capability()
        deadline = self._clock.monotonic() + self._patience.recovery_s
        while self._clock.monotonic() < deadline:
            if not await self._alive():
                raise self._resting()
            if not await self._hot():
                return
            await self._clock.sleep(_SLOWEST_S)
        raise Retryable(f"{self._half_written()}, which was not done within {self._patience.recovery_s:g} s")

    async def _hot(self) -> bool:
        try:
            await self._attempt(HostMailbox.demand_readable)
        except HotJournal:
            return True
        return False

    def _half_written(self) -> str:
        return f"{self._dir / 'outbound.db'}: its runner died inside a commit that only another runner may undo"


def _proof(mailbox: HostMailbox, key: str) -> Proof:
    if mailbox.row(key) is None:
        return Proof.UNKNOWN
    if mailbox.result(key) is not None:
        return Proof.DONE
    return Proof.UNKNOWN if mailbox.claimed(key) else Proof.NOT_DONE


def _known(mailbox: HostMailbox, key: str) -> tuple[InboundRow | None, ResultRow | None, bool]:
    row = mailbox.row(key)
    return (row, mailbox.result(key), mailbox.claimed(key)) if row else (None, None, False)


def _replies(mailbox: HostMailbox, key: str) -> tuple[bytes, ResultRow | None, bool]:
    # The version first: what is committed after it is seen at the next look.
    return mailbox.outbound_version(), mailbox.result(key), mailbox.claimed(key)


def _unknown(of: _Call) -> Uncertain:
    return Uncertain(f"{of.call.name}: no runner ended it, and whether one had begun it is not known")


def _told(of: _Call, result: ResultRow) -> ToolResult:
    if result.outcome is not Outcome.UNCERTAIN:
        return of.answer(result.text, ok=result.outcome is Outcome.OK)
    if of.once:
        raise Uncertain(f"{of.call.name}: {result.text}")
    # No honest runner says so of what it may simply do again.
    return of.answer(f"it failed: {result.text}")
