# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Receivers of Airflow's metrics, which are programs that people use, and what they have received.

StatsD is collectd's. It does not know tags, keeps those of InfluxDB's format as a part of the name, and keeps
127 characters of that. That of OpenTelemetry is :mod:`.otlp_collector`.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from cluster_lab.managed_process import run_process
from cluster_lab.ports import LOOPBACK, free_port
from testbed.otlp_collector import START_TIMEOUT, Collector

PREFIX = "airflow."
"""What Airflow puts before each name."""

COLLECTD = shutil.which("collectd", path="/usr/sbin:/usr/bin")
"""Debian's package collectd-core; None if it is not there."""

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
    with run_process("collectd", command, home) as process:
        process.wait_until("it listens", lambda: "Listening on" in process.tail(), START_TIMEOUT)
        yield server


class OpenTelemetryReceiver:
    """Metrics that a collector of OpenTelemetry has received."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    @property
    def configuration(self) -> Mapping[str, str]:
        """Environment variables by which Airflow sends its metrics here."""
        return {
            "AIRFLOW__METRICS__OTEL_ON": "True",
            "AIRFLOW__METRICS__OTEL_HOST": LOOPBACK,
            "AIRFLOW__METRICS__OTEL_PORT": str(self._collector.port),
            "AIRFLOW__METRICS__OTEL_INTERVAL_MILLISECONDS": "1000",
            # Each process says what it has counted since it last did: a worker counts from nothing.
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta",
        }

    def received(self) -> Counts:
        """Return how often each metric that counts was counted, up to now."""
        found = Counts()
        for metric, point in self._collector.counts():
            tags = {item.key: item.value.string_value for item in point.attributes}
            found[Metric.of(metric.name.removeprefix(PREFIX), **tags)] += point.as_int or int(point.as_double)
        return found
