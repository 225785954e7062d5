"""A TCP proxy in front of a PostgreSQL server, which cuts connections at the moments that matter.

It reads just enough of the wire protocol, version 3, to know when a client asks for a commit: a COMMIT, or a writing
statement outside a transaction. What happens to that request and to its connection then is a `Cut`.
"""

import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from io import BufferedReader
from typing import Self

WRITES = r"\b(INSERT|UPDATE|DELETE|MERGE)\b"
"""What a statement outside a transaction holds when it asks for a commit."""
_COMMITS = re.compile(r"\s*(COMMIT|END)\b", re.IGNORECASE)
_PARTS = {b"P", b"B", b"D", b"E", b"C"}
"""The kinds of message that wait for a Sync or a Flush."""
_SSL_REQUESTS = {80877103, 80877104}
_PATIENCE_S = 20.0


class Cut(Enum):
    """What becomes of the request to commit whose connection is cut."""

    BEFORE = "the server never sees it"
    AFTER = "the server has carried it out, and its answer is lost"
    RACING = "the server gets it at the moment of the cut"
    LATE = "the server gets it when `release` is called: until then it is on its way"


class Cutter:
    """The proxy, listening on `port` while it is entered; it forwards everything until it is told otherwise."""

    def __init__(self, target: int) -> None:
        """`target` is the server's port on 127.0.0.1."""
        self.delay_s = 0.0
        """How long each answer of the server is held back."""
        self.refusing = False
        """Whether new connections are closed at once."""
        self.cuts = 0
        """How many connections were cut at a request to commit."""
        self._target = target
        self._armed: Cut | None = None
        self._writing = re.compile(WRITES, re.IGNORECASE)
        self._lock = threading.Lock()
        self._release = threading.Event()
        self._ended = threading.Event()
        self._connections: list[_Connection] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._release.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(_PATIENCE_S)

    def cut(self) -> None:
        """Cut every connection now."""
        for connection in self._connections:
            connection.cut()

    def cut_at_commit(self, cut: Cut, writing: str = WRITES) -> None:
        """Cut the next connection that asks for a commit; `writing` is a pattern of its autocommitted statements."""
        self._release.clear()
        self._writing = re.compile(writing, re.IGNORECASE)
        self._armed = cut

    def release(self) -> None:
        """Let what `Cut.LATE` held back reach the server; returns when the server has answered it, or hung up long ago."""
        self._release.set()
        for connection in self._connections:
            if connection.deaf:
                assert connection.over.wait(_PATIENCE_S), "the server did not answer what came late"

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            for link in (client, server):
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(client, server)
            self._connections.append(connection)
            self._start(self._serve, connection)

    def _start(self, act: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=act, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)
        return thread

    def _serve(self, connection: "_Connection") -> None:
        with connection.client, connection.server:
            answers = self._start(self._answers, connection)
            self._requests(connection)
            answers.join()

    def _requests(self, connection: "_Connection") -> None:
        with connection.closing():
            for request in connection.requests():
                cut = self._take() if connection.asks_to_commit(self._writing) else None
                if cut is None:
                    connection.server.sendall(request)
                else:
                    self._cut_at(connection, request, cut)
                    return

    def _take(self) -> Cut | None:
        """The cut that was ordered; one connection takes it, however many ask at once."""
        with self._lock:
            cut, self._armed = self._armed, None
            self.cuts += cut is not None
            return cut

    def _cut_at(self, connection: "_Connection", request: bytes, cut: Cut) -> None:
        connection.deaf = True
        match cut:
            case Cut.BEFORE:
                pass
            case Cut.AFTER:
                connection.server.sendall(request)
                assert connection.answered.wait(_PATIENCE_S), "the server did not answer"
            case Cut.RACING:
                connection.server.sendall(request)
            case Cut.LATE:
                _end(connection.client)
                self._release.wait()
                connection.server.sendall(request)
                connection.over.wait(_PATIENCE_S)

    def _answers(self, connection: "_Connection") -> None:
        with connection.closing():
            for message in connection.answers():
                if self.delay_s:
                    self._ended.wait(self.delay_s)
                if not connection.deaf:
                    connection.client.sendall(message)
        connection.over.set()


@dataclass(slots=True, eq=False)
class _Connection:
    """One client's way to the server, and what is known of where its conversation stands."""

    client: socket.socket
    server: socket.socket
    deaf: bool = False
    """Whether the server's answers are thrown away."""
    answered: threading.Event = field(default_factory=threading.Event)
    """Whether the server has answered a request since the connection became deaf."""
    over: threading.Event = field(default_factory=threading.Event)
    """Whether nothing more will come of it: the server has answered so, or has hung up."""
    in_transaction: bool = False
    plain_answer: bool = False
    prepared: dict[str, str] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """The statements of the request that `requests` yielded last."""

    def requests(self) -> Iterator[bytes]:
        """What the client says, in pieces that a network would carry whole: a query is one, from Parse to Sync."""
        with self.client.makefile("rb") as stream:
            yield from self._greeting(stream)
            request = b""
            self.asked = []
            while message := _message(stream):
                request += message
                self._note(message[:1], _texts(message[5:]))
                if message[:1] not in _PARTS:
                    yield request
                    request = b""
                    self.asked = []

    def _greeting(self, stream: BufferedReader) -> Iterator[bytes]:
        """The messages without a kind that start a connection; one may ask for encryption first."""
        while len(length := stream.read(4)) == 4:
            body = stream.read(int.from_bytes(length) - 4)
            self.plain_answer = int.from_bytes(body[:4]) in _SSL_REQUESTS
            asks = self.plain_answer
            yield length + body
            if not asks:
                return

    def _note(self, kind: bytes, texts: Sequence[str]) -> None:
        match kind:
            case b"Q":
                self.asked += texts[0].split(";")
            case b"P":
                self.prepared[texts[0]] = texts[1]
            case b"B":
                self.bound[texts[0]] = self.prepared[texts[1]]
            case b"E":
                self.asked.append(self.bound[texts[0]])
            case _:
                pass

    def answers(self) -> Iterator[bytes]:
        """What the server says, message by message."""
        with self.server.makefile("rb") as stream:
            while stream.peek(1):
                if self.plain_answer:
                    self.plain_answer = False
                    yield stream.read(1)
                elif message := _message(stream):
                    if message[:1] == b"Z":
                        self._is_ready(in_transaction=message[5:6] != b"I")
                    yield message

    def asks_to_commit(self, writing: re.Pattern[str]) -> bool:
        """Whether the server, once it has the request, commits what `writing` is about."""
        if any(_COMMITS.match(statement) for statement in self.asked):
            return True
        return not self.in_transaction and any(writing.search(statement) for statement in self.asked)

    def cut(self) -> None:
        """Cut both ways."""
        _end(self.client)
        _end(self.server)

    @contextmanager
    def closing(self) -> Iterator[None]:
        """When one way ends, the other one does."""
        try:
            yield
        except OSError:
            pass
        finally:
            self.cut()

    def _is_ready(self, *, in_transaction: bool) -> None:
        self.in_transaction = in_transaction
        if self.deaf:
            self.answered.set()
            self.over.set()


def _message(stream: BufferedReader) -> bytes | None:
    """The next message: a byte for its kind, its length with these four bytes, its body; None at the end."""
    head = stream.read(5)
    if len(head) < 5:
        return None
    return head + stream.read(int.from_bytes(head[1:]) - 4)


def _texts(body: bytes) -> list[str]:
    """The zero-terminated texts that a body starts with, and whatever the rest of it makes."""
    return body.decode("utf-8", "replace").split("\0")


def _end(link: socket.socket) -> None:
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
