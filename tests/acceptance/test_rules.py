"""Rules as an owner meets them: who wakes, why, and what a change would do, on a running instance."""

from pathlib import Path

from tests.fakes.hive import Hive, resting, running, until

MENTION = """
[[rule]]
id = "r-team"
match = { group = "team" }
to = ["agent:scribe", "agent:talker"]
engage = "mention"
"""


def put(hive: Hive, rules: str) -> None:
    """The owner's rules, above the generated ones."""
    path = hive.instance.rules
    default, _, generated = path.read_text().partition("\n[[rule]]")
    path.write_text(f"{default}\n{rules}\n[[rule]]{generated}")


def say(hive: Hive, text: str, group: str = "team") -> str:
    """Send a message and return the id of its event once it is routed."""
    sent = hive.rucher("send", "--group", group, text)
    assert sent.returncode == 0, sent.stderr
    event = sent.stdout.split()[2].rstrip(";")
    until(lambda: routed(hive, event), f"{text} was not routed")
    return event


def routed(hive: Hive, event: str) -> list[dict[str, object]]:
    kinds = ("hop.made", "route.dropped")
    told = [one for kind in kinds for one in hive.events(f"ev.*.rucher.{kind}")]
    return [one["body"] for one in told if one["body"]["event"] == event]


def test_a_mention_wakes_its_agent_alone_and_the_explanation_names_the_value_that_decided(tmp_path: Path) -> None:
    with resting(tmp_path) as hive:
        put(hive, MENTION)
        hive.start()
        unheard, called = say(hive, "hello all"), say(hive, "@talker hello")
        until(lambda: hive.delivered("team"), "the answer was not delivered")
        assert hive.delivered("team") == ["echo: @talker hello"]
        assert [one["to"] for one in routed(hive, called)] == ["agent:talker"]
        (dropped,) = routed(hive, unheard)
        assert dropped["rule"] == "r-team"
        told = hive.rucher("rules", "explain", unheard).stdout
        assert "recorded, by version" in told
        assert "-> dropped: rule 'r-team' holds, but scribe is not mentioned; talker is not mentioned" in told
        assert 'yes  group = team   found: "team"' in told
        hive.stop()
        assert hive.rucher("rules", "explain", unheard).stdout == told


def test_a_proposal_changes_the_rules_of_a_running_instance_once_the_owner_applies_it(tmp_path: Path) -> None:
    with running(tmp_path) as hive:
        old = say(hive, "before")
        new = tmp_path / "new.toml"
        new.write_text(hive.instance.rules.read_text().replace('default = "agent:scribe"', 'default = "agent:talker"'))
        noted = hive.told("rules", "propose", str(new), "--why", "talker is free")
        assert '+default = "agent:talker"' in noted["diff"]
        assert [one["to"] for one in routed(hive, say(hive, "meanwhile"))] == ["agent:scribe"]
        assert hive.rucher("rules", "apply", noted["proposal"][:8]).returncode == 0
        until(lambda: len(hive.events("ev.*.rucher.rules.applied")) == 2, "the change was not taken")
        assert [one["to"] for one in routed(hive, say(hive, "after"))] == ["agent:talker"]
        assert hive.instance.rules.read_text() == new.read_text()
        history = hive.told("rules", "history")
        assert [one["what"] for one in history] == ["applied", "proposed", "decided", "applied"]
        assert '-default = "agent:scribe"' in hive.rucher("rules", "diff", history[0]["version"][:8]).stdout
        assert hive.rucher("rules", "diff").stdout == "nothing differs\n"
        told = hive.rucher("rules", "explain", old).stdout
        assert "-> agent:talker by rule default" in told
        assert told.endswith("-> agent:scribe by rule default\n")
        assert [one["state"] for one in hive.told("rules", "proposals")] == ["applied"]


def test_what_cannot_be_done_about_rules_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as hive:
        before = hive.instance.rules.read_bytes()
        bad = tmp_path / "bad.toml"
        bad.write_text('default = "agent:nobody"\n')
        for words, says in (
            (["propose", str(bad)], "bad.toml:1:1: there is no agent:nobody"),
            (["propose", str(tmp_path / "none.toml")], "is missing"),
            (["propose", str(hive.instance.rules)], "those in force"),
            (["apply", "ABCDEF"], "there is no proposal ABCDEF"),
            (["refuse", "!"], "is no id"),
            (["diff", "zz"], "is no version"),
            (["diff", "0123456789abcdef0123"], "no version begins with"),
            (["explain", "ABCDEF"], "there is no trace and no event"),
            (["test", str(tmp_path / "none.toml")], "cannot be read"),
            (["test", str(bad)], "bad.toml: case: Field required"),
        ):
            refused = hive.rucher("rules", *words)
            assert refused.returncode == 2, (words, refused.stdout, refused.stderr)
            assert says in refused.stderr
            assert refused.stderr.count("\n") == 1
        assert hive.instance.rules.read_bytes() == before
        assert hive.told("rules", "proposals") == []
