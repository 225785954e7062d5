"""Two instances on one machine: an agent that runs on the other one answers in the room that was spoken in."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.fakes.hive import Hive, resting, until

HERE = '\n[[rule]]\nanswer = "here: {text}"\n'
THERE = '\n[[rule]]\nanswer = "there: {text}"\n'


def acquaint(hive: Hive, other: Hive, name: str, called: str, addresses: str) -> None:
    """Let `hive` know the other as `name`, and be known there as `called`; what that one may address here."""
    key = other.rucher("destinations", "secret", called).stdout.strip()
    (hive.root / "sources.toml").write_text(
        f'[[source]]\nname = "{name}"\nscheme = "ed25519"\npublic_key = "{key}"\naddresses = {addresses}\n', "utf-8"
    )


def write_place(hive: Hive, other: Hive, name: str, called: str, more: str = "") -> None:
    place = f'[instance.{name}]\nurl = "http://127.0.0.1:{other.port}"\nsource = "{called}"\n'
    (hive.root / "destinations.toml").write_text(place + more, "utf-8")


def begin(home: Hive, laptop: Hive) -> None:
    """Start both; the scribe of `home` runs on `laptop`."""
    write_place(home, laptop, "laptop", "home", '[agent.scribe]\nat = "instance:laptop"\n')
    write_place(laptop, home, "home", "laptop")
    with (laptop.root / "rules.toml").open("a") as rules:
        rules.write('\n[[rule]]\nid = "r-home"\nmatch = { addressed_to = "group:home:*" }\nto = "instance:home"\n')
    home.start()
    laptop.start()
    acquaint(home, laptop, "laptop", "home", '["group:cli:*"]')
    acquaint(laptop, home, "home", "laptop", '["agent:scribe"]')
    for hive in (home, laptop):
        until(partial(hive.events, "ev.*.rucher.sources.applied"), "the sources were not taken")


@contextmanager
def both(folder: Path) -> Iterator[tuple[Hive, Hive]]:
    """Two instances that know each other."""
    for name in ("a", "b"):
        (folder / name).mkdir()
    with resting(folder / "a", HERE) as home, resting(folder / "b", THERE) as laptop:
        begin(home, laptop)
        yield home, laptop


def test_a_chat_goes_through_two_instances_and_back_in_one_trace(tmp_path: Path) -> None:
    with both(tmp_path) as (home, laptop):
        said = home.told("send", "--wait", "hello", "--group", "kitchen", "--thread", "t1")
        assert (said["status"], said["answer"]) == ("answered", "there: hello")
        assert home.delivered("kitchen") == ["there: hello"]
        there = laptop.told("trace", said["trace_id"])["events"]
        assert {"home", "agent", "rucher"} <= {event["source"] for event in there}
        (came_back,) = home.events("ev.*.laptop.answer")
        assert (came_back["principal"], came_back["trust"]) == ("partner:laptop", "partner")
        assert (came_back["trace_id"], came_back["body"]["thread"]) == (said["trace_id"], "t1")
        write_place(home, laptop, "laptop", "home")
        until(lambda: len(home.events("ev.*.rucher.destinations.applied")) == 2, "the file was not taken")
        assert home.told("send", "--wait", "hello")["answer"] == "here: hello"


def test_the_other_instance_is_away_and_both_are_killed_and_the_answer_still_arrives_once(tmp_path: Path) -> None:
    with both(tmp_path) as (home, laptop):
        laptop.kill()
        home.told("send", "hello")
        until(lambda: home.events("ev.*.rucher.hop.retrying"), "it is not visible that the other is away")
        home.kill()
        laptop.start()
        home.start()
        until(home.delivered, "the answer never arrived")
        assert home.delivered() == ["there: hello"]
        assert len(laptop.events("ev.*.home.>")) == 1
