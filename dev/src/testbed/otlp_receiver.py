# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
An endpoint that receives traces by OTLP over HTTP, as a collector does, and keeps them for a test.

.. seealso:: https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

PATH = "/v1/traces"


@dataclass(frozen=True)
class ReceivedSpan:
    """A span, as it was received."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty for a root."""
    attributes: dict[str, Any]
    events: dict[str, int]
    """Times by name, in nanoseconds since 1970, as are the next two."""
    start: int
    end: int
    has_failed: bool


class OtlpReceiver(ThreadingHTTPServer):
    """Receives traces at ``url``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[ReceivedSpan] = []
        """In the order of their arrival."""

    @property
    def url(self) -> str:
        """What ``OTEL_EXPORTER_OTLP_ENDPOINT`` has to be."""
        return f"http://127.0.0.1:{self.server_port}"

    def named(self, name: str) -> list[ReceivedSpan]:
        """Return the spans of a name, by their start."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.start)


class _Handler(BaseHTTPRequestHandler):
    server: OtlpReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.path == PATH:
            self.server.spans.extend(_read(body))
        answer = ExportTraceServiceResponse().SerializeToString() if self.path == PATH else b""
        self.send_response(200 if self.path == PATH else 404)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_request(self, *args: Any) -> None:
        """Say nothing: a request is not worth a line."""


@contextmanager
def open_otlp_receiver() -> Iterator[OtlpReceiver]:
    """Receive traces until the end of the context."""
    with OtlpReceiver() as receiver:
        thread = Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join()


def _read(body: bytes) -> Iterator[ReceivedSpan]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in resource.scope_spans:
            yield from map(_span, scope.spans)


def _span(span: Span) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        attributes={item.key: _value(item.value) for item in span.attributes},
        events={event.name: event.time_unix_nano for event in span.events},
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        has_failed=span.status.code == span.status.STATUS_CODE_ERROR,
    )


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None
