"""Unknown senders on a real daemon: held until the owner's word, and then heard exactly once or never."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.acceptance.test_entities import ANA, EVE, arrives, meanwhile, said, users
from tests.fakes.hive import Hive, resting, until


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    with resting(tmp_path) as made:
        yield made


def test_what_is_held_goes_on_when_its_sender_is_admitted_across_a_power_cut(hive: Hive) -> None:
    for text in ("one", "two"):
        meanwhile(hive, partial(arrives, text=text))
    meanwhile(hive, partial(arrives, text="buy", principal=EVE))
    hive.start()
    until(lambda: len(hive.told("users", "held")) == 3, "three messages are held")
    assert said(hive, "users", "admit", ANA).endswith("held messages that go on: 2")
    hive.kill()
    hive.start()
    until(lambda: len(hive.delivered()) == 2, "two answers")
    assert hive.delivered() == ["echo: one", "echo: two"]
    assert said(hive, "users", "block", EVE).endswith("held messages that are dropped: 1")
    until(lambda: hive.told("users", "held") == [], "nothing is held any more")
    (dropped,) = hive.events("ev.*.rucher.route.dropped")[-1:]
    assert EVE in dropped["body"]["reason"] or "block" in dropped["body"]["reason"]
    hive.stop()
    meanwhile(hive, partial(arrives, text="three"))
    meanwhile(hive, partial(arrives, text="buy more", principal=EVE))
    hive.start()
    until(lambda: len(hive.delivered()) == 3, "three answers")
    assert users(hive)[ANA]["held"] == users(hive)[EVE]["held"] == 0
    assert hive.delivered() == ["echo: one", "echo: two", "echo: three"]


def test_each_room_treats_strangers_by_its_own_policy(hive: Hive) -> None:
    hive.start()
    said(hive, "groups", "policy", "cli:open", "public")
    said(hive, "groups", "policy", "cli:shut", "strict")
    hive.stop()
    for group in ("open", "shut", "main"):
        meanwhile(hive, partial(arrives, text=group, group=group))
    hive.start()
    until(lambda: hive.delivered("open") == ["echo: open"], "the open room answers")
    until(lambda: [row["room"] for row in hive.told("users", "held")] == ["cli:main"], "one is held")
    assert (hive.delivered("shut"), hive.delivered("main")) == ([], [])
