"""Laws of the spans that leave: a trace is a tree of them, each exactly once, and a receiver in trouble troubles nobody."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes
from typing_extensions import override

from rucher.daemon import genai
from rucher.daemon.otlp import Receiver as Sender
from rucher.daemon.otlp import open_client
from rucher.daemon.spans import Span, Telling
from rucher.daemon.telemetry import LONGEST_WAIT_S, Place, SpanMaker, Telemetry
from rucher.journal.store import JournalStore, open_store
from rucher.protocol.events import control_event
from rucher.protocol.ids import decode
from tests.fakes.clock import ManualClock, until
from tests.fakes.drafts import NOW
from tests.fakes.otlp_receiver import Receiver, attributes, receiving
from tests.unit.cli.recorded import ANSWER, Story, asked, record

CONTENT = Telling(content=True, provider="scripted")
WITHOUT = Telling(provider="scripted")
NAMES = [
    "receive cli", "route agent:scribe", "chat scripted", "execute_tool search", "chat scripted", "emit answer",
    "invoke_agent scribe", "route surface:cli", "deliver cli",
]  # fmt: skip


class Eager(ManualClock):
    """A clock on which a sleep is over as soon as others had their turn."""

    @override
    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Watched:
    """A journal, and what tells of it."""

    store: JournalStore
    telemetry: Telemetry
    clock: Eager
    path: Path

    @property
    def place(self) -> int:
        """How far it was told."""
        try:
            return int(self.path.read_text())
        except (FileNotFoundError, ValueError):
            return -1

    async def say(self, key: str) -> None:
        """One more message."""
        await self.store.append(asked(self.clock, key, "more"))

    async def tell(self) -> None:
        """Until all that is in the journal was told."""
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self.telemetry.run())
            await until(lambda: self.place == self.store.head)
            work.cancel()


Scene = Callable[[Watched], Awaitable[None]]


def told(
    story: Story, server: Receiver, scene: Scene = Watched.tell, telling: Telling = WITHOUT, **headers: str
) -> None:
    """Let telemetry follow the story's journal, from its place on, as long as the scene takes."""

    async def telling_it() -> None:
        clock, path = Eager(), story.instance.state / "otel.place"
        async with open_store(story.instance.journal, clock) as store, open_client() as client:
            receiver = Sender(server.endpoint, headers, "hive", client)
            await scene(Watched(store, Telemetry(store, clock, receiver, Place(path), telling), clock, path))

    asyncio.run(telling_it())


@pytest.fixture
def story(tmp_path: Path) -> Story:
    made = record(tmp_path / "hive")
    (made.instance.state / "otel.place").write_text("0\n")
    return made


def test_a_trace_is_a_tree_of_spans_with_its_own_id_and_the_times_of_its_events(story: Story) -> None:
    with receiving() as server:
        told(story, server)
    assert server.faults == []
    assert sorted(span.name for span in server.spans) == sorted(NAMES)
    assert {span.trace_id for span in server.spans} == {decode(story.trace_id).to_bytes(16, "big")}
    by_id = {span.span_id: span for span in server.spans}
    assert len(by_id) == len(server.spans)
    parents = {span.name: by_id[span.parent_span_id].name if span.parent_span_id else "" for span in server.spans}
    assert parents == {
        "receive cli": "",
        "route agent:scribe": "receive cli",
        "invoke_agent scribe": "route agent:scribe",
        "chat scripted": "invoke_agent scribe",
        "execute_tool search": "invoke_agent scribe",
        "emit answer": "invoke_agent scribe",
        "route surface:cli": "emit answer",
        "deliver cli": "route surface:cli",
    }
    run = server.named("invoke_agent scribe")
    assert run.end_time_unix_nano - run.start_time_unix_nano == 11_000_000
    assert server.resources[0]["service.name"] == "rucher"


def test_spans_bear_the_conventions_names_for_generative_ai(story: Story) -> None:
    with receiving() as server:
        told(story, server)
    run = attributes(server.named("invoke_agent scribe").attributes)
    assert run[genai.OPERATION] == "invoke_agent"
    assert (run[genai.AGENT], run[genai.CONVERSATION], run[genai.PROVIDER]) == ("scribe", "S1", "scripted")
    chat = attributes(next(span for span in server.spans if span.name == "chat scripted").attributes)
    assert (chat[genai.OPERATION], chat[genai.MODEL], chat[genai.INPUT_TOKENS]) == ("chat", "scripted", 400)
    assert chat[genai.FINISH_REASONS] == ["tool_calls"]
    tool = attributes(server.named("execute_tool search").attributes)
    assert (tool[genai.TOOL], tool[genai.CALL_ID], tool[genai.OPERATION]) == ("search", "c1", "execute_tool")


def test_every_name_is_one_of_the_published_conventions() -> None:
    published = {value for module in (gen_ai_attributes, error_attributes) for value in vars(module).values()
                 if isinstance(value, str)}  # fmt: skip
    ours = {value for name, value in vars(genai).items() if name.isupper() and isinstance(value, str)}
    assert {name for name in ours if "." in name} <= published
    operations = {one.value for one in gen_ai_attributes.GenAiOperationNameValues}
    assert {name for name in ours if "." not in name} <= operations


def test_nothing_that_anybody_wrote_leaves_unless_it_is_asked_for(story: Story) -> None:
    with receiving() as server:
        told(story, server)
    said = str([attributes(span.attributes) for span in server.spans]) + str([span.status for span in server.spans])
    assert [text for text in (ANSWER, "harbour", "fog", "owner:owner", "main.jsonl") if text in said] == []


def test_with_content_texts_leave_as_the_conventions_write_them(story: Story) -> None:
    with receiving() as server:
        told(story, server, telling=CONTENT)
    assert server.faults == []
    chats = [attributes(span.attributes) for span in server.spans if span.name == "chat scripted"]
    assert ANSWER in chats[1][genai.OUTPUT]
    assert '"type": "tool_call"' in chats[0][genai.OUTPUT]
    tool = attributes(server.named("execute_tool search").attributes)
    assert tool[genai.CALL_ARGUMENTS] == '{"pattern": "harbour"}'
    assert "fog until noon" in tool[genai.CALL_RESULT]
    assert "harbour" in attributes(server.named("invoke_agent scribe").attributes)[genai.INPUT]


def test_whoever_begins_anywhere_in_the_journal_makes_the_same_spans_of_the_rest(story: Story) -> None:
    async def made(store: JournalStore, after: int) -> list[Span]:
        maker = SpanMaker(store, CONTENT)
        return [span for event in await store.read(after, 1000) if (span := await maker.span(event))]

    async def comparing() -> None:
        async with open_store(story.instance.journal, Eager()) as store:
            whole = await made(store, 0)
            assert len(whole) == len(NAMES)
            for after in range(1, store.head):
                assert await made(store, after) == [span for span in whole if span.attributes["rucher.seq"] > after]  # type: ignore[operator]  # a number

    asyncio.run(comparing())


def test_a_restart_goes_on_at_its_place_and_tells_no_span_twice(story: Story) -> None:
    with receiving() as server:
        told(story, server)
        first = len(server.spans)

        async def more(at: Watched) -> None:
            await at.say("later")
            await at.tell()

        told(story, server, more)
    assert [span.name for span in server.spans[first:]] == ["receive cli"]


@pytest.mark.parametrize("spoilt", [None, "", "x", "-5", "99999"])
def test_what_was_before_the_first_start_is_not_told(story: Story, spoilt: str | None) -> None:
    path = story.instance.state / "otel.place"
    path.unlink()
    if spoilt is not None:
        path.write_text(spoilt)

    async def idle(at: Watched) -> None:
        await at.tell()
        await at.say("later")
        await at.tell()

    with receiving() as server:
        told(story, server, idle)
    assert [span.name for span in server.spans] == ["receive cli"]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_while_the_receiver_is_busy_it_is_asked_ever_more_seldom_and_nothing_is_lost(story: Story, status: int) -> None:
    async def patient(at: Watched) -> None:
        await at.tell()
        pauses = at.clock.asked[1:13]
        assert pauses[0] == 7
        assert pauses[1:7] == [2, 4, 8, 16, 32, LONGEST_WAIT_S]
        assert max(pauses) == LONGEST_WAIT_S

    with receiving() as server:
        server.answers = [(status, {"retry-after": "7"}), *([(status, {})] * 11)]
        told(story, server, patient)
    assert sorted(span.name for span in server.spans) == sorted(NAMES)


def test_while_the_receiver_is_away_everything_goes_on_and_what_happened_is_told_later(story: Story) -> None:
    with receiving() as gone:
        port = gone.server_address[1]

    async def away(at: Watched) -> None:
        async with asyncio.TaskGroup() as group:
            work = group.create_task(at.telemetry.run())
            await until(lambda: len(at.clock.asked) > 3)
            await at.say("later")
            assert at.place == 0
            with receiving(port) as server:
                await until(lambda: at.place == at.store.head)
            work.cancel()
        assert len(server.spans) == len(NAMES) + 1

    told(story, gone, away)


@pytest.mark.parametrize("status", [400, 401, 404, 413, 500, 302, 307])
def test_what_is_refused_for_good_is_given_up_and_what_follows_is_told(story: Story, status: int) -> None:
    async def refused(at: Watched) -> None:
        await at.tell()
        await at.say("later")
        await at.tell()

    with receiving() as server:
        server.answers = [(status, {"location": f"{server.endpoint}/v1/traces"})]
        told(story, server, refused)
    assert [span.name for span in server.spans] == ["receive cli"]


def test_spans_that_were_taken_in_part_are_not_sent_again(story: Story) -> None:
    with receiving() as server:
        server.rejects = 3
        told(story, server)
    assert len(server.spans) == len(NAMES)


def test_headers_are_sent_along(story: Story) -> None:
    with receiving() as server:
        told(story, server, authorization="Bearer abc")
    assert server.headers[0]["authorization"] == "Bearer abc"


def test_a_failure_is_an_error_of_its_span(story: Story) -> None:
    async def failing(at: Watched) -> None:
        about = {
            "event": story.message_id, "event_seq": 1, "reason": f"of {ANSWER}", "rule": "r", "principal": "user:cli:ana",
            "room": "cli:main",
        }  # fmt: skip
        for kind in ("route.dropped", "rule.faulted", "route.held"):
            await at.store.append(control_event(
                tenant="local", part="router", kind=kind, key=kind, trace_id=story.trace_id, occurred_at=NOW, body=about,
            ))  # fmt: skip
        await at.tell()

    with receiving() as server:
        told(story, server, failing)
    codes = {name: server.named(name).status.code for name in ("route.dropped", "rule.faulted", "route.held")}
    error, unset = trace_pb2.Status.STATUS_CODE_ERROR, trace_pb2.Status.STATUS_CODE_UNSET
    assert codes == {"route.dropped": unset, "rule.faulted": error, "route.held": unset}
    assert server.named("rule.faulted").status.message == ""
    assert server.named("rule.faulted").parent_span_id == server.named("receive cli").span_id


def test_where_it_is_off_nothing_of_it_is_imported() -> None:
    program = (
        "import sys, rucher.daemon.daemon, rucher.cli.main\n"
        "ours = ('opentelemetry.proto', 'google.protobuf', 'rucher.daemon.otlp')\n"
        "assert not [name for name in sys.modules if name.startswith(ours)]"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
