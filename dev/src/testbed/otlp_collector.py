# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The OpenTelemetry collector Rotel, and what it has received of a deployment.

It passes on what it receives, by OTLP over HTTP, and that is decoded here.

.. seealso:: https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

from __future__ import annotations

import gzip
import socket
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import rotel
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from cluster_lab.managed_process import run_process
from cluster_lab.ports import LOOPBACK, free_port

START_TIMEOUT = 30.0

_Request = ExportTraceServiceRequest | ExportMetricsServiceRequest

_REQUESTS: Mapping[str, Callable[[bytes], _Request]] = {
    "/v1/traces": ExportTraceServiceRequest.FromString,
    "/v1/metrics": ExportMetricsServiceRequest.FromString,
}


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


class Collector:
    """What a collector that runs has received."""

    def __init__(self, sink: _Sink) -> None:
        self._sink = sink
        self.port = free_port()

    @property
    def url(self) -> str:
        """What ``OTEL_EXPORTER_OTLP_ENDPOINT`` has to be."""
        return f"http://{LOOPBACK}:{self.port}"

    def spans(self, name: str) -> list[ReceivedSpan]:
        """Return the spans of a name, by their start."""
        found = [
            _span(span)
            for request in list(self._sink.requests)
            if isinstance(request, ExportTraceServiceRequest)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
            if span.name == name
        ]
        return sorted(found, key=lambda span: span.start)

    def counts(self) -> Iterator[tuple[Metric, NumberDataPoint]]:
        """Return each value of each metric that counts."""
        for request in list(self._sink.requests):
            if isinstance(request, ExportMetricsServiceRequest):
                for resource in request.resource_metrics:
                    for scope in resource.scope_metrics:
                        for metric in scope.metrics:
                            yield from ((metric, point) for point in metric.sum.data_points)


@contextmanager
def open_collector(home: Path) -> Iterator[Collector]:
    """
    Run a collector in the block.

    :param home: where its log is written
    """
    sink = _Sink()
    thread = Thread(target=sink.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    collector = Collector(sink)
    options = {
        "otlp-http-endpoint": f"{LOOPBACK}:{collector.port}",
        "otlp-grpc-endpoint": f"{LOOPBACK}:{free_port()}",
        "exporter": "otlp",
        "otlp-exporter-protocol": "http",
        "otlp-exporter-endpoint": f"http://{LOOPBACK}:{sink.server_port}",
    }
    agent = Path(rotel.__file__).with_name("rotel-agent")
    # It links to Python's shared library, which the system's loader does not find for every installed Python.
    env = {"LD_LIBRARY_PATH": sysconfig.get_config_var("LIBDIR")}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    try:
        with run_process("rotel", [str(agent), "start", *words, "--disable-batching"], home, env) as process:
            process.wait_until("it listens", lambda: _listens(collector.port), START_TIMEOUT)
            yield collector
    finally:
        sink.shutdown()
        thread.join()
        sink.server_close()


class _Sink(ThreadingHTTPServer):
    """Keeps what the collector passes on."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), _Handler)
        self.requests: list[_Request] = []


class _Handler(BaseHTTPRequestHandler):
    server: _Sink

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if read := _REQUESTS.get(self.path):
            self.server.requests.append(read(body))
        # An answer without content says that all of it was taken.
        self.send_response(200 if read else 404)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_request(self, *args: Any) -> None:
        """Say nothing: a request is not worth a line."""


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


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
