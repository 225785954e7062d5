"""Laws of `rucher run`: an order is one event with its author, and says what happens next; a wrong one is one line, exit 2."""

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rucher.cli.main import cli
from rucher.control.api import MessageIn, Services, build_app
from rucher.control.bells import Bells
from rucher.control.orders import run_orders
from rucher.control.rulebook import rule_proposals
from rucher.daemon.lock import sole_daemon
from rucher.daemon.rulebook import destinations
from rucher.daemon.serve import listen, serve
from rucher.instance.layout import Instance
from rucher.instance.secrets import instance_token
from rucher.journal.store import JournalStore, open_store
from rucher.kernel.orders import Orders
from rucher.kernel.run import Run
from rucher.kernel.steps import RunSteps
from rucher.kernel.waits import Item, approval, question
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import BadInput, Suspended, Uncertain
from rucher.protocol.ports import Appended, StepKind
from rucher.router.proposals import Proposals
from rucher.router.reload import RulesFile
from tests.unit.cli.recorded import Ticking, asked, begin, giving, hop_of, make_instance, rucher, spec_of

WRITE = {"tool": "write_file", "arguments": {"path": "a.txt", "text": "x" * 500}}
Tale = Callable[[Run], Awaitable[None]]


async def works(run: Run) -> None:
    """A run that wrote a file and ran a command, and goes on."""
    steps = RunSteps(run)
    await steps.perform(StepKind.MODEL_CALL, Effect.MODEL_CALL, {"messages": 1}, giving({"text": "", "calls": []}))
    await steps.perform(StepKind.TOOL_CALL, Effect.IDEMPOTENT_WRITE, WRITE, giving({"ok": True, "text": ""}))
    await steps.perform(StepKind.TOOL_CALL, Effect.NON_IDEMPOTENT, {"tool": "shell"}, giving({"ok": True, "text": ""}))


async def ends(run: Run) -> None:
    await works(run)
    await run.finish("done", "")


def waits_for(*items: Item) -> Tale:
    async def tale(run: Run) -> None:
        with pytest.raises(Suspended):
            await RunSteps(run).wait(StepKind.WAIT_HUMAN, {"ask": 1}, "may I?", items)

    return tale


async def uncertain(run: Run) -> None:
    async def interrupted(_key: str) -> Mapping[str, Any]:
        raise Uncertain("it was interrupted.")

    with pytest.raises(Suspended):
        await RunSteps(run).perform(StepKind.TOOL_CALL, Effect.NON_IDEMPOTENT, {"tool": "shell"}, interrupted)


async def unfit(run: Run) -> None:
    run.unfit = "engine 1, now 2"
    with pytest.raises(Suspended):
        await run.demand_fit()


class Place:
    """An instance whose interface answers, with nobody who works on its runs, and one run in its journal."""

    def __init__(self, instance: Instance, run_id: str) -> None:
        self.instance = instance
        self.run_id = run_id

    def run(self, order: str, *words: str) -> Result:
        return rucher(self.instance, "run", order, self.run_id[:12].lower(), *words)

    def done(self, order: str, *words: str) -> str:
        """The one line that the order answers."""
        result = self.run(order, *words)
        assert result.exit_code == 0, (result.output, result.exception)
        (line,) = result.output.splitlines()
        return line

    def refused(self, order: str, *words: str) -> str:
        """The one line with which the order is refused."""
        result = self.run(order, *words)
        assert isinstance(result.exception, BadInput), (result.output, result.exception)
        assert "\n" not in str(result.exception)
        return str(result.exception)

    def events(self, kind: str) -> list[dict[str, Any]]:
        listed = rucher(self.instance, "events", "--json", "--subject", f"ev.*.rucher.{kind}").output
        return list(json.loads(listed))


@contextmanager
def place(folder: Path, tale: Tale) -> Iterator[Place]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    instance = make_instance(folder / "hive", port)
    ready, loop, begun = threading.Event(), asyncio.new_event_loop(), []

    async def serving() -> None:
        clock = Ticking()
        async with open_store(instance.journal, clock) as store:
            draft = asked(clock, "tale", "tell")
            spec = spec_of(await hop_of(store, clock, draft, "default", "agent:scribe"), draft)
            begun.append(spec)
            await tale(await begin(store, clock, instance, spec))
            await _answering(store, instance, port, ready)

    thread = threading.Thread(target=loop.run_until_complete, args=(_until_cancelled(serving()),))
    thread.start()
    try:
        assert ready.wait(20)
        with sole_daemon(instance.lock):
            yield Place(instance, begun[0].run_id)
    finally:
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
        thread.join()
        loop.close()


async def _until_cancelled(work: Awaitable[None]) -> None:
    try:
        await work
    except asyncio.CancelledError:
        return


async def _answering(store: JournalStore, instance: Instance, port: int, ready: threading.Event) -> None:
    async def nothing(_message: MessageIn) -> Appended:
        raise BadInput("no messages here")

    async def well(_session: str) -> str:
        return ""

    clock = SystemClock()
    token = instance_token(instance.token, SystemEntropy())
    rules = RulesFile(instance.rules, lambda: destinations(["scribe", "talker"]))
    proposals = Proposals(store, clock, rules, "local")
    with listen(port, "here") as listener:
        services = Services(
            instance="hive", token=token, journal=store, bells=Bells(store, clock), accept=nothing,
            calls=[run_orders(Orders(store, clock, "owner:ana")), rule_proposals(proposals, "owner:ana")], trouble=well,
        )  # fmt: skip
        app = build_app(services)
        ready.set()
        await serve(app, listener)


def test_each_order_is_one_event_of_its_author_and_says_what_happens_next(tmp_path: Path) -> None:
    with place(tmp_path, works) as here:
        run = here.run_id
        assert here.done("pause") == f"run {run} stops before its next step; let it go on with: rucher run resume {run}"
        assert "is paused already" in here.refused("pause")
        assert here.done("resume") == f"run {run} goes on; see it: rucher runs {run}"
        assert f"run {run} is not paused; it is running" in here.refused("resume")
        assert "reads this before its next turn" in here.done("steer", "be brief")
        assert here.done("steer", "be brief")
        assert f"run {run} ends; see it end" in here.done("cancel", "--reason", "enough")
        assert "is being cancelled" in here.refused("steer", "too late")
        kinds = ("run.paused", "run.resumed", "run.steered", "run.cancelling")
        told = [[(event["principal"], event["body"]) for event in here.events(kind)] for kind in kinds]
        assert told == [
            [("owner:ana", {"run": run})],
            [("owner:ana", {"run": run})],
            [("owner:ana", {"run": run, "text": "be brief"})] * 2,
            [("owner:ana", {"run": run, "reason": "enough"})],
        ]


def test_a_run_that_has_ended_takes_no_orders_but_a_fork(tmp_path: Path) -> None:
    with place(tmp_path, ends) as here:
        for order in (("pause",), ("cancel",), ("steer", "x")):
            assert "has ended (done); begin a new one from one of its steps with `rucher run fork`" in here.refused(
                *order
            )
        assert "has ended (done)" in here.refused("resume")
        for words in (("answer", "1", "x"), ("answer", "1", "--approve"), ("resolve", "1", "ran"), ("migrate",)):
            said = here.refused(*words)
            assert "does not wait" in said
            assert "it is done" in said


def test_a_fork_shows_what_it_may_repeat_and_asks_first(tmp_path: Path) -> None:
    with place(tmp_path, ends) as here:
        result = here.run("fork", "2")
        assert isinstance(result.exception, BadInput)
        assert "may repeat 2 side effects; look at what is shown, then say --yes" in str(result.exception)
        lines = result.output.splitlines()
        assert lines[0] == "the new run may repeat:"
        assert lines[1].startswith('  step 2  idempotent_write  write_file {"path": "a.txt", "text": "xxx')
        assert (len(lines[1]) < 180, lines[2]) == (True, "  step 3  non_idempotent  shell {}")
        assert len(json.loads(rucher(here.instance, "runs", "--json").output)) == 1

        told = here.run("fork", "2", "--json")
        assert isinstance(told.exception, BadInput)
        assert [repeat["step"] for repeat in json.loads(told.stdout)["repeats"]] == ["2", "3"]

        forked = json.loads(here.run("fork", "2", "--yes", "--steer", "another way", "--json").stdout)
        assert (forked["forked"], forked["kept"], len(forked["repeats"])) == (True, 1, 2)
        new = json.loads(rucher(here.instance, "runs", forked["run_id"], "--json").output)
        assert new["forked"] == {"run": here.run_id, "step": "2"}
        assert [event["body"]["text"] for event in here.events("run.steered")] == ["another way"]
        assert forked["run_id"] not in here.run("fork", "2", "--yes").output


def test_a_fork_that_repeats_nothing_needs_no_yes(tmp_path: Path) -> None:
    async def thinks(run: Run) -> None:
        steps = RunSteps(run)
        for _ in range(2):
            await steps.note(StepKind.VERDICT, {"n": 1}, {"text": "fine"})

    with place(tmp_path, thinks) as here:
        assert "begins with 1 step: rucher runs " in here.done("fork", "2")
        assert "has no step '9'; its steps are 1, 2" in here.refused("fork", "9")


def test_on_a_terminal_a_fork_is_begun_only_when_its_owner_says_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place(tmp_path, ends) as here:
        monkeypatch.setattr("rucher.cli.run.at_a_terminal", lambda: True)
        words = ["--dir", str(here.instance.root), "run", "fork", here.run_id, "2"]
        no = CliRunner().invoke(cli, words, input="n\n")
        assert (no.exit_code, "nothing was begun" in no.output) == (1, True)
        yes = CliRunner().invoke(cli, words, input="y\n")
        assert (yes.exit_code, "begins with 1 step" in yes.output) == (0, True)
        assert len(json.loads(rucher(here.instance, "runs", "--json").output)) == 2


def test_a_question_is_answered_once_and_an_approval_is_decided(tmp_path: Path) -> None:
    with place(tmp_path, waits_for(approval("a"), question("q"))) as here:
        assert "there is nothing to say" in here.refused("answer", "1", " ")
        assert "asks nothing at step '7'; it waits at step 1" in here.refused("answer", "7", "x")
        assert here.done("answer", "1", "blue").startswith("noted; the run goes on")
        assert here.done("answer", "1", "blue")
        assert "decided already, by owner:ana; nothing was changed" in here.refused("answer", "1", "red")
        assert here.done("answer", "1", "--refuse", "not today").startswith("refused; the run goes on")
        assert "decided already" in here.refused("answer", "1", "--approve")
        outcomes = [event["body"]["outcome"] for event in here.events("signal.sent")]
        assert outcomes == [{"text": "blue"}, {"approved": False, "reason": "not today"}]


@pytest.mark.parametrize(
    ("tale", "order", "command"),
    [
        (waits_for(approval("a")), ("answer", "1", "yes"), "rucher run answer {run} 1 --approve|--refuse"),
        (waits_for(question("q")), ("answer", "1", "--approve"), "rucher run answer {run} 1 TEXT"),
        (waits_for(question("q")), ("resolve", "1", "ran"), "rucher run answer {run} 1 TEXT"),
        (waits_for(question("q")), ("migrate",), "rucher run answer {run} 1 TEXT"),
        (uncertain, ("answer", "1", "yes"), "rucher run resolve {run} 1 ran|not-run|failed"),
        (unfit, ("answer", "1", "yes"), "rucher run migrate {run}"),
    ],
)
def test_who_answers_something_else_than_was_asked_is_told_the_command(
    tmp_path: Path, tale: Tale, order: tuple[str, ...], command: str
) -> None:
    with place(tmp_path, tale) as here:
        assert command.format(run=here.run_id) in here.refused(*order)
        assert here.events("signal.sent") == []


def test_what_is_uncertain_is_resolved_and_what_is_old_is_migrated(tmp_path: Path) -> None:
    with place(tmp_path / "a", uncertain) as here:
        assert here.done("resolve", "1", "not-run").startswith("noted; the run goes on")
        assert "decided already" in here.refused("resolve", "1", "ran")
    with place(tmp_path / "b", unfit) as here:
        assert here.done("migrate") == f"run {here.run_id} goes on with this version: rucher runs {here.run_id}"


def test_the_same_order_under_the_same_key_is_one_order_also_when_it_would_be_refused_now(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")

    async def ordering() -> list[str]:
        clock = Ticking()
        async with open_store(instance.journal, clock) as store:
            draft = asked(clock, "tale", "tell")
            spec = spec_of(await hop_of(store, clock, draft, "default", "agent:scribe"), draft)
            run, orders = await begin(store, clock, instance, spec), Orders(store, clock, "owner:ana")
            for _ in range(2):
                await orders.pause(spec.run_id, "P")
            for _ in range(2):
                await orders.resume(spec.run_id, "R")
            for _ in range(2):
                await orders.cancel(spec.run_id, "C")
            await run.finish("cancelled", "")
            await orders.cancel(spec.run_id, "C")
            with pytest.raises(BadInput):
                await orders.cancel(spec.run_id, "D")
            return [event.type for event in await store.read(0, 100, "ev.*.rucher.>") if event.run is None]

    kinds = asyncio.run(ordering())
    assert [kind for kind in kinds if kind.startswith("run.")] == ["run.paused", "run.resumed", "run.cancelling"]


def test_a_fork_has_the_ceilings_of_the_run_that_it_comes_from(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "hive")

    async def forking() -> list[tuple[str, int | None, int]]:
        clock = Ticking()
        async with open_store(instance.journal, clock) as store:
            draft = asked(clock, "tale", "tell")
            hop = await hop_of(store, clock, draft, "default", "agent:scribe")
            plain = spec_of(hop, draft)
            limits = {"accounts": (plain.run_id,), "ceilings": {plain.run_id: {"turns": 7}}}
            await works(await begin(store, clock, instance, spec_of(hop, draft, **limits)))
            fork = await Orders(store, clock, "owner:ana").fork(plain.run_id, "2", "K")
            rows = await store.rows("run.budget", fork.run_id)
            return [(row["measure"], row["ceiling"], row["spent"]) for row in rows if row["ceiling"] is not None]

    assert asyncio.run(forking()) == [("turns", 7, 0)]
