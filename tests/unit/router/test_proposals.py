"""Laws of proposals: they wait for the owner, and change the file whole, once, and only where their base is in force."""

import asyncio
from pathlib import Path

import pytest

from rucher.protocol.errors import BadInput
from rucher.protocol.events import Event
from rucher.router.proposals import Proposals, difference, proposals, versions
from rucher.router.records import applied
from rucher.router.reload import RulesFile
from tests.fakes.clock import ManualClock
from tests.fakes.journal import MemoryJournal
from tests.unit.router.builders import HEAD

KNOWN = {"agent:scribe", "agent:other"}
BETTER = HEAD + '# b\u00e9\n[[rule]]\nid = "a"\nmatch = { source = "x" }\nto = "agent:other"\n'


class Desk:
    """Proposals over a journal in memory and a real file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rules.toml"
        self.path.write_text(HEAD)
        self.path.chmod(0o640)
        self.file = RulesFile(self.path, lambda: KNOWN)
        self.journal = MemoryJournal()
        self.desk = Proposals(self.journal, ManualClock(), self.file, "home")

    def propose(self, text: str = BETTER, key: str = "k") -> Event:
        return asyncio.run(self.desk.propose(text, "agent:cos", "better", key))

    def apply(self, proposal: str) -> None:
        asyncio.run(self.desk.apply(proposal, "owner:ana"))

    def states(self) -> list[str]:
        return [one.state for one in proposals(self.journal.events)]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_proposal_waits_and_leaves_the_file_as_it_is(desk: Desk) -> None:
    noted = desk.propose()
    assert desk.path.read_text() == HEAD
    (one,) = proposals(desk.journal.events)
    assert (one.id, one.by, one.why, one.base, one.text, one.state) == (
        noted.id, "agent:cos", "better", desk.file.current.version, BETTER, "open",
    )  # fmt: skip
    assert one.diff.startswith("--- rules in force\n+++ proposed\n@@ ")
    assert "\n+# b\u00e9\n" in one.diff


def test_the_same_proposal_twice_is_one(desk: Desk) -> None:
    assert desk.propose().id == desk.propose().id
    assert desk.propose(key="other").id != desk.propose().id


def test_an_applied_proposal_is_in_the_file_byte_for_byte_and_is_taken_from_there(desk: Desk) -> None:
    desk.apply(desk.propose().id)
    assert desk.path.read_bytes() == BETTER.encode()
    assert desk.path.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in desk.path.parent.iterdir()] == ["rules.toml"]
    desk.file.check()
    assert [rule.id for rule in desk.file.current.rules] == ["a"]
    assert desk.states() == ["applied"]


def test_a_proposal_is_decided_once(desk: Desk) -> None:
    noted = desk.propose()
    asyncio.run(desk.desk.refuse(noted.id, "owner:ana", "no"))
    assert desk.states() == ["refused"]
    with pytest.raises(BadInput, match="was refused already"):
        desk.apply(noted.id)
    assert desk.path.read_text() == HEAD


def test_a_proposal_for_rules_that_are_no_longer_in_force_is_not_applied(desk: Desk) -> None:
    noted = desk.propose()
    desk.path.write_text(HEAD + "# mine\n")
    with pytest.raises(BadInput, match="holds something else than the rules in force"):
        desk.apply(noted.id)
    desk.file.check()
    with pytest.raises(BadInput, match="no longer in force"):
        desk.apply(noted.id)
    assert desk.path.read_text() == HEAD + "# mine\n"
    assert desk.states() == ["open"]


def test_a_proposal_whose_destination_went_away_meanwhile_is_not_applied(desk: Desk) -> None:
    noted = desk.propose()
    desk.file._destinations = lambda: {"agent:scribe"}  # noqa: SLF001 - as when an agent's file is removed
    with pytest.raises(BadInput, match="there is no agent:other"):
        desk.apply(noted.id)
    assert desk.path.read_text() == HEAD


def test_an_apply_that_was_cut_off_after_the_file_was_written_ends_when_it_is_asked_for_again(desk: Desk) -> None:
    noted = desk.propose()
    desk.path.write_bytes(BETTER.encode())
    desk.file.check()
    desk.apply(noted.id)
    assert desk.states() == ["applied"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD, "change something"),
        ("default = 3", "rules.toml:1:1: default must be text"),
        (HEAD.replace("scribe", "nobody"), "there is no agent:nobody"),
        (HEAD + "# " + "x" * 600_000, "too long to be kept"),
    ],
)
def test_what_cannot_be_the_rules_cannot_be_proposed(desk: Desk, text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        desk.propose(text)
    assert desk.journal.events == []


def test_an_unknown_proposal_is_refused(desk: Desk) -> None:
    with pytest.raises(BadInput, match="there is no proposal"):
        desk.apply("X")


def test_the_history_tells_every_version_with_its_text_unless_that_is_too_long(desk: Desk) -> None:
    first = desk.file.current
    desk.path.write_text(HEAD + "# " + "x" * 600_000)
    desk.file.check()
    asyncio.run(desk.journal.append(applied("home", first, "start", 1), applied("home", desk.file.current, "2", 2)))
    old, new = versions(desk.journal.events)
    assert (old.version, old.text, old.rules, old.path) == (first.version, HEAD, 0, str(desk.path))
    assert (new.version, new.text) == (desk.file.current.version, None)


def test_a_difference_says_where_a_last_line_has_no_end() -> None:
    assert difference("a\n", "a", ("x", "y")).splitlines()[-3:] == ["-a", "+a", "\\ No newline at end of file"]
    assert difference("a\n", "a\n", ("x", "y")) == ""
