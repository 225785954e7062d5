"""Destinations outside, through the command line and the daemon, as an owner and a receiver see them."""

import json
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey

from tests.fakes.hive import Hive, resting, running, until
from tests.fakes.receiver import Receiver, Says, receiving


def write(hive: Hive, destinations: str, rule_to: str = "") -> None:
    """The owner's files: the destinations, and a rule before all others that lets them watch what agents answer."""
    (hive.root / "destinations.toml").write_text(destinations, "utf-8")
    if rule_to:
        rule = f'[[rule]]\nid = "r-out"\nmatch = {{ type = "answer" }}\nto = {rule_to}\ncontinue = true\n\n'
        rules = hive.root / "rules.toml"
        default, _, rest = rules.read_text("utf-8").partition("\n[[rule]]")
        rules.write_text(f"{default}\n{rule}[[rule]]{rest}", "utf-8")


def webhook(name: str, receiver: Receiver, more: str = "") -> str:
    return f'[webhook.{name}]\nurl = "{receiver.url}"\n{more}\n'


def secret(hive: Hive, name: str) -> str:
    done = hive.rucher("destinations", "secret", name)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def outcome_of(hive: Hive, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = hive.rucher("destinations", "send", *arguments, "--json")
    return done.returncode, json.loads(done.stdout)


def test_an_answer_reaches_a_webhook_and_a_file_and_a_destination_added_while_it_runs(tmp_path: Path) -> None:
    with receiving(Receiver()) as receiver, resting(tmp_path) as hive:
        write(hive, webhook("crm", receiver), '["webhook:crm"]')
        receiver.secret = secret(hive, "crm")
        hive.start()
        assert hive.told("send", "--wait", "one")["answer"] == "echo: one"
        until(lambda: receiver.taken, "the webhook got nothing")
        (sent,) = receiver.taken.values()
        assert (sent["type"], sent["data"]["text"]) == ("answer", "echo: one")
        write(hive, webhook("crm", receiver) + '[file.notes]\npath = "notes/all.jsonl"\n')
        rules = hive.root / "rules.toml"
        rules.write_text(rules.read_text("utf-8").replace('"webhook:crm"]', '"webhook:crm", "file:notes"]'), "utf-8")
        until(lambda: len(hive.events("ev.*.rucher.rules.applied")) == 2, "the rules were not taken")
        assert hive.told("send", "--wait", "two")["answer"] == "echo: two"
        until(lambda: len(receiver.taken) == 2, "the webhook got no second answer")
        notes = hive.root / "notes" / "all.jsonl"
        until(notes.exists, "the file got nothing")
        assert [json.loads(line)["text"] for line in notes.read_text("utf-8").splitlines()] == ["echo: two"]
        assert not receiver.refused
        applied = hive.events("ev.*.rucher.destinations.applied")
        assert [event["body"]["destinations"] for event in applied] == [["webhook:crm"], ["file:notes", "webhook:crm"]]


def test_a_refused_destinations_file_leaves_the_old_destinations_running(tmp_path: Path) -> None:
    with receiving(Receiver()) as receiver, resting(tmp_path) as hive:
        write(hive, webhook("crm", receiver), '["webhook:crm"]')
        receiver.secret = secret(hive, "crm")
        hive.start()
        write(hive, "[webhook.crm]\nurl = 3\n")
        until(lambda: hive.events("ev.*.rucher.destinations.refused"), "the refusal is no event")
        (refused,) = hive.events("ev.*.rucher.destinations.refused")
        assert "destinations.toml:2:1: url must be text" in refused["body"]["reason"]
        hive.told("send", "--wait", "one")
        until(lambda: receiver.taken, "the webhook got nothing")


def test_a_destination_that_hangs_or_is_away_holds_up_nobody_and_is_never_said_to_be_delivered(tmp_path: Path) -> None:
    with receiving(Receiver()) as hanging, receiving(Receiver()) as good, resting(tmp_path) as hive:
        away = '[webhook.away]\nurl = "http://127.0.0.1:1/"\n'
        write(
            hive,
            webhook("hanging", hanging, "timeout_s = 60") + webhook("good", good) + away,
            '["webhook:hanging", "webhook:away", "webhook:good"]',
        )
        hanging.says = [Says(hang=True)] * 20
        hanging.secret, good.secret = secret(hive, "hanging"), secret(hive, "good")
        secret(hive, "away")
        hive.start()
        for number in range(5):
            assert hive.told("send", "--wait", f"m{number}")["status"] == "answered"
        until(lambda: len(good.taken) == 5, "the good one is held up")
        delivered = {event["body"]["hop"] for event in hive.events("ev.*.rucher.delivery.delivered")}
        made = {event["id"]: event["body"]["to"] for event in hive.events("ev.*.rucher.hop.made")}
        assert {made[hop] for hop in delivered} == {"webhook:good", "surface:cli"}
        hive.kill()


def test_killed_while_a_webhook_is_away_the_answer_arrives_once_after_the_next_start(tmp_path: Path) -> None:
    with receiving(Receiver()) as receiver, resting(tmp_path) as hive:
        write(hive, webhook("crm", receiver), '["webhook:crm"]')
        receiver.secret = secret(hive, "crm")
        receiver.says = [Says(503), Says(lose=True), Says(hang=True)]
        hive.start()
        hive.told("send", "--wait", "one")
        until(lambda: len(receiver.attempts) == 3, "it was not tried again")
        hive.kill()
        hive.start()
        until(lambda: hive.events("ev.*.rucher.delivery.delivered")[1:], "it never arrived")
        assert len(receiver.taken) == 1
        assert len({attempt["webhook-id"] for attempt in receiver.attempts}) == 1


def test_a_trial_says_what_became_of_it_and_is_in_the_journal(tmp_path: Path) -> None:
    with receiving(Receiver()) as receiver, resting(tmp_path) as hive:
        write(hive, webhook("crm", receiver, 'events = ["answer"]') + '[webhook.away]\nurl = "http://127.0.0.1:1/"\n')
        receiver.secret = secret(hive, "crm")
        hive.start()
        assert outcome_of(hive, "crm", "hello")[1]["receipt"] == {"status": 200, "answer": "thanks"}
        assert next(iter(receiver.taken.values()))["data"]["text"] == "hello"
        receiver.says = [Says(410, body=b"gone")]
        code, said = outcome_of(hive, "webhook:crm", "hello")
        assert (code, said["outcome"]) == (1, "refused")
        assert "answered 410: gone" in said["reason"]
        code, said = outcome_of(hive, "away", "hello")
        assert (code, said["outcome"]) == (3, "later")
        assert "no secret to sign with" in said["reason"]
        tested = hive.events("ev.*.rucher.destination.tested")
        assert [event["body"]["outcome"] for event in tested] == ["delivered", "refused", "later"]
        assert not hive.events("ev.*.rucher.hop.made")
        refused = hive.rucher("destinations", "send", "crn", "hello")
        assert (refused.returncode, "did you mean" in refused.stderr) == (2, True)


def test_one_line_moves_an_agent_to_another_instance_and_another_line_back(tmp_path: Path) -> None:
    with receiving(Receiver()) as laptop, running(tmp_path) as hive:
        node = SigningKey(bytes.fromhex((hive.state / "node.key").read_text("ascii").strip()))
        laptop.key = node.verify_key
        assert hive.told("send", "--wait", "here")["answer"] == "echo: here"
        place = f'[instance.laptop]\nurl = "{laptop.url.removesuffix("/hook")}"\nsource = "home"\n'
        write(hive, place + '[agent.scribe]\nat = "instance:laptop"\n')
        until(lambda: len(hive.events("ev.*.rucher.destinations.applied")) == 2, "the file was not taken")
        sent = hive.told("send", "there")
        until(lambda: laptop.taken, "the other instance got nothing")
        (got,) = laptop.taken.values()
        assert not laptop.refused
        assert (got["addressedto"], got["traceid"], got["data"]["text"]) == ("agent:scribe", sent["trace_id"], "there")
        assert got["data"]["payload"]["rucher_origin"]["reply_to"] == "group:cli:main"
        assert laptop.attempts[0][":path"] == "/ingress/home"
        write(hive, place)
        until(lambda: len(hive.events("ev.*.rucher.destinations.applied")) == 3, "the file was not taken")
        assert hive.told("send", "--wait", "here again")["answer"] == "echo: here again"


def test_a_refusal_for_good_ends_at_once_and_a_start_does_not_try_again(tmp_path: Path) -> None:
    with receiving(Receiver()) as receiver, resting(tmp_path) as hive:
        write(hive, webhook("crm", receiver), '["webhook:crm"]')
        receiver.secret = secret(hive, "crm")
        receiver.says = [Says(410)]
        hive.start()
        hive.told("send", "--wait", "one")
        until(lambda: hive.events("ev.*.rucher.delivery.failed"), "the refusal is not visible")
        hive.kill()
        hive.start()
        hive.told("send", "--wait", "two")
        until(lambda: receiver.taken, "the second answer did not arrive")
        assert len(receiver.attempts) == 2


def test_a_receiver_that_asks_for_hours_of_patience_holds_up_nobody_and_is_not_called_delivered(tmp_path: Path) -> None:
    with receiving(Receiver()) as receiver, resting(tmp_path) as hive:
        write(hive, webhook("crm", receiver) + '[file.notes]\npath = "n.jsonl"\n', '["webhook:crm", "file:notes"]')
        receiver.secret = secret(hive, "crm")
        receiver.says = [Says(429, {"retry-after": "7200"})]
        hive.start()
        for text in ("one", "two"):
            assert hive.told("send", "--wait", text)["status"] == "answered"
        notes = hive.root / "n.jsonl"
        until(lambda: notes.exists() and len(notes.read_text("utf-8").splitlines()) == 2, "the file is held up")
        assert len(receiver.attempts) == 1
        assert "answered 429" in hive.events("ev.*.rucher.hop.retrying")[0]["body"]["reason"]
