"""A receiver of OTLP/HTTP that refuses all that the protocol refuses, over a real socket.

What is checked: https://opentelemetry.io/docs/specs/otlp/#otlphttp and the comments of trace.proto.
"""

import http.server
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2
from typing_extensions import override


class Receiver(http.server.ThreadingHTTPServer):
    """Takes spans at `/v1/traces`. `answers` are statuses (with headers) to give first, `spans` what was taken, in order."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, _Handler)
        self.spans: list[trace_pb2.Span] = []
        self.resources: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.rejects = 0
        self.lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def named(self, name: str) -> trace_pb2.Span:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def take(self, request: ExportTraceServiceRequest) -> None:
        """Keep the spans; what is wrong with one of them is a fault."""
        for of_resource in request.resource_spans:
            self.resources.append(attributes(of_resource.resource.attributes))
            for scope in of_resource.scope_spans:
                for span in scope.spans:
                    self.faults += [f"{span.name}: {fault}" for fault in faults_of(span)]
                    self.spans.append(span)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        with self.server.lock:
            self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, headers = self.server.answers.pop(0) if self.server.answers else (self._judged(body), {})
        answer = ExportTraceServiceResponse()
        if self.server.rejects:
            answer.partial_success.rejected_spans = self.server.rejects
            answer.partial_success.error_message = "too many"
        content = answer.SerializeToString() if status == 200 else b""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _judged(self, body: bytes) -> int:
        if self.path != "/v1/traces":
            return 404
        if self.headers.get("content-type") != "application/x-protobuf":
            return 415
        try:
            request = ExportTraceServiceRequest.FromString(body)
        except DecodeError:
            return 400
        self.server.take(request)
        return 200

    @override
    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


def faults_of(span: trace_pb2.Span) -> Iterator[str]:
    """What the comments of trace.proto forbid."""
    if len(span.trace_id) != 16 or not any(span.trace_id):
        yield "its trace id is not 16 bytes, or all zero"
    if len(span.span_id) != 8 or not any(span.span_id):
        yield "its id is not 8 bytes, or all zero"
    if span.parent_span_id and (len(span.parent_span_id) != 8 or span.parent_span_id == span.span_id):
        yield "its parent is not 8 bytes, or itself"
    if not span.name or span.kind == trace_pb2.Span.SPAN_KIND_UNSPECIFIED:
        yield "it has no name or no kind"
    if not 10**18 < span.start_time_unix_nano <= span.end_time_unix_nano < 10**19:
        yield "its times are no nanoseconds, or it ends before it begins"
    yield from _faults_of_attributes(span)


def _faults_of_attributes(span: trace_pb2.Span) -> Iterator[str]:
    keys = [one.key for one in span.attributes]
    if len(keys) != len(set(keys)) or not all(keys):
        yield "a key is empty or there twice"
    if any(one.value.WhichOneof("value") is None for one in span.attributes):
        yield "an attribute has no value"
    if span.status.message and span.status.code != trace_pb2.Status.STATUS_CODE_ERROR:
        yield "it has a message without an error"


def attributes(values: Sequence[KeyValue] | Any) -> dict[str, Any]:
    """The attributes as Python has them."""
    return {one.key: _value(one.value) for one in values}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return None if kind is None else getattr(value, kind)


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """A receiver that takes spans until the block is left."""
    with Receiver(("127.0.0.1", port)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
