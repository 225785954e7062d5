"""Sends spans to a receiver of OpenTelemetry by OTLP/HTTP in protobuf, and says what became of them.

Called by `rucher.daemon.telemetry`, which imports it only when spans are to be sent. It never tries again by itself. Protocol:
https://opentelemetry.io/docs/specs/otlp/#otlphttp.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import httpx2
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from rucher import __version__
from rucher.daemon import genai
from rucher.daemon.spans import Span, Value
from rucher.protocol.errors import Permanent, Retryable
from rucher.protocol.ids import decode

PATH = "/v1/traces"
TIMEOUT_S = 10.0
_NS = 1000
_LATER = frozenset({
    HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT,
})  # fmt: skip
"""What the protocol lets a sender try again."""
_MOST_RETRY_AFTER_S = 300.0


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where spans go: `endpoint` as in http://127.0.0.1:4318, and the headers to send along."""

    endpoint: str
    headers: Mapping[str, str]
    instance: str
    client: httpx2.AsyncClient

    async def send(self, spans: Sequence[Span]) -> str:
        """Hand the spans over; returns what the receiver complained of, if it took them (or some of them) all the same.

        Raises Retryable when it cannot take them now, Permanent when it never will.
        """
        content = await asyncio.to_thread(encoded, spans, self.instance)
        headers = {**self.headers, "content-type": "application/x-protobuf"}
        try:
            answer = await self.client.post(self.endpoint.rstrip("/") + PATH, content=content, headers=headers)
        except httpx2.HTTPError as error:
            raise Retryable(f"the OpenTelemetry receiver cannot be reached ({type(error).__name__})") from error
        except httpx2.InvalidURL as error:
            raise Permanent(f"otel.endpoint is no address: {error}") from error
        return _judged(answer)


def open_client() -> httpx2.AsyncClient:
    """A client that follows no redirect, which could carry the headers elsewhere, and reads no proxy from the environment."""
    return httpx2.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False)


def encoded(spans: Sequence[Span], instance: str) -> bytes:
    """The body of an export request."""
    resource = {"service.name": "rucher", "service.version": __version__, "service.instance.id": instance}
    scope = trace_pb2.ScopeSpans(
        scope=InstrumentationScope(name="rucher", version=__version__), spans=[_span(span) for span in spans]
    )
    return ExportTraceServiceRequest(
        resource_spans=[
            trace_pb2.ResourceSpans(resource=Resource(attributes=_attributes(resource)), scope_spans=[scope])
        ]
    ).SerializeToString()


def _span(span: Span) -> trace_pb2.Span:
    failed = {genai.ERROR: span.error} if span.error else {}
    code = trace_pb2.Status.STATUS_CODE_ERROR if span.error else trace_pb2.Status.STATUS_CODE_UNSET
    return trace_pb2.Span(
        trace_id=decode(span.trace).to_bytes(16, "big"),
        span_id=span.id.to_bytes(8, "big"),
        parent_span_id=b"" if span.parent is None else span.parent.to_bytes(8, "big"),
        name=span.name,
        kind=trace_pb2.Span.SpanKind.Value(f"SPAN_KIND_{span.kind}"),
        start_time_unix_nano=span.start * _NS,
        end_time_unix_nano=span.end * _NS,
        attributes=_attributes({**span.attributes, **failed}),
        status=trace_pb2.Status(code=code, message=span.message),
    )


def _attributes(values: Mapping[str, Value]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in values.items()]


def _value(value: Value) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case str():
            return AnyValue(string_value=_utf8(value))
        case _:
            return AnyValue(array_value=ArrayValue(values=[_value(one) for one in value]))


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _judged(answer: httpx2.Response) -> str:
    status = answer.status_code
    if status in _LATER:
        raise Retryable(
            f"the OpenTelemetry receiver answers {status}", _retry_after(answer.headers.get("retry-after", ""))
        )
    if status != HTTPStatus.OK:
        raise Permanent(f"the OpenTelemetry receiver refuses the spans with {status}")
    try:
        partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    except DecodeError:
        return "" if not answer.content else "it answers something else than OTLP"
    if partial.rejected_spans:
        return f"it rejected {partial.rejected_spans} spans: {partial.error_message}"
    return partial.error_message


def _retry_after(header: str) -> float | None:
    """Seconds; a date, which the protocol also allows, counts as none given."""
    return min(float(header), _MOST_RETRY_AFTER_S) if header.isascii() and header.isdigit() else None
