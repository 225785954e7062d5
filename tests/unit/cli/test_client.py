"""Laws of speaking to the daemon: whatever answers on the port, it ends in a result or one line that says what to do."""

import http.server
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from rucher.cli.client import Daemon
from rucher.daemon.lock import sole_daemon
from rucher.instance.layout import Instance
from rucher.protocol.errors import BadInput, Retryable, RucherError, Uncertain
from tests.unit.cli.recorded import make_instance, process, record

if TYPE_CHECKING:
    import subprocess

ID = "0123456789ABCDEFGHJKMNPQRS"
ACCEPTED = b'{"event_id": "%b", "trace_id": "%b"}' % (ID.encode(), ID.encode())


class Stranger(http.server.ThreadingHTTPServer):
    """A program that gives these replies on a port, the last one again and again, and notes what it was asked."""

    def __init__(self, replies: Sequence[tuple[int, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.asked: list[str] = []
        self._replies = list(replies)

    def reply(self, path: str) -> tuple[int, bytes]:
        self.asked.append(path)
        return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]


class _Answering(http.server.BaseHTTPRequestHandler):
    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        assert isinstance(self.server, Stranger)
        status, body = self.server.reply(self.path)
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer  # noqa: N815, V107 - names that http.server asks for

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is said on the terminal."""


@contextmanager
def answering(*replies: tuple[int, bytes]) -> Iterator[tuple[int, list[str]]]:
    """The port of a stranger, and what it was asked."""
    with Stranger(replies) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server.server_port, server.asked
        server.shutdown()
        thread.join()


def ended(child: "subprocess.Popen[str]") -> tuple[int, str]:
    _, err = child.communicate(timeout=60)
    return child.returncode, err


def sent(folder: Path, *replies: tuple[int, bytes], wait: bool = False) -> tuple[int, str]:
    with answering(*replies) as (port, _):
        instance = make_instance(folder, port)
        words = ("send", "hello", "--wait") if wait else ("send", "hello")
        with sole_daemon(instance.lock):
            return ended(process(*words, folder=instance.root))


@pytest.mark.parametrize(
    ("status", "body", "code", "says"),
    [
        (500, b"Internal Server Error", 2, "daemon.log"),
        (502, b"{}", 2, "daemon.log"),
        (500, b'{"detail": "the journal is damaged"}', 2, "the journal is damaged"),
        (503, b'{"detail": "the disk is full; free some"}', 3, "the disk is full; free some"),
        (503, b"", 3, "try again"),
        (403, b'{"detail": "no"}', 2, "does not take the token"),
        (401, b"", 2, "does not take the token"),
        (404, b"<html>", 2, "may not be this instance's daemon"),
        (302, b"", 2, "may not be this instance's daemon"),
        (200, b"<html>", 2, "may not be this instance's daemon"),
        (200, b"\xff\xfe", 2, "may not be this instance's daemon"),
        (200, b"[]", 2, "may not be this instance's daemon"),
        (200, b"{}", 2, "may not be this instance's daemon"),
        (200, b"[" * 100_000, 2, "may not be this instance's daemon"),
        (202, b'{"event_id": "../x", "trace_id": "y"}', 2, "may not be this instance's daemon"),
        (422, b'{"detail": "there is no agent x"}', 2, "rucher: there is no agent x\n"),
        (422, b'{"detail": "two\\nlines \\u001b[2J"}', 2, "two\\nlines"),
    ],
)
def test_every_answer_is_one_line_and_a_code(tmp_path: Path, status: int, body: bytes, code: int, says: str) -> None:
    found, err = sent(tmp_path / "hive", (status, body))
    assert (found, err.count("\n")) == (code, 1), err
    assert says in err


def test_a_refusal_of_fields_names_each_field_on_one_line(tmp_path: Path) -> None:
    body = b'{"detail": [{"loc": ["body", "text"], "msg": "too odd"}, {"loc": ["body"], "msg": "no"}, 7]}'
    assert sent(tmp_path / "hive", (422, body)) == (2, "rucher: text: too odd; the request: no\n")


def test_a_stopped_session_is_told_with_the_word_that_the_message_is_kept(tmp_path: Path) -> None:
    code, err = sent(
        tmp_path / "hive", (202, ACCEPTED), (200, b'{"status": "stopped", "answer": "inbound.db is gone"}'), wait=True
    )
    assert (code, err.count("\n")) == (2, 1)
    assert "inbound.db is gone; the message is kept and answered once that is mended" in err


def test_a_daemon_that_fails_while_one_waits_does_not_hide_that_the_message_is_kept(tmp_path: Path) -> None:
    code, err = sent(tmp_path / "hive", (202, ACCEPTED), (500, b""), wait=True)
    assert (code, err.count("\n")) == (3, 1)
    assert f"accepted as {ID} and kept" in err


def _emptied(token: Path) -> None:
    token.write_bytes(b"")


def _no_header(token: Path) -> None:
    token.write_bytes(b"ab\ncd\n")


def _no_text(token: Path) -> None:
    token.write_bytes(b"\xff" * 64)


def _no_ascii(token: Path) -> None:
    token.write_text("é" * 64, "utf-8")


def _folder(token: Path) -> None:
    token.unlink()
    token.mkdir()


def _pipe(token: Path) -> None:
    token.unlink()
    os.mkfifo(token)


def _loop(token: Path) -> None:
    token.unlink()
    token.symlink_to(token)


@pytest.mark.parametrize(
    "damage",
    [_emptied, _no_header, _no_text, _no_ascii, _folder, Path.unlink, _pipe, _loop],
    ids=lambda act: act.__name__,
)
def test_a_token_that_cannot_be_used_says_which_file_and_what_to_do(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    instance = make_instance(tmp_path / "hive")
    damage(instance.token)
    code, err = ended(process("send", "hello", folder=instance.root))
    assert (code, err.count("\n")) == (2, 1), err
    assert str(instance.token) in err
    assert "start" in err or "backup" in err


@pytest.mark.parametrize("given", ["nan", "-1", "inf", "-inf", "1e300"])
def test_a_time_to_wait_that_is_none_is_refused(tmp_path: Path, given: str) -> None:
    instance = make_instance(tmp_path / "hive")
    code, err = ended(process("send", "hello", "--wait", "--timeout", given, folder=instance.root))
    assert (code, err.count("\n")) == (2, 1), err
    assert "--timeout" in err


@pytest.mark.parametrize(
    ("raw", "says"), [(b"\xff", "not UTF-8"), (b"ok \xed\xa0\x80", "at byte 3"), (b"a" * 300_000, "more than")]
)
def test_standard_input_that_cannot_be_used_is_one_line(tmp_path: Path, raw: bytes, says: str) -> None:
    instance = make_instance(tmp_path / "hive")
    given = tmp_path / "given"
    given.write_bytes(raw)
    with given.open("rb") as file:
        code, err = ended(process("send", "-", folder=instance.root, stdin=file.fileno()))
    assert (code, err.count("\n"), says in err) == (2, 1, True), err


def test_a_run_to_resolve_may_be_named_by_its_beginning(tmp_path: Path) -> None:
    story = record(tmp_path / "hive", waiting=True)
    with answering((204, b"")) as (port, asked), sole_daemon(story.instance.lock):
        on_port(story.instance, port)
        code, err = ended(
            process("run", "resolve", story.waiting_run[:8].lower(), "1", "ran", folder=tmp_path / "hive")
        )
        assert (code, err) == (0, "")
        assert asked == [f"/api/v1/runs/{story.waiting_run}/resolve"]


@pytest.mark.parametrize("name", ["../../health", "a b", "7ZZZZZ", "%2e", ""])
def test_no_text_that_is_no_run_reaches_the_daemon(tmp_path: Path, name: str) -> None:
    story = record(tmp_path / "hive", waiting=True)
    with answering((204, b"")) as (port, asked), sole_daemon(story.instance.lock):
        on_port(story.instance, port)
        code, err = ended(process("run", "resolve", name, "1", "ran", folder=tmp_path / "hive"))
        assert (code, err.count("\n"), asked) == (2, 1, []), err


def test_errors_are_named_by_their_consequence(tmp_path: Path) -> None:
    for number, (status, kind) in enumerate(((404, BadInput), (500, Uncertain), (503, Retryable))):
        with answering((status, b"{}")) as (port, _):
            instance = make_instance(tmp_path / str(number), port)
            with sole_daemon(instance.lock), Daemon(instance) as daemon, pytest.raises(RucherError) as raised:
                daemon.call("GET", "/health")
            assert type(raised.value) is kind


def test_a_copied_folder_does_not_speak_to_the_daemon_of_the_one_that_it_was_copied_from(tmp_path: Path) -> None:
    with answering((202, ACCEPTED)) as (port, asked):
        instance = make_instance(tmp_path / "hive", port)
        with sole_daemon(instance.lock):
            shutil.copytree(instance.root, tmp_path / "copy", symlinks=True)
            code, err = ended(process("send", "hello", folder=tmp_path / "copy"))
        assert (code, asked) == (2, [])
        assert f"the daemon of {tmp_path / 'copy'} is not running" in err


def on_port(instance: Instance, port: int) -> None:
    text = instance.config.read_text("utf-8")
    instance.config.write_text(text.replace("port = 7999", f"port = {port}"), "utf-8")
