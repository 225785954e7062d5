"""The `hands` runner: waits for tool calls, claims each, acts, writes its result. Started by the launcher as process 1.

It runs every pending call once and in order, reads that stand together at the same time. What a runner before it had
begun and not ended is run again only if its effect allows that.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rucher.mailbox.errors import MailboxCorrupt, MailboxError, MailboxUnavailable
from rucher.mailbox.rows import Call, Outcome
from rucher.mailbox.runner import RunnerMailbox
from rucher.runner import limits
from rucher.runner.files import list_dir, read_file, write_file
from rucher.runner.results import Acted, Failure, failed
from rucher.runner.search import search
from rucher.runner.shell import end_group, end_namespace, shell

_READERS = 4
_THREAD_STACK = 512 * 1024
_BEAT_S = 1.0
_FASTEST_S = 0.002
_SLOWEST_S = 0.2
_PATIENCE = 200
_PREDECESSOR_S = 5.0


class Clock(NamedTuple):
    """Time as an input: microseconds since the epoch, seconds from any start, and waiting."""

    now: Callable[[], int]
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]


class Run(NamedTuple):
    """Act on these calls at the same time."""

    calls: tuple[Call, ...]


class Settle(NamedTuple):
    """End this call without acting."""

    call: Call
    outcome: Outcome
    text: str


def next_step(calls: Sequence[Call], cancelled: Callable[[str], bool]) -> Run | Settle:
    """What to do first with these open calls, which are in order and not empty."""
    first = calls[0]
    if cancelled(first.key):
        return Settle(first, Outcome.ERROR, "cancelled before it ended")
    if first.effect == "read":
        # The first was asked about once and not again: it may have been cancelled in between, and then nothing was left.
        together = [first]
        for one in calls[1:_READERS]:
            if one.effect != "read" or cancelled(one.key):
                break
            together.append(one)
        return Run(tuple(together))
    if first.claimed and first.effect != "idempotent_write":
        return Settle(
            first, Outcome.UNCERTAIN, "it was under way when its runner died; whether it happened is not known"
        )
    return Run((first,))


def pause(idle_s: float) -> float:
    """Seconds until the next look: a two-hundredth of the time since the last call, so that waiting costs no CPU."""
    return min(max(idle_s / _PATIENCE, _FASTEST_S), _SLOWEST_S)


class Hands:
    """One session's tool calls, executed until nobody asks any more."""

    def __init__(self, mailbox: RunnerMailbox, workspace: str, clock: Clock) -> None:
        self._mailbox = mailbox
        self._workspace = workspace
        self._clock = clock
        self._stop_beating = threading.Event()
        self._end = end_namespace if os.getpid() == 1 else end_group

    def serve(self, idle_exit_s: float) -> None:
        """Return once no call came for `idle_exit_s`; raise MailboxError when the mailbox cannot be used any more."""
        heart = threading.Thread(target=self._beat, daemon=True)
        heart.start()
        try:
            self._poll(idle_exit_s)
        finally:
            self._stop_beating.set()
            heart.join()

    def _poll(self, idle_exit_s: float) -> None:
        seen = b""
        active_at = self._clock.monotonic()
        while (idle := self._clock.monotonic() - active_at) < idle_exit_s:
            version = self._mailbox.inbound_version()
            if version != seen:
                seen = version
                if self._work_off():
                    active_at = self._clock.monotonic()
            self._clock.sleep(pause(idle))

    def _work_off(self) -> bool:
        """Execute what is open; whether anything was."""
        worked = False
        while calls := self._mailbox.open_calls():
            worked = True
            match next_step(calls, self._mailbox.cancelled):
                case Settle(one, outcome, text):
                    self._mailbox.finish(one, outcome, text)
                case Run(together):
                    # A read needs no claim: whoever finds it without a result runs it again.
                    if together[0].effect != "read":
                        self._mailbox.claim(together)
                    self._run(together)
        return worked

    def _run(self, calls: Sequence[Call]) -> None:
        if len(calls) == 1:
            self._act(calls[0])
            return
        readers = [threading.Thread(target=self._act, args=(one,)) for one in calls]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()

    def _act(self, one: Call) -> None:
        try:
            acted = self._acted(one)
        except Failure as failure:
            acted = failed(str(failure))
        except OSError as error:
            acted = failed(f"{error.filename or one.name}: {error.strerror}")
        except MailboxError:
            raise
        except Exception as error:  # noqa: BLE001 - the supervisor of one call: no call may end the runner of the others
            acted = failed(f"{one.name} broke: {type(error).__name__}: {error}")
        self._mailbox.finish(one, acted.outcome, acted.text, truncated=acted.truncated)

    def _acted(self, one: Call) -> Acted:
        deadline = self._clock.monotonic() + one.timeout_s
        match one.name:
            case "read_file":
                return read_file(one.arguments, self._workspace)
            case "list_dir":
                return list_dir(one.arguments, self._workspace)
            case "write_file":
                return write_file(one.arguments, self._workspace)
            case "search":
                reason = self._reason_to_stop(one, deadline)
                return search(one.arguments, self._workspace, lambda: reason() is not None)
            case "shell":
                return shell(one.arguments, self._reason_to_stop(one, deadline), self._end)
            case _:
                raise Failure(
                    f"no tool named {one.name!r} here; there are read_file, list_dir, search, write_file, shell"
                )

    def _reason_to_stop(self, one: Call, deadline: float) -> Callable[[], str | None]:
        # Nothing is seen yet: it may have been cancelled since this runner decided to begin it.
        seen = b""

        def reason() -> str | None:
            nonlocal seen
            if self._clock.monotonic() > deadline:
                return f"stopped: it took longer than {one.timeout_s:g} s"
            version = self._mailbox.inbound_version()
            if version != seen and self._mailbox.cancelled(one.key):
                return "stopped: it was cancelled"
            seen = version
            return None

        return reason

    def _beat(self) -> None:
        while True:
            self._mailbox.beat()
            if self._stop_beating.wait(_BEAT_S):
                return


def _opened(session: str, clock: Clock) -> RunnerMailbox:
    """The mailbox, once the runner before this one is quite dead."""
    deadline = clock.monotonic() + _PREDECESSOR_S
    while True:
        try:
            return RunnerMailbox(session, clock.now)
        except MailboxUnavailable:
            if clock.monotonic() > deadline:
                raise
            clock.sleep(_FASTEST_S)


def main() -> int:
    """Serve the session that the one argument, a JSON object, names; its exit codes stand in docs/mailbox.md."""
    given = json.loads(sys.argv[1])
    clock = Clock(lambda: time.time_ns() // 1000, time.monotonic, time.sleep)  # noqa: TID251 - the runner's own clock
    limits.apply(given["limits"])
    threading.stack_size(_THREAD_STACK)
    os.chdir(given["workspace"])
    try:
        mailbox = _opened(given["session"], clock)
        mailbox.recover()
        Hands(mailbox, given["workspace"], clock).serve(given["idle_exit_s"])
        mailbox.close()
    except MailboxCorrupt as error:
        sys.stderr.write(f"{error}\n")
        return 4
    except MailboxError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    return 0
