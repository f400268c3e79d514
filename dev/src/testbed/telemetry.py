# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Receivers of Airflow's traces and metrics: OTLP over HTTP, and StatsD with tags in InfluxDB's format.

.. seealso:: https://opentelemetry.io/docs/specs/otlp/#otlphttp, https://github.com/statsd/statsd
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, BaseServer, UDPServer
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from cluster_lab.ports import LOOPBACK

Server = TypeVar("Server", bound=BaseServer)

PREFIX = "airflow."
"""What Airflow puts before the name of each metric."""


class Metric(NamedTuple):
    """A counter, with its tags."""

    name: str
    """Without Airflow's prefix."""
    tags: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, name: str, **tags: str) -> Metric:
        """Make one."""
        return cls(name.removeprefix(PREFIX), frozenset(tags.items()))


Counts = Counter[Metric]


class Collector(ThreadingHTTPServer):
    """Receives OTLP, and keeps all of it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), _OtlpHandler)
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []

    @property
    def url(self) -> str:
        """What ``OTEL_EXPORTER_OTLP_ENDPOINT`` has to be."""
        return f"http://{LOOPBACK}:{self.server_port}"

    @property
    def configuration(self) -> Mapping[str, str]:
        """Environment variables by which Airflow sends its metrics here."""
        return {
            "AIRFLOW__METRICS__OTEL_ON": "True",
            "AIRFLOW__METRICS__OTEL_HOST": LOOPBACK,
            "AIRFLOW__METRICS__OTEL_PORT": str(self.server_port),
            "AIRFLOW__METRICS__OTEL_INTERVAL_MILLISECONDS": "1000",
            # Each process says what it has counted since it last did: a worker counts from nothing.
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta",
        }

    def spans(self, name: str) -> list[Span]:
        """Return the spans of a name, by their start."""
        found = [
            span
            for request in list(self.traces)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
            if span.name == name
        ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def counts(self) -> Counts:
        """Return how often each metric that counts was counted, up to now."""
        found = Counts()
        for request in list(self.metrics):
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        for point in metric.sum.data_points:
                            tags = {item.key: item.value.string_value for item in point.attributes}
                            found[Metric.of(metric.name, **tags)] += point.as_int or int(point.as_double)
        return found


class _OtlpHandler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/traces":
            self.server.traces.append(ExportTraceServiceRequest.FromString(body))
        elif self.path == "/v1/metrics":
            self.server.metrics.append(ExportMetricsServiceRequest.FromString(body))
        # An answer without content says that all of it was taken.
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_request(self, *args: Any) -> None:
        """Say nothing: a request is not worth a line."""


class StatsdServer(UDPServer):
    """Receives StatsD, and keeps what counts."""

    max_packet_size = 65_535

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), _StatsdHandler)
        self.lines: list[str] = []

    @property
    def configuration(self) -> Mapping[str, str]:
        """Environment variables by which Airflow sends its metrics here."""
        return {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": LOOPBACK,
            "AIRFLOW__METRICS__STATSD_PORT": str(self.server_address[1]),
            "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
        }

    def counts(self) -> Counts:
        """Return how often each metric that counts was counted, up to now."""
        found = Counts()
        for line in list(self.lines):
            key, _, value = line.partition(":")
            number, kind = value.split("|")[:2]
            name, *tags = key.split(",")
            if kind == "c":
                found[Metric.of(name, **dict(tag.split("=", 1) for tag in tags))] += int(float(number))
        return found


class _StatsdHandler(BaseRequestHandler):
    server: StatsdServer

    def handle(self) -> None:
        self.server.lines += self.request[0].decode().splitlines()


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Have a server answer in a thread as long as the block lasts."""
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def attributes_of(span: Span) -> dict[str, Any]:
    """Return the attributes of a span, by their names."""
    return {item.key: getattr(item.value, item.value.WhichOneof("value") or "") for item in span.attributes}
