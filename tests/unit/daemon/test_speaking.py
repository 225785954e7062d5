"""Laws of what agents emit: by whom it came about, where it goes, and what must not be said."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rucher.daemon.emissions import Message, emission, ending, message_of, settled
from rucher.daemon.speaking import MOST_PROPOSED, Speaker, speak, with_addition
from rucher.engine.loop import EMPTY, Outcome
from rucher.protocol.errors import Denied
from rucher.protocol.events import Draft, Event, Trust, committed
from rucher.protocol.replies import awaited, is_reply, unsaid
from tests.fakes.drafts import NOW, run_spec, said

ADA = run_spec("ada", agent="ada", hop="H")
BEA = run_spec("bea", agent="bea", hop="H2")
MESSAGE = Message("E", "T", "owner:ana", "owner", "hello", "telegram:garden", "t1")
RULES = 'default = "agent:ada"\n\n[[rule]]\nid = "r-mine"\n\n[[rule]]\nid = "r-ada"\ngenerated = true\n'


def event_of(draft: Draft) -> Event:
    return committed(draft, 1, NOW)


def spoken(tool: str, **arguments: str) -> Draft:
    """The first event of what ada says with this tool."""
    return speak(
        Speaker(ADA, MESSAGE, {"ada", "bea"}), "4", {"tool": tool, "arguments": arguments}, NOW, lambda _what: RULES
    ).drafts[0]


def test_an_answer_goes_to_the_room_its_message_came_from() -> None:
    draft = ending(ADA, MESSAGE, Outcome("done", "hi"), NOW)
    assert (draft.type, draft.addressed_to, draft.parent_id) == ("answer", "group:telegram:garden", "H")
    assert (draft.body["group"], draft.body["thread"], draft.body["in_reply_to"]) == ("garden", "t1", "E")
    other = Message("F", "T", "owner:ana", "owner", "hello", "cli:main", "")
    assert ending(ADA, other, Outcome("done", "hi"), NOW).addressed_to == "group:cli:main"


def test_an_emission_says_by_whom_it_came_about_and_an_outsider_cannot() -> None:
    ask = spoken("ask_agent", agent="bea", text="x")
    assert (ask.body["via"], ask.body["depth"]) == (["agent:ada"], 1)
    answer = ending(BEA, message_of(event_of(ask)), Outcome("done", "y"), NOW)
    assert (answer.body["via"], answer.body["depth"]) == (["agent:ada", "agent:bea"], 2)
    forged = said("k")
    forged = Draft(
        id=forged.id, tenant="local", source="agent", type="ask", principal="agent:ada", trust=Trust.PUBLIC,
        trace_id=forged.trace_id, occurred_at=NOW, body={**ask.body, "depth": -9},
    )  # fmt: skip
    told = message_of(event_of(forged))
    assert (told.asker, told.reply_topic) == ("", "")
    assert (awaited(forged), is_reply(forged)) == ("", False)


def test_a_reply_goes_to_whoever_asked_and_says_so() -> None:
    ask = spoken("ask_agent", agent="bea", text="x")
    message = message_of(event_of(ask))
    for outcome in (Outcome("done", "y"), Outcome("failed", "no", "no"), Outcome("done", "no", silent=True)):
        reply = ending(BEA, message, outcome, NOW)
        assert (reply.addressed_to, reply.body["answers"], reply.body["reply_to_run"]) == (
            "agent:ada",
            ask.id,
            ADA.run_id,
        )
        assert is_reply(reply)
        assert unsaid(reply) == ""
        assert awaited(reply) == awaited(ask) == f"reply:{ask.id}"
    assert message.request.startswith("agent:ada asks you")


@pytest.mark.parametrize("kind", ["notify", "answer", "propose"])
def test_among_agents_only_a_question_is_answered(kind: str) -> None:
    told = message_of(event_of(emission(ADA, MESSAGE, kind, key="1", to="agent:bea", text="x", now=NOW)))
    answer = ending(BEA, told, Outcome("done", "thanks"), NOW)
    assert (answer.addressed_to, answer.body["silent"], answer.body["text"]) == (None, True, "thanks")
    assert "it waits for no answer" in unsaid(answer)
    assert "sent to nobody" in told.request


def test_automatic_mail_is_not_answered() -> None:
    mail = said("k")
    machine = Draft(
        id=mail.id, tenant="local", source="mail", type="message", principal="user:mail:robot", trust=Trust.PUBLIC,
        trace_id=mail.trace_id, occurred_at=NOW, body={"text": "away", "group": "x", "automatic": True},
    )  # fmt: skip
    answer = ending(ADA, message_of(event_of(machine)), Outcome("done", "thanks"), NOW)
    assert (answer.addressed_to, answer.body["silent"], answer.body["automatic"]) == (None, True, True)
    assert "sent by a machine" in unsaid(answer)


def test_a_model_that_says_nothing_has_failed_whoever_waits_and_nobody_else() -> None:
    nothing = Outcome("failed", "The model gave no answer.", EMPTY)
    assert settled(MESSAGE, nothing) is nothing
    told = message_of(event_of(spoken("notify", to="agent:bea", text="x")))
    assert settled(told, nothing) == Outcome("done", "it had nothing to say", silent=True)


def test_no_answer_is_an_answer_without_words() -> None:
    draft = ending(ADA, MESSAGE, Outcome("done", "not mine", silent=True), NOW)
    assert (draft.type, draft.addressed_to, draft.body["text"]) == ("answer", None, "")
    assert unsaid(draft) == "agent:ada gives no answer: not mine"


def test_an_emission_exists_once_a_step() -> None:
    first, again = spoken("notify", to="owner", text="x"), spoken("notify", to="owner", text="x")
    assert first.id == again.id
    assert (first.type, first.addressed_to) == ("notify", "group:cli:main")


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("ask_agent", {"agent": "ada", "text": "x"}, "yourself"),
        ("ask_agent", {"agent": "agent:ada", "text": "x"}, "yourself"),
        ("ask_agent", {"agent": "cyd", "text": "x"}, "The other agents are: bea."),
        ("notify", {"to": "agent:ada", "text": "x"}, "yourself"),
        ("notify", {"to": "agent:", "text": "x"}, "no agent"),
        ("notify", {"to": "group:cli", "text": "x"}, "no address"),
        ("notify", {"to": "group::main", "text": "x"}, "no address"),
        ("notify", {"to": "owner:ana", "text": "x"}, "no address"),
        ("notify", {"to": "webhook:x", "text": "x"}, "no address"),
        ("propose", {"what": "rules", "text": "#" * MOST_PROPOSED, "why": "x"}, "characters"),
        ("shell", {}, "nothing can be said"),
    ],
)
def test_what_must_not_be_said_is_refused_in_words_for_the_agent(tool: str, arguments: Any, why: str) -> None:
    with pytest.raises(Denied, match=why):
        spoken(tool, **arguments)


def test_a_proposed_rule_comes_below_the_owners_and_above_the_generated_ones() -> None:
    grown = with_addition(RULES, '\n[[rule]]\nid = "r-new"\n')
    assert [rule["id"] for rule in tomllib.loads(grown)["rule"]] == ["r-mine", "r-new", "r-ada"]
    assert tomllib.loads(with_addition("", '[[rule]]\nid = "r-new"'))["rule"] == [{"id": "r-new"}]


@given(
    before=st.lists(st.sampled_from(["a = 1", "# note", "[[rule]]", "generated = true", ""])),
    added=st.text(st.sampled_from("[]ab\n"), min_size=1),
)
def test_a_proposal_leaves_every_line_that_was_there(before: list[str], added: str) -> None:
    text = "".join(f"{line}\n" for line in before)
    left = [line for line in with_addition(text, f"NEW{added}").splitlines() if line]
    there = iter(left)
    assert all(line in there for line in text.splitlines() if line)
