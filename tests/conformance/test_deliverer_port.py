"""What every deliverer must do, whatever its platform. A channel joins by an entry in CHANNELS."""

import asyncio
import base64
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from nacl.signing import SigningKey
from typing_extensions import override

from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import Permanent
from rucher.protocol.events import Event, Trust, committed, message
from rucher.protocol.ports import Deliverer, Proof
from rucher.surfaces.channels.cli import CliChannel
from rucher.surfaces.channels.file import FileChannel, FilePlace
from rucher.surfaces.channels.instance import InstanceChannel, Node
from rucher.surfaces.channels.webhook import WebhookChannel, WebhookPlace
from rucher.surfaces.posting import Target
from tests.fakes.receiver import Receiver, receiving


class Peer(Protocol):
    """The platform's side, as a person there sees it."""

    def deliverer(self) -> Deliverer:
        """A new adapter to this platform, as after a restart."""
        ...

    def visible(self, group: str) -> list[str]:
        """The texts that the group shows, in order."""
        ...

    def cut_short(self, event: Event, key: str, kept: float) -> None:
        """Leave what a kill in the middle of sending leaves: this share of it."""
        ...


class CliFolder:
    """The folder of the surface cli, read as its users do: whole lines only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def deliverer(self) -> Deliverer:
        return CliChannel(self.folder)

    def visible(self, group: str) -> list[str]:
        file = self.folder / f"{group}.jsonl"
        text = file.read_text() if file.exists() else ""
        return [json.loads(line)["text"] for line in text.split("\n")[:-1]]

    def cut_short(self, event: Event, key: str, kept: float) -> None:
        elsewhere = CliFolder(self.folder / "elsewhere")
        asyncio.run(elsewhere.deliverer().deliver(event, key))
        (whole,) = elsewhere.folder.iterdir()
        line = whole.read_bytes()
        with (self.folder / whole.name).open("ab") as file:
            file.write(line[: round(kept * (len(line) - 1))])
        whole.unlink()


class OwnersFile:
    """One file for all groups, read as its owner does."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "notes" / "answers.jsonl"

    def deliverer(self) -> Deliverer:
        return FileChannel(FilePlace(self.file, "jsonl", make_folders=True))

    def visible(self, group: str) -> list[str]:
        text = self.file.read_text() if self.file.exists() else ""
        said = [json.loads(line) for line in text.split("\n")[:-1]]
        return [one["text"] for one in said if one["body"]["group"] == group]

    def cut_short(self, event: Event, key: str, kept: float) -> None:
        _append_part(self, OwnersFile(self.file.parent / "elsewhere"), event, key, kept)


class OwnersText(OwnersFile):
    """The same as text for people; its groups are told apart by nobody, so that this one looks for who said it."""

    @override
    def deliverer(self) -> Deliverer:
        return FileChannel(FilePlace(self.file, "text", make_folders=True))

    @override
    def visible(self, group: str) -> list[str]:
        text = self.file.read_bytes().decode() if self.file.exists() else ""
        records = [record.partition("\n    ") for record in text.split("\n\n")[:-1]]
        return [said.replace("\n    ", "\n") for head, _, said in records if head.endswith(f" agent:{group}")]

    @override
    def cut_short(self, event: Event, key: str, kept: float) -> None:
        _append_part(self, OwnersText(self.file.parent / "elsewhere"), event, key, kept)


def _append_part(here: OwnersFile, elsewhere: OwnersFile, event: Event, key: str, kept: float) -> None:
    asyncio.run(elsewhere.deliverer().deliver(event, key))
    record = elsewhere.file.read_bytes()
    here.file.parent.mkdir(exist_ok=True)
    with here.file.open("ab") as file:
        file.write(record[: round(kept * (len(record) - 1))])


SECRET = b"a secret of a receiver, 32 bytes"
NODE = SigningKey(b"the key of a node that sends it.")


class Hook:
    """A receiver in this process; a process that is started by a test finds it by the file `url`."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / "url"
        self.receiver = self.strict()
        if not self.place.exists():
            receiving_now = receiving(self.receiver)
            receiving_now.__enter__()
            OPEN.append(receiving_now)
            self.place.write_text(self.receiver.url)

    def strict(self) -> Receiver:
        return Receiver("whsec_" + base64.b64encode(SECRET).decode())

    def deliverer(self) -> Deliverer:
        target = Target(self.place.read_text(), 10.0)
        return WebhookChannel(WebhookPlace("crm", target), lambda: [SECRET], SystemClock())

    def visible(self, group: str) -> list[str]:
        said = [sent["data"] for sent in list(self.receiver.taken.values())]
        assert not self.receiver.refused
        return [one["text"] for one in said if one["group"] == group]

    def cut_short(self, event: Event, key: str, kept: float) -> None:
        """Half a request is none to an HTTP server."""


class OtherInstance(Hook):
    """The door of another instance."""

    @override
    def strict(self) -> Receiver:
        return Receiver(key=NODE.verify_key)

    @override
    def deliverer(self) -> Deliverer:
        async def nothing(_event_id: str) -> Event | None:
            return None

        return InstanceChannel(Target(self.place.read_text(), 10.0), Node("home", NODE, nothing), SystemClock())


OPEN: list[AbstractContextManager[Receiver]] = []
CHANNELS: dict[str, Callable[[Path], Peer]] = {
    "cli": CliFolder, "file": OwnersFile, "text file": OwnersText, "webhook": Hook, "instance": OtherInstance,
}  # fmt: skip
SETTLED = (Proof.DONE, Proof.REPEATABLE)
"""What was delivered under a key is shown, or may be sent again and is visible once."""
TO_GROUPS = ("cli",)
"""Those that deliver to a group, and refuse what names none."""


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """End the receivers that a test began."""
    yield
    while OPEN:
        OPEN.pop().__exit__(None, None, None)


@pytest.fixture(params=sorted(CHANNELS))
def peer(request: pytest.FixtureRequest, tmp_path: Path) -> Peer:
    return CHANNELS[request.param](tmp_path)


def answer(text: str = "hi", group: str = "main", surface: str = "cli") -> Event:
    said = message(
        tenant="home", source="agent", key=text, principal=f"agent:{group}", trust=Trust.AGENT, text=text, group=group,
        occurred_at=1, addressed_to=f"group:{surface}:{group}",
    )  # fmt: skip
    return committed(said, 1, 2)


def deliver(peer: Peer, event: Event, key: str) -> dict[str, Any]:
    return asyncio.run(peer.deliverer().deliver(event, key))


def probe(peer: Peer, event: Event, key: str) -> Proof:
    return asyncio.run(peer.deliverer().probe(event, key))


def test_what_was_delivered_is_visible_and_proven(peer: Peer) -> None:
    assert json.dumps(deliver(peer, answer("hi"), "k1"))
    assert peer.visible("main") == ["hi"]
    assert probe(peer, answer("hi"), "k1") in SETTLED


def test_what_was_not_delivered_is_never_said_to_be_done(peer: Peer) -> None:
    assert probe(peer, answer(), "k1") is not Proof.DONE
    deliver(peer, answer("other"), "k2")
    for key in ("k1", "k", "k22", "2", "k2,", "other"):
        assert probe(peer, answer(), key) is not Proof.DONE


def test_delivered_twice_under_one_key_is_visible_once_where_that_is_said(peer: Peer) -> None:
    first = deliver(peer, answer("hi"), "k1")
    if probe(peer, answer("hi"), "k1") in SETTLED:
        assert deliver(peer, answer("hi"), "k1") == first
        assert peer.visible("main") == ["hi"]


def test_one_text_under_two_keys_is_visible_twice_and_in_order(peer: Peer) -> None:
    for number, text in enumerate(["one", "two", "one"]):
        deliver(peer, answer(text), f"k{number}")
    assert peer.visible("main") == ["one", "two", "one"]


def test_each_group_sees_its_own(peer: Peer) -> None:
    deliver(peer, answer("for a", "a"), "k1")
    deliver(peer, answer("for b", "b"), "k2")
    assert (peer.visible("a"), peer.visible("b")) == (["for a"], ["for b"])


@pytest.mark.parametrize("name", TO_GROUPS)
def test_what_one_group_got_proves_nothing_for_another(name: str, tmp_path: Path) -> None:
    peer = CHANNELS[name](tmp_path)
    deliver(peer, answer("for a", "a"), "k1")
    deliver(peer, answer("for b", "b"), "k2")
    assert probe(peer, answer("for b", "b"), "k1") is not Proof.DONE


@pytest.mark.parametrize(
    "text", ["two\nlines", '\u2028 \x00 \x7f é 🐝 \\ "', '{"key":"k9",', '\n{"key":"k9",', "x" * 300_000]
)
def test_any_text_arrives_as_it_is_and_proves_no_other_delivery(peer: Peer, text: str) -> None:
    deliver(peer, answer(text), "k1")
    assert peer.visible("main") == [text]
    assert probe(peer, answer(text), "k9") is not Proof.DONE
    assert probe(peer, answer(text), "k1") in SETTLED


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("before", [0, 2])
def test_killed_in_the_middle_of_sending_it_is_not_done_and_the_next_attempt_is_whole(
    peer: Peer, kept: float, before: int
) -> None:
    earlier = [f"earlier {number}" for number in range(before)]
    for number, text in enumerate(earlier):
        deliver(peer, answer(text), f"e{number}")
    peer.cut_short(answer("hi"), "k1", kept)
    assert peer.visible("main") == earlier
    assert probe(peer, answer("hi"), "k1") is not Proof.DONE
    deliver(peer, answer("hi"), "k1")
    deliver(peer, answer("after"), "k2")
    assert peer.visible("main") == [*earlier, "hi", "after"]


def send_all(name: str, folder: Path, texts: list[str]) -> None:
    peer = CHANNELS[name](folder)
    for number, text in enumerate(texts):
        deliver(peer, answer(text), f"k{number}")


@pytest.mark.parametrize("name", sorted(CHANNELS))
def test_a_process_killed_while_it_delivers_leaves_only_whole_messages_each_proven_or_not_done(
    name: str, tmp_path: Path
) -> None:
    texts = [f"{number}: " + "x" * 5000 for number in range(100)]
    peer = CHANNELS[name](tmp_path)
    sender = multiprocessing.get_context("spawn").Process(target=send_all, args=(name, tmp_path, texts))
    sender.start()
    deadline = time.monotonic() + 30
    while len(peer.visible("main")) < 5:
        assert time.monotonic() < deadline
    sender.kill()
    sender.join()
    arrived = len(peer.visible("main"))
    assert arrived < len(texts)
    for number, text in enumerate(texts):
        proof = probe(peer, answer(text), f"k{number}")
        assert proof in (Proof.REPEATABLE, Proof.DONE if number < arrived else Proof.NOT_DONE)
        if proof is not Proof.DONE:
            deliver(peer, answer(text), f"k{number}")
    assert peer.visible("main") == texts


@pytest.mark.parametrize("name", TO_GROUPS)
def test_an_event_without_a_group_is_refused_for_good(name: str, tmp_path: Path) -> None:
    peer = CHANNELS[name](tmp_path)
    lost = replace(answer(), addressed_to=None, body={"text": "hi"})
    with pytest.raises(Permanent):
        deliver(peer, lost, "k1")
