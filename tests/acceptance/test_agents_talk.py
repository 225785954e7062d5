"""Agents that talk to each other, on a real daemon with one scripted model that speaks for all of them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.hive import Hive, resting, until

AGENT = """---
name: {name}
description: One of several.
tools: [ask_agent, notify, propose, no_answer]
sandbox: 0
---
You are {name}.
"""
SCRIPT = r'''
[[rule]]
persona = "You are ada"
on = "user"
match = "(?s)^ask (?P<whom>\\w+): (?P<what>.*)$"
call = [{ tool = "ask_agent", arguments = { agent = "{whom}", text = "{what}" } }]

[[rule]]
persona = "You are ada"
on = "user"
match = "^hastily ask (?P<whom>\\w+): (?P<what>.*)$"
call = [{ tool = "ask_agent", arguments = { agent = "{whom}", text = "{what}", expires_in_hours = 0.0001 } }]

[[rule]]
on = "user"
match = "^tell (?P<whom>\\S+): (?P<what>.*)$"
call = [{ tool = "notify", arguments = { to = "{whom}", text = "{what}" } }]

[[rule]]
on = "user"
match = "^propose"
[[rule.call]]
tool = "propose"

[rule.call.arguments]
what = "rules"
why = "it is quieter"
text = """
[[rule]]
id = "r-new"
match = { text = "quiet" }
to = "agent:bea"
"""

[[rule]]
on = "user"
match = "(?s)slowly.*$"
delay_ms = 3000
answer = "slow: {text}"

[[rule]]
on = "user"
match = "be silent"
call = [{ tool = "no_answer", arguments = { why = "it is not for me" } }]

[[rule]]
on = "user"
match = "fail"
fail = "no such luck"

[[rule]]
persona = "You are (bea|cyd|dan|eva)"
on = "user"
match = "(?s)pass on to (?P<whom>\\w+), (?P<rest>.*)$"
call = [{ tool = "ask_agent", arguments = { agent = "{whom}", text = "{rest}" } }]

[[rule]]
on = "user"
match = "(?s)dawdle to (?P<whom>\\w+), (?P<rest>.*)$"
delay_ms = 1500
call = [{ tool = "ask_agent", arguments = { agent = "{whom}", text = "{rest}" } }]

[[rule]]
on = "user"
match = "(?s)answer each other (?P<whom>\\w+) (?P<other>\\w+)"
call = [{ tool = "ask_agent", arguments = { agent = "{whom}", text = "answer each other {other} {whom}" } }]

[[rule]]
on = "user"
match = "(?s)keep telling (?P<whom>\\w+) (?P<other>\\w+)"
call = [{ tool = "notify", arguments = { to = "agent:{whom}", text = "keep telling {other} {whom}" } }]

[[rule]]
on = "result"
answer = "[{result}]"

[[rule]]
answer = "heard: {text}"
'''
NAMES = ("ada", "bea", "cyd", "dan", "eva")


def settle(hive: Hive, *names: str, extra: str = "") -> None:
    """Give the instance these agents, the first as the one that hears what comes in, and these rules of its owner."""
    kernel = hive.root / "kernel"
    if kernel.is_symlink():
        kernel.unlink()
    agents = kernel / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    for name in names:
        (agents / f"{name}.md").write_text(AGENT.format(name=name), "utf-8")
    (hive.root / "rules.toml").write_text(f'default = "agent:{names[0]}"\n{extra}', "utf-8")


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    with resting(tmp_path, SCRIPT) as made:
        settle(made, *NAMES)
        made.start()
        yield made


def said(hive: Hive, text: str, *options: str) -> dict[str, Any]:
    """What became of a message."""
    done = hive.told("send", text, "--wait", *options)
    assert isinstance(done, dict)
    return done


def bodies(hive: Hive, kind: str) -> Sequence[dict[str, Any]]:
    """The bodies of all events of this type, in order."""
    return [event["body"] for event in hive.events(f"ev.*.*.{kind}")]


def runs_of(hive: Hive, agent: str) -> list[dict[str, Any]]:
    return [row for row in hive.told("runs") if row["agent"] == agent]


def test_an_agent_asks_another_and_its_own_run_goes_on_with_the_reply(hive: Hive) -> None:
    assert said(hive, "ask bea: how much honey?")["answer"] == (
        "[agent:bea replies: heard: agent:ada asks you; your answer goes back to it and to nobody else.\n\nhow much honey?]"
    )
    assert len(hive.delivered()) == 1  # what agents say among themselves is not shown in the room
    assert [len(runs_of(hive, name)) for name in ("ada", "bea")] == [1, 1]


def test_the_reply_goes_to_the_run_that_asked_also_when_the_daemon_was_killed_in_between(hive: Hive) -> None:
    trace = hive.told("send", "ask bea: answer slowly")["trace_id"]
    until(lambda: [row for row in runs_of(hive, "bea") if row["state"] == "running"], "bea was not asked")
    (asking,) = runs_of(hive, "ada")
    hive.kill()
    hive.start()
    assert said(hive, "meanwhile")["answer"] == "heard: meanwhile"
    until(lambda: len(hive.delivered()) == 2, "there was no answer")
    assert "[agent:bea replies: slow:" in hive.delivered()[1]
    (answer,) = [body for body in bodies(hive, "answer") if body.get("answers")]
    assert answer["reply_to_run"] == asking["run_id"]
    assert len(bodies(hive, "ask")) == 1
    assert [row["trace_id"] for row in runs_of(hive, "bea")] == [trace]
    assert len(runs_of(hive, "ada")) == 2  # the message in between, and no run for the reply


def test_a_chain_that_is_killed_at_every_link_asks_and_answers_each_once(hive: Hive) -> None:
    hive.told("send", "dawdle to bea, dawdle to cyd, dawdle to dan, dawdle to eva, the end")
    for count in range(1, len(NAMES)):
        until(lambda count=count: len(bodies(hive, "ask")) == count, "the next one was not asked")  # type: ignore[misc]
        hive.kill()
        hive.start()
    until(hive.delivered, "there was no answer")
    (answer,) = hive.delivered()
    assert (answer.count("replies"), answer.endswith("the end]]]]")) == (4, True)
    assert [body["via"][-1] for body in bodies(hive, "ask")] == [f"agent:{name}" for name in NAMES[:-1]]
    assert sorted(body["via"][-1] for body in bodies(hive, "answer")) == [f"agent:{name}" for name in NAMES]
    assert len(hive.told("runs")) == len(NAMES)


def test_a_chain_of_agents_is_one_trace_and_each_answer_finds_its_way_back(hive: Hive) -> None:
    found = said(hive, "ask bea: pass on to cyd, pass on to dan, pass on to eva, the end")
    assert found["answer"].count("replies") == 4
    assert found["answer"].endswith("the end]]]]")
    drawn = hive.rucher("trace", found["trace_id"]).stdout
    for name in NAMES:
        assert f"answer from agent:{name}" in drawn
    asked = [(body["depth"], body["via"]) for body in bodies(hive, "ask")]
    assert asked == [(n, [f"agent:{name}" for name in NAMES[:n]]) for n in range(1, 5)]
    last = next(body for body in bodies(hive, "answer") if body["via"][-1] == "agent:eva")
    assert last["depth"] == 5


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ask ada: me", "You cannot talk to yourself"),
        ("ask zoe: hello", "There is no agent 'zoe'. The other agents are: bea, cyd, dan, eva."),
        ("ask bea: fail", "There is no reply: I could not work on this: no such luck"),
        ("ask bea: be silent", "There is no reply: agent:bea gives no answer: it is not for me"),
        ("hastily ask bea: answer slowly", "agent:bea did not reply within 0.0001 hours"),
        ("tell agent:ada: me", "You cannot talk to yourself"),
        ("tell nobody: hello", "'nobody' is no address"),
    ],
)
def test_nobody_waits_for_ever_and_each_refusal_says_why(hive: Hive, text: str, told: str) -> None:
    assert told in said(hive, text)["answer"]


def test_a_reply_that_comes_too_late_is_read_in_the_next_turn_and_once(hive: Hive) -> None:
    assert "did not reply" in said(hive, "hastily ask bea: answer slowly")["answer"]
    until(
        lambda: [body for body in bodies(hive, "hop.acknowledged") if "no more" in body.get("detail", "")], "no reply"
    )
    assert '- agent:bea (agent): "slow: ' in said(hive, "what now")["answer"]
    assert said(hive, "and now")["answer"] == "heard: and now"


def test_an_ask_that_no_rule_lets_through_wakes_the_asker_with_the_reason(tmp_path: Path) -> None:
    with resting(tmp_path, SCRIPT) as hive:
        settle(hive, "ada", "bea")
        hive.start()
        rules = hive.root / "rules.toml"
        parts = rules.read_text("utf-8").split("\n[[rule]]")
        rules.write_text("\n[[rule]]".join(part for part in parts if "r-bea-addressed" not in part), "utf-8")
        until(lambda: len(bodies(hive, "rules.applied")) == 2, "the rules were not taken")
        found = said(hive, "ask bea: hello")
        assert "There is no reply: no rule covers what agent:ada addressed to agent:bea" in found["answer"]


def test_what_an_agent_tells_another_wakes_it_and_its_answer_goes_to_nobody(hive: Hive) -> None:
    found = said(hive, "tell agent:bea: the hive is full")
    assert found["answer"] == "[It was said to agent:bea; nobody answers it.]"
    until(
        lambda: any(body["via"] == ["agent:ada", "agent:bea"] for body in bodies(hive, "answer")), "bea did not hear it"
    )
    until(
        lambda: any("it waits for no answer" in body["reason"] for body in bodies(hive, "route.dropped")), "not dropped"
    )
    assert len(hive.delivered()) == 1


def test_the_owner_and_any_room_can_be_told_something(hive: Hive) -> None:
    said(hive, "tell owner: look", "--group", "field")
    said(hive, "tell group:cli:office: hello there")
    assert hive.delivered()[0] == "look"
    assert hive.delivered("office") == ["hello there"]
    assert len(hive.delivered("field")) == 1


def test_a_proposal_waits_for_the_owner_and_changes_nothing(hive: Hive) -> None:
    before = (hive.root / "rules.toml").read_text("utf-8")
    assert said(hive, "propose it")["answer"] == "[It was put to the owner, who decides.]"
    (proposed,) = bodies(hive, "rules.proposed")
    assert (proposed["by"], proposed["why"]) == ("agent:ada", "it is quieter")
    assert '+id = "r-new"' in proposed["diff"]
    assert proposed["text"].index("r-new") < proposed["text"].index("generated = true")
    assert (hive.root / "rules.toml").read_text("utf-8") == before
    assert "I propose to change the rules: it is quieter" in "".join(hive.delivered())


def test_an_agent_may_end_its_turn_with_an_explicit_no_answer(hive: Hive) -> None:
    found = said(hive, "be silent")
    assert (found["status"], hive.delivered()) == ("silent", [])
    assert "it is not for me" in found["answer"]
    assert "no answer" in hive.rucher("send", "be silent", "--wait").stderr
    (first, *_) = bodies(hive, "route.dropped")
    assert "gives no answer: it is not for me" in first["reason"]


@pytest.mark.parametrize("text", ["answer each other bea ada", "keep telling bea ada"])
def test_agents_that_wake_each_other_are_stopped_visibly(hive: Hive, text: str) -> None:
    pytest.importorskip("rucher.router.loops")
    found = said(hive, text)
    assert found["status"] == "answered"
    until(lambda: [body for body in bodies(hive, "route.dropped") if "cap" in body["reason"]], "nothing stopped them")
    until(
        lambda: not [row for row in hive.told("runs") if row["state"] in ("running", "waiting", "ready")], "one waits"
    )


CONTEXT = """
[[rule]]
id = "r-mentioned"
match = { source = "cli" }
engage = "mention"
otherwise = "context"
to = "agent:ada"
"""


def test_what_is_only_context_is_not_answered_and_read_in_the_next_turn_once(tmp_path: Path) -> None:
    pytest.importorskip("rucher.router.loops")
    with resting(tmp_path, SCRIPT) as hive:
        settle(hive, "ada", "bea", extra=CONTEXT)
        hive.start()
        hive.told("send", "@ada answer slowly")
        until(lambda: runs_of(hive, "ada"), "ada was not woken")
        hive.told("send", "the roof leaks")  # in mid-turn
        until(hive.delivered, "there was no answer")
        until(lambda: bodies(hive, "session.noted"), "it was not kept")
        hive.kill()
        hive.start()
        answer = said(hive, "@ada what now?")["answer"]
        assert 'owner:owner (owner): "the roof leaks"' in answer
        assert answer.endswith("@ada what now?")
        assert said(hive, "@ada and now?")["answer"] == "heard: @ada and now?"
        assert len(hive.delivered()) == 3
        assert len(runs_of(hive, "ada")) == 3
