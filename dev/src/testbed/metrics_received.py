# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Receivers of Airflow's metrics, which are programs that people use, and what they have received.

StatsD is collectd's. It does not know tags, keeps those of InfluxDB's format as a part of the name, and keeps
127 characters of that. That of OpenTelemetry is the collector Rotel, which passes on what it has received; it
is decoded here.
"""

from __future__ import annotations

import gzip
import shutil
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, Protocol

import rotel
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from cluster_lab.managed_process import ManagedProcess, inherited_environment
from cluster_lab.ports import LOOPBACK, free_port

PREFIX = "airflow."
"""What Airflow puts before each name."""

COLLECTD = shutil.which("collectd", path="/usr/sbin:/usr/bin")
"""Debian's package collectd-core; None if it is not there."""

START_TIMEOUT = 30.0

_COLLECTD_CONFIGURATION = """\
Hostname "airflow"
BaseDir "{home}"
PIDFile "{home}/collectd.pid"
TypesDB "/usr/share/collectd/types.db"
Interval 1
LoadPlugin statsd
LoadPlugin csv
<Plugin statsd>
  Host "{host}"
  Port "{port}"
</Plugin>
<Plugin csv>
  DataDir "{home}/csv"
  StoreRates false
</Plugin>
"""


class Metric(NamedTuple):
    """What is counted, with its tags."""

    name: str
    """Without Airflow's prefix."""
    tags: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, name: str, **tags: str) -> Metric:
        """Make one."""
        return cls(name, frozenset(tags.items()))


Counts = Counter[Metric]


class Receiver(Protocol):
    """Receives metrics while a deployment runs."""

    @property
    def configuration(self) -> Mapping[str, str]:
        """Environment variables by which Airflow sends its metrics here."""

    def received(self) -> Counts:
        """Return how often each metric that counts was counted, up to now."""


class StatsdServer:
    """
    The StatsD server of collectd.

    :param home: where it writes what it has received
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self.port = free_port()

    @property
    def configuration(self) -> Mapping[str, str]:
        """Environment variables by which Airflow sends its metrics here."""
        return {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": LOOPBACK,
            "AIRFLOW__METRICS__STATSD_PORT": str(self.port),
            "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
        }

    def received(self) -> Counts:
        """Return how often each metric that counts was counted, up to now."""
        found = Counts()
        for file in self._home.glob("csv/*/statsd/derive-*"):
            # A file for each day; its lines have the time and the number since the server was started.
            key = file.name.removeprefix("derive-")[: -len("-2026-11-23")]
            numbers = [line.partition(",")[2] for line in file.read_text().splitlines()[1:]]
            metric = _parse(key)
            found[metric] = max([found[metric], *(int(float(number)) for number in numbers if number)])
        return found


def _parse(key: str) -> Metric:
    name, *tags = key.split(",")
    return Metric(name.removeprefix(PREFIX), frozenset((tag.partition("=")[::2]) for tag in tags))


@contextmanager
def statsd(home: Path) -> Iterator[StatsdServer]:
    """Run a StatsD server in the block; there has to be a :data:`COLLECTD`."""
    server = StatsdServer(home)
    configuration = home / "collectd.conf"
    configuration.write_text(_COLLECTD_CONFIGURATION.format(home=home, host=LOOPBACK, port=server.port))
    command = [str(COLLECTD), "-f", "-C", str(configuration)]
    with _running("collectd", command, home) as process:
        process.wait_until(lambda: "Listening on" in process.tail(), START_TIMEOUT)
        yield server


class _Sink(ThreadingHTTPServer):
    """Keeps what it is sent in requests of OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), _Handler)
        self.requests: list[ExportMetricsServiceRequest] = []


class _Handler(BaseHTTPRequestHandler):
    server: _Sink

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.requests.append(ExportMetricsServiceRequest.FromString(body))
        answer = ExportMetricsServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: Any) -> None:
        pass


class OpenTelemetryCollector:
    """
    The OpenTelemetry collector Rotel.

    :param requests: what it passes on
    """

    def __init__(self, requests: list[ExportMetricsServiceRequest]) -> None:
        self._requests = requests
        self.port = free_port()

    @property
    def configuration(self) -> Mapping[str, str]:
        """Environment variables by which Airflow sends its metrics here."""
        return {
            "AIRFLOW__METRICS__OTEL_ON": "True",
            "AIRFLOW__METRICS__OTEL_HOST": LOOPBACK,
            "AIRFLOW__METRICS__OTEL_PORT": str(self.port),
            "AIRFLOW__METRICS__OTEL_INTERVAL_MILLISECONDS": "1000",
            # Each process says what it has counted since it last did: a worker counts from nothing.
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta",
        }

    def received(self) -> Counts:
        """Return how often each metric that counts was counted, up to now."""
        found = Counts()
        for request in list(self._requests):
            for metric, point in _points(request):
                tags = {item.key: item.value.string_value for item in point.attributes}
                name = metric.name.removeprefix(PREFIX)
                found[Metric.of(name, **tags)] += point.as_int or int(point.as_double)
        return found


def _points(request: ExportMetricsServiceRequest) -> Iterator[tuple[Any, Any]]:
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                yield from ((metric, point) for point in metric.sum.data_points)


@contextmanager
def opentelemetry(home: Path) -> Iterator[OpenTelemetryCollector]:
    """Run a collector in the block."""
    sink = _Sink()
    thread = Thread(target=sink.serve_forever)
    thread.start()
    collector = OpenTelemetryCollector(sink.requests)
    options = {
        "otlp-http-endpoint": f"{LOOPBACK}:{collector.port}",
        "otlp-grpc-endpoint": f"{LOOPBACK}:{free_port()}",
        "exporter": "otlp",
        "otlp-exporter-protocol": "http",
        "otlp-exporter-endpoint": f"http://{LOOPBACK}:{sink.server_port}",
    }
    agent = Path(rotel.__file__).with_name("rotel-agent")
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    try:
        with _running("rotel", [str(agent), "start", *words, "--disable-batching"], home) as process:
            process.wait_until(lambda: _listens(collector.port), START_TIMEOUT)
            yield collector
    finally:
        sink.shutdown()
        thread.join()
        sink.server_close()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


@contextmanager
def _running(name: str, command: list[str], home: Path) -> Iterator[ManagedProcess]:
    process = ManagedProcess(name, command, inherited_environment(), home / f"{name}.log")
    process.start()
    try:
        yield process
    finally:
        process.stop()
