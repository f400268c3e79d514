# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What every measurement runs on: one control plane, one PostgreSQL, and for each a clean slate."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.cluster import CrowdedCluster, Observer
from benchmarks.pods import EXECUTOR_NAME, MANY, TEMPLATE, pod_name, worker_pod
from cluster_lab.apiserver import ApiServer, running_server
from cluster_lab.control_plane import ControlPlane
from cluster_lab.managed_process import ManagedProcess, inherited_environment, run_well
from cluster_lab.postgres import EmbeddedPostgres
from testbed.airflow_configuration import DeploymentSettings, configuration
from testbed.airflow_deployment import Component
from testbed.code_journal import JsonLines
from testbed.database import execute

UPSTREAM, TUNED, OURS, WITH_BUDGET = "upstream", "upstream tuned", "ours", "ours with budget"

_PROVIDERS = "airflow.providers.cncf"
_OFFICIAL = {"BENCHMARK_EXECUTOR": f"{_PROVIDERS}.kubernetes.executors.kubernetes_executor"}
_OURS = {"BENCHMARK_EXECUTOR": f"{_PROVIDERS}.kubernetes_resilience.executors.kubernetes_executor"}
_BATCH_SIZE = "AIRFLOW__KUBERNETES_EXECUTOR__WORKER_PODS_CREATION_BATCH_SIZE"
_RESILIENCE = "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE"
CANDIDATES = {
    UPSTREAM: _OFFICIAL,
    TUNED: {**_OFFICIAL, _BATCH_SIZE: "300"},
    OURS: _OURS,
    WITH_BUDGET: {**_OURS, f"{_RESILIENCE}_RETRY_BUDGET": "1", f"{_RESILIENCE}_RETRY_DELAY": "0"},
}
"""The executors that are compared, and what differs in their environments."""

MEGABYTE = 2**20
PATIENCE = 900.0
"""Seconds for any one thing, before a candidate is given up."""

_AIRFLOW_SIDE = (sys.executable, "-m", "benchmarks.airflow_side")
_JOB = (
    "INSERT INTO job (job_type, state, latest_heartbeat, start_date, hostname)"
    " VALUES ('SchedulerJob', 'running', now(), now(), 'benchmark') RETURNING id"
)
_STATE = (
    "UPDATE task_instance SET state = :state, try_number = 1, queued_by_job_id = :job_id,"
    " queued_dttm = CASE WHEN :state = 'scheduled' THEN NULL ELSE now() END,"
    " scheduled_dttm = now(), start_date = CASE WHEN :state = 'running' THEN now() END"
)


class AirflowProcess(ManagedProcess):
    """A process of Airflow's with an observed executor; made by a :class:`Round`."""

    def __init__(self, command: list[str], environment: Mapping[str, str], home: Path) -> None:
        notes = home / "notes"
        env = {**environment, "BENCHMARK_NOTES": str(notes)}
        super().__init__("Airflow", command, env, home / "log", stdin=subprocess.PIPE)
        self._notes: JsonLines[dict[str, Any]] = JsonLines(notes, lambda note: note)

    def notes(self, what: str) -> list[dict[str, Any]]:
        """Return what the executor has noted of a kind; ``at`` is in seconds since the epoch."""
        return [note for note in self._notes.read() if note["what"] == what]

    def turns(self, since: float = 0.0) -> list[float]:
        """Return how long each ``sync()`` took that began after a moment, in milliseconds."""
        turns = self.notes("turn")
        return [turn["value"] * 1000 for turn in turns if turn["at"] - turn["value"] >= since]

    def results(self) -> float:
        """Return how many results have been read from the event buffer."""
        return float(sum(note["value"] for note in self.notes("results")))

    def seconds(self, until: float | None = None) -> float:
        """Return the time from the executor's start, by default to when the last result was read."""
        (started,) = self.notes("started")
        return float((until or self.notes("results")[-1]["at"]) - started["at"])

    def tell(self, *command: Any) -> None:
        """Tell ``airflow_side drive`` to do something, and wait until it is done."""
        done = len(self.notes("done"))
        assert self._process
        assert self._process.stdin
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        self.wait_until("it has done what it was told", lambda: len(self.notes("done")) > done, PATIENCE)

    def wait_for_turns(self, turns: int = 3) -> None:
        """Wait until it has turned its loop so often; by default until it idles."""
        wanted = len(self.turns()) + turns
        self.wait_until("it turns its loop", lambda: len(self.turns()) >= wanted, PATIENCE)

    def memory(self) -> float:
        """Return the memory of the process and its children, in MB; a page that they share counts once."""
        return self._sum(lambda process: process.memory_full_info().pss) / MEGABYTE

    def cpu_seconds(self) -> float:
        """Return the processor time, in user and system mode, of the process and its children so far."""
        return self._sum(lambda process: sum(process.cpu_times()[:4]))

    def _sum(self, of: Callable[[psutil.Process], float]) -> float:
        root = psutil.Process(self.pid)
        total = of(root)
        for child in root.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                total += of(child)
        return total


@dataclass(frozen=True)
class Round:
    """A measurement of one candidate: an empty cluster, and a fresh database."""

    size: int
    """How many task instances there are."""
    home: Path
    cluster: CrowdedCluster
    environment: Mapping[str, str]

    def execute(self, statement: str, **parameters: Any) -> list[Any]:
        """Run SQL on the metadata database and return the first column of its rows."""
        return execute(self.environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"], statement, **parameters)

    def set_state(self, state: str, job_id: int | None = None) -> None:
        """
        Put all task instances into a state, in their first try.

        :param job_id: the scheduler that has queued them
        """
        self.execute(_STATE, state=state, job_id=job_id)

    @contextmanager
    def scheduler(self) -> Iterator[AirflowProcess]:
        """Run a real scheduler with the candidate."""
        with self._process(Component.SCHEDULER.command) as process:
            process.wait_for_turns()
            yield process

    def launch_all(self, scheduler: AirflowProcess, observer: Observer) -> float:
        """Let the scheduler launch all tasks, and return when its executor was given the first."""
        self.set_state("scheduled")
        scheduler.wait_for_turns()
        self.execute("UPDATE dag SET is_paused = false")
        scheduler.wait_until("all pods exist", lambda: len(observer.pods) >= self.size, PATIENCE)
        return float(scheduler.notes("work")[0]["at"])

    @contextmanager
    def executor(self, state: str) -> Iterator[AirflowProcess]:
        """
        Run the candidate in a clean process, to be started.

        :param state: of the task instances, which it has queued
        """
        (job_id,) = self.execute(_JOB)
        self.set_state(state, job_id)
        with self._process([*_AIRFLOW_SIDE, "drive", str(job_id)]) as process:
            yield process

    def hold(self, executor: AirflowProcess, indices: slice = slice(None)) -> list[str]:
        """
        Create a pod for each task instance, and make it the executor's.

        :param indices: the map indices of those that are to have one
        :return: the names of the pods
        """
        ids = self.execute("SELECT id || ' ' || queued_by_job_id FROM task_instance ORDER BY map_index")
        chosen = list(enumerate(ids))[indices]
        uids = self.cluster.create(worker_pod(index, *of.split()) for index, of in chosen)
        executor.tell("hold", chosen[0][0], uids)
        return [pod_name(index) for index, _ in chosen]

    def settle(
        self, executor: AirflowProcess, pause: float, settled: Callable[[], float]
    ) -> dict[str, float]:
        """
        Start the executor, wait until it has dealt with all pods, and return what that has cost.

        :param pause: seconds between two turns of the loop
        :param settled: with how many pods it has dealt
        :raises RuntimeError: if there are more results than pods
        """
        costs: dict[str, float] = {}
        with self.costs(costs):
            executor.tell("start", pause)
            executor.wait_until("all pods are dealt with", lambda: settled() >= self.size, PATIENCE)
        if executor.results() > self.size:
            raise RuntimeError(f"{executor.results()} results of {self.size} pods")
        return costs

    @contextmanager
    def costs(self, values: dict[str, float]) -> Iterator[None]:
        """Add what the block has cost the API server, for each task, to some values."""
        before = self.cluster.requests()
        yield
        after = self.cluster.requests()
        if before is not None and after is not None:
            values["requests per task"] = (after - before) / self.size

    @contextmanager
    def _process(self, command: list[str]) -> Iterator[AirflowProcess]:
        process = AirflowProcess(command, self.environment, self.home)
        process.start()
        try:
            yield process
        finally:
            process.stop(timeout=0)


@dataclass
class Lab:
    """Made by :func:`open_lab`."""

    home: Path
    postgres: EmbeddedPostgres
    server: ControlPlane | ApiServer
    cluster: CrowdedCluster
    kubeconfig: Path
    seeded: dict[int, str] = field(default_factory=dict)
    """The database of so many task instances."""

    @contextmanager
    def round(self, candidate: str, size: int) -> Iterator[Round]:
        """
        Prepare a measurement.

        :param candidate: one of :data:`CANDIDATES`
        :param size: how many task instances there are
        """
        if size not in self.seeded:
            self.seeded[size] = self._seed(size)
        home = Path(tempfile.mkdtemp(dir=self.home))
        # A migration takes seconds, a copy of a migrated database next to nothing.
        url = self.postgres.create_database(home.name, self.seeded[size])
        try:
            yield Round(size, home, self.cluster, self._environment(candidate, home, url))
        finally:
            self.cluster.clear()
            # The changes of all rounds together are gigabytes; a control plane compacts its own etcd.
            if isinstance(self.server, ApiServer):
                self.server.compact()

    def _seed(self, size: int) -> str:
        name = f"seeded_{size}"
        environment = self._environment(OURS, self.home, self.postgres.create_database(name))
        run_well([*_AIRFLOW_SIDE, "seed", str(size)], environment, timeout=PATIENCE)
        return name

    def _environment(self, candidate: str, home: Path, database_url: str) -> dict[str, str]:
        template = home / "worker.json"
        template.write_text(json.dumps(TEMPLATE))
        options = {
            "AIRFLOW__CORE__EXECUTOR": f"{EXECUTOR_NAME}:benchmarks.observed.ObservedExecutor",
            "AIRFLOW__CORE__PARALLELISM": str(MANY),
            "AIRFLOW__SCHEDULER__MAX_TIS_PER_QUERY": "0",
            # Back to the defaults, from which the testbed's configuration differs.
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1",
            _BATCH_SIZE: "1",
            "AIRFLOW__KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE": str(template),
            **CANDIDATES[candidate],
        }
        settings = DeploymentSettings(
            home=home, database_url=database_url, kubeconfig=self.kubeconfig, dags_folder=home, env=options
        )
        return inherited_environment() | configuration(settings, "http://localhost")


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
        server: ControlPlane | ApiServer
        if binaries is None:
            token = secrets.token_urlsafe(16)
            server = stack.enter_context(running_server(token=token, run_controllers=False))
        else:
            (home / "control-plane").mkdir()
            server = stack.enter_context(ControlPlane(binaries, home / "control-plane"))
        server.write_kubeconfig(kubeconfig)
        cluster = stack.enter_context(CrowdedCluster.opened(kubeconfig))
        yield Lab(home, postgres, server, cluster, kubeconfig)
