"""Changes of the rules that somebody proposes, and that the owner applies or refuses; and the history of the rules.

What is asked of a history is a pure function of its events (`rules_trace`). `Proposals` is called by the interface and by what
records the proposals of agents.
"""

import difflib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rucher.protocol.errors import BadInput
from rucher.protocol.events import Draft, Event
from rucher.protocol.livefile import replace_file
from rucher.protocol.ports import Clock, Journal
from rucher.router.records import about_rules, fits, rules_trace
from rucher.router.reload import RulesFile
from rucher.router.rules import Rules

APPLIED, REFUSED, OPEN = "applied", "refused", "open"

_KEPT_LINES = 3


@dataclass(frozen=True, slots=True)
class Version:
    """A text of the rules that was in force from `at` (microseconds since the epoch) on; `text` is None if it was too long."""

    version: str
    at: int
    seq: int
    rules: int
    path: str
    text: str | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A text of the rules that somebody wants instead of the version `base`; `state` is open, applied or refused."""

    id: str
    at: int
    by: str
    why: str
    base: str
    text: str
    diff: str
    state: str = OPEN


def versions(history: Iterable[Event]) -> Iterator[Version]:
    """Every time at which rules came into force, in order."""
    for event in history:
        if event.type == "rules.applied":
            body = event.body
            yield Version(
                body["version"], event.recorded_at, event.seq, body["rules"], body.get("path", ""), body.get("text")
            )


def proposals(history: Iterable[Event]) -> Sequence[Proposal]:
    """Every proposal, in order, with what became of it."""
    told = list(history)
    verdicts = {event.body["proposal"]: event.body["verdict"] for event in told if event.type == "rules.decided"}
    return [
        Proposal(
            event.id, event.recorded_at, event.body["by"], event.body["why"], event.body["base"], event.body["text"],
            event.body["diff"], verdicts.get(event.id, OPEN),
        )
        for event in told
        if event.type == "rules.proposed"
    ]  # fmt: skip


def difference(before: str, after: str, names: tuple[str, str]) -> str:
    """A unified diff, empty when nothing differs."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), *names, n=_KEPT_LINES
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def proposed(tenant: str, base: Rules, text: str, told: tuple[str, str, str], now: int) -> Draft:
    """The proposal to put `text` in the place of `base`; `told` is who proposes, why, and a key that makes it once.

    Raises BadInput for a text that changes nothing or is too long to be kept. That it can be used is for the caller to check.
    """
    by, why, key = told
    diff = difference(base.text, text, ("rules in force", "proposed"))
    if not diff:
        raise BadInput("the proposed rules are those in force; change something in them first")
    if not fits(text + diff):
        raise BadInput("the proposed rules are too long to be kept as a proposal; edit rules.toml instead")
    body = {"base": base.version, "text": text, "diff": diff, "why": why, "by": by}
    return about_rules(tenant, "rules.proposed", f"{by}:{key}", body, now)


class Proposals:
    """Takes proposals in, and the owner's word about them."""

    def __init__(self, journal: Journal, clock: Clock, file: RulesFile, tenant: str) -> None:
        self._journal = journal
        self._clock = clock
        self._file = file
        self._tenant = tenant

    async def propose(self, text: str, by: str, why: str, key: str) -> Event:
        """Note a proposal; the same `by` and `key` is the same one. Raises BadInput when the rules could not be used."""
        (appended,) = await self._journal.append(self.draft(text, by, why, key))
        return appended.event

    def draft(self, text: str, by: str, why: str, key: str) -> Draft:
        """The event of a proposal, for who commits it with something else; raises BadInput as `propose` does."""
        self._file.read(text.encode())
        return proposed(self._tenant, self._file.current, text, (by, why, key), self._clock.now())

    async def apply(self, proposal_id: str, by: str) -> Proposal:
        """Put the proposed text in the rules file, from which it is taken as any edit is.

        Raises BadInput, with nothing changed, when the rules it was made for are no longer in force, when the file holds
        something else, or when the text cannot be used any more.
        """
        found = await self._open(proposal_id)
        raw = found.text.encode()
        on_disk = self._file.path.read_bytes()
        if on_disk != raw:
            self._demand_base(found, on_disk)
            self._file.read(raw)
            replace_file(self._file.path, raw)
        await self._decide(found, APPLIED, by, "")
        return found

    async def refuse(self, proposal_id: str, by: str, reason: str) -> Proposal:
        """Note that the owner does not want it."""
        found = await self._open(proposal_id)
        await self._decide(found, REFUSED, by, reason)
        return found

    async def _open(self, proposal_id: str) -> Proposal:
        history = await self._journal.trace(rules_trace(self._tenant))
        found = next((one for one in proposals(history) if one.id == proposal_id), None)
        if found is None:
            raise BadInput(f"there is no proposal {proposal_id}; see `rucher rules proposals`")
        if found.state != OPEN:
            raise BadInput(f"proposal {proposal_id} was {found.state} already")
        return found

    def _demand_base(self, found: Proposal, on_disk: bytes) -> None:
        if found.base != self._file.current.version:
            raise BadInput(
                f"proposal {found.id} was made for rules that are no longer in force: propose it anew on top of those that are"
            )
        if hashlib.sha256(on_disk).hexdigest() != found.base:
            raise BadInput(
                f"{self._file.path} holds something else than the rules in force: see `rucher rules diff`, then put it right"
            )

    async def _decide(self, found: Proposal, verdict: str, by: str, reason: str) -> None:
        body = {"proposal": found.id, "verdict": verdict, "by": by, "reason": reason}
        await self._journal.append(about_rules(self._tenant, "rules.decided", found.id, body, self._clock.now()))
