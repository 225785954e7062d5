"""However host and runner interleave, each row comes after all rows committed before it, and no key doubles."""

import sqlite3
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from typing_extensions import override

from rucher.mailbox.host import HostMailbox, create
from rucher.mailbox.rows import Kind, Outcome, storable
from rucher.mailbox.runner import RunnerMailbox
from rucher.mailbox.schema import OUTBOUND

KEYS = st.sampled_from(["a", "b", "c", "d"])
BODY = {"name": "read_file", "arguments": {}, "effect": "read", "timeout_s": 1}


def seqs_of_the_runner(session: Path) -> list[int]:
    connection = sqlite3.connect(f"file:{session / OUTBOUND}?mode=ro", uri=True)
    rows = connection.execute("SELECT seq FROM outbound ORDER BY seq").fetchall()
    connection.close()
    return [seq for (seq,) in rows]


class Mailbox(RuleBasedStateMachine):
    """Two real sides on two real files, each of which may be replaced at any time; the model is what was said."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.session = Path(self.folder.name) / "s"
        create(self.session, "s")
        self.host = HostMailbox(self.session)
        self.runner = self.new_runner()
        self.committed: list[int] = []
        self.asked: dict[str, int] = {}
        self.results: dict[str, str] = {}
        self.failed: set[str] = set()

    def new_runner(self) -> RunnerMailbox:
        runner = RunnerMailbox(str(self.session), lambda: 1)
        runner.recover()
        return runner

    def said(self, seq: int) -> None:
        assert not self.committed or seq > max(self.committed)
        self.committed.append(seq)

    @rule(key=KEYS)
    def put(self, key: str) -> None:
        seq = self.host.put(Kind.TOOL_CALL, key, BODY, 1)
        if key in self.asked:
            assert seq == self.asked[key]
            self.failed.discard(key)
        else:
            assert seq % 2 == 0
            self.said(seq)
            self.asked[key] = seq

    @precondition(lambda self: self.runner.open_calls())
    @rule(text=st.text(max_size=5))
    def claim_and_finish(self, text: str) -> None:
        call = self.runner.open_calls()[0]
        before = max(self.committed)
        self.runner.claim([call])
        self.runner.finish(call, Outcome.OK, text)
        rows = seqs_of_the_runner(self.session)
        for seq in rows:
            assert seq % 2 == 1
            if seq > before:
                self.said(seq)
        assert set(rows) <= set(self.committed)
        self.results[call.key] = storable(text)

    @precondition(lambda self: self.runner.open_calls())
    @rule()
    def give_up(self) -> None:
        call = self.runner.open_calls()[-1]
        assert self.host.give_up(call.key)
        self.failed.add(call.key)

    @rule()
    def replace_the_runner(self) -> None:
        self.runner.close()
        self.runner = self.new_runner()

    @rule()
    def replace_the_host(self) -> None:
        self.host.close()
        self.host = HostMailbox(self.session)

    @invariant()
    def results_are_kept_and_open_calls_are_the_rest_in_order(self) -> None:
        for key in self.asked:
            result = self.host.result(key)
            assert (result.text if result else None) == self.results.get(key)
        open_calls = [key for key in self.asked if key not in self.results and key not in self.failed]
        assert [call.key for call in self.runner.open_calls()] == open_calls

    @override
    def teardown(self) -> None:
        self.runner.close()
        self.host.close()
        self.folder.cleanup()


TestMailboxOrder = Mailbox.TestCase
TestMailboxOrder.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
