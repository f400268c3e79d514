# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What every measurement runs on: one control plane and one PostgreSQL, and for each a clean slate."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from benchmarks.candidates import Candidate, airflow_environment
from benchmarks.cluster import Cluster, PodName, open_cluster
from benchmarks.database import Database, Databases
from benchmarks.executor_process import ExecutorProcess, open_executor
from benchmarks.metrics import total_since
from benchmarks.pods import worker_pod
from benchmarks.relay import Relay, open_relay
from benchmarks.scheduler_process import SchedulerProcess, open_scheduler
from cluster_lab.apiserver.testing import running_server
from cluster_lab.control_plane import ControlPlane
from cluster_lab.managed_process import inherited_environment
from cluster_lab.postgres import EmbeddedPostgres


@dataclass(frozen=True)
class Round:
    """A measurement of one candidate: an empty cluster, a fresh database, and a way to the cluster."""

    candidate: Candidate
    size: int
    home: Path
    cluster: Cluster
    database: Database
    relay: Relay

    def scheduler(self) -> AbstractContextManager[SchedulerProcess]:
        """Run a real scheduler with the candidate."""
        return open_scheduler(self._environment(), self.home)

    def executor(self, job_id: int) -> AbstractContextManager[ExecutorProcess]:
        """Run the candidate in a clean process."""
        return open_executor(self._environment(), job_id, self.home / "driver.log")

    def make_pods(self, owner: int, indices: slice = slice(None)) -> list[PodName]:
        """
        Create a pod for each task instance, launched by a scheduler job.

        :param indices: the map indices of those that are to have one
        """
        ids = list(enumerate(self.database.ti_ids()))[indices]
        return self.cluster.create(worker_pod(index, ti_id, owner) for index, ti_id in ids)

    @contextmanager
    def costs(self, values: dict[str, float]) -> Iterator[None]:
        """Add what the block has cost the API server, for each task, to some values."""
        before, passed = self.cluster.requests(), self.relay.bytes
        yield
        if after := self.cluster.requests():
            values["requests_per_task"] = total_since(before, after) / self.size
        values["kilobytes_per_task"] = (self.relay.bytes - passed) / self.size / 1000

    def _environment(self) -> dict[str, str]:
        kubeconfig = self.home / "kubeconfig"
        self.relay.write_kubeconfig(kubeconfig)
        environment = airflow_environment(self.candidate, self.home, self.database.url, kubeconfig)
        return inherited_environment() | environment


class Lab:
    """Made by :func:`open_lab`."""

    def __init__(self, home: Path, kubeconfig: Path, databases: Databases, cluster: Cluster) -> None:
        self._home = home
        self._kubeconfig = kubeconfig
        self._databases = databases
        self._cluster = cluster
        self._numbers = count(1)

    @contextmanager
    def round(self, candidate: Candidate, size: int) -> Iterator[Round]:
        """
        Prepare a measurement.

        :param size: how many task instances there are
        """
        home = self._home / f"round-{next(self._numbers)}"
        home.mkdir()
        with ExitStack() as stack:
            database = self._databases.make(size)
            stack.callback(database.close)
            stack.callback(self._cluster.clear)
            relay = stack.enter_context(open_relay(self._kubeconfig))
            yield Round(candidate, size, home, self._cluster, database, relay)


@contextmanager
def open_lab(binaries: Path | None) -> Iterator[Lab]:
    """
    Start PostgreSQL and a control plane, and stop them in the end.

    :param binaries: the programs of a real control plane; None: the embedded API server takes its place
    """
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="airflow-benchmark-", ignore_cleanup_errors=True)
        home = Path(stack.enter_context(folder))
        kubeconfig = home / "kubeconfig"
        postgres = stack.enter_context(EmbeddedPostgres())
        if binaries is None:
            server = stack.enter_context(
                running_server(token=secrets.token_urlsafe(16), run_controllers=False)
            )
            server.write_kubeconfig(kubeconfig)
        else:
            (home / "control-plane").mkdir()
            control_plane = stack.enter_context(ControlPlane(binaries, home / "control-plane"))
            control_plane.write_kubeconfig(kubeconfig)
        cluster = stack.enter_context(open_cluster(kubeconfig, has_metrics=binaries is not None))
        yield Lab(home, kubeconfig, Databases(postgres, home), cluster)


def pause(seconds: float) -> None:
    """Let what was begun settle."""
    time.sleep(seconds)
