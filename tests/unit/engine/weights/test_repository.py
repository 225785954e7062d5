"""The makers' repository, through its real client against a stand-in for its server."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from rucher.engine import weights
from rucher.engine.weights import ensure
from rucher.engine.weights.sources import Repository
from rucher.protocol.errors import Permanent, Retryable

CONTENT = b"GGUF" + bytes(range(256)) * 4000
PINNED = replace(weights.SMALL, filename="tiny.gguf", size=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


class Hub(BaseHTTPRequestHandler):
    """Serves one file as large files are served there, and notes what it is asked."""

    content = CONTENT
    asked: list[str]

    def do_HEAD(self) -> None:
        self._say(b"")

    def do_GET(self) -> None:
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        self._say(self.content[start:], start)

    def _say(self, body: bytes, start: int = 0) -> None:
        self.asked.append(f"{self.command} {self.path} {self.headers.get('Authorization')}")
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{hashlib.sha256(self.content).hexdigest()}"')
        self.send_header("X-Repo-Commit", "a" * 40)
        self.send_header("Content-Length", str(len(self.content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def hub(content: bytes = CONTENT) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("OneHub", (Hub,), {"content": content, "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_file_comes_with_progress_and_without_anybodys_token(tmp_path: Path) -> None:
    told: list[int] = []
    with hub() as (endpoint, asked):
        path = ensure(PINNED, tmp_path, lambda done, _size, _what: told.append(done), [Repository(endpoint)])
    assert path.read_bytes() == CONTENT
    assert max(told) == len(CONTENT)
    assert all("/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/tiny.gguf None" in line for line in asked)


def test_another_file_under_the_same_name_is_refused_before_it_is_downloaded(tmp_path: Path) -> None:
    with hub(b"X" * len(CONTENT)) as (endpoint, asked), pytest.raises(Permanent, match="not the pinned one"):
        Repository(endpoint).fetch(PINNED, tmp_path, lambda *_: None)
    assert [line.split()[0] for line in asked] == ["HEAD"]


def test_what_progress_raises_stops_the_download(tmp_path: Path) -> None:
    def stop(done: int, _size: int, _what: str) -> None:
        if done:
            raise KeyboardInterrupt

    with hub() as (endpoint, _), pytest.raises(KeyboardInterrupt):
        Repository(endpoint).fetch(PINNED, tmp_path, stop)


def test_nobody_there_is_one_short_line_at_once(tmp_path: Path) -> None:
    with hub() as (endpoint, _):
        pass
    with pytest.raises(Retryable) as failed:
        Repository(endpoint).fetch(PINNED, tmp_path, lambda *_: None)
    assert 0 < len(str(failed.value)) <= 200
    assert "\n" not in str(failed.value)
