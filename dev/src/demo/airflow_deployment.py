# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A real Airflow on loopback: API server, DAG processor, triggerer and scheduler, each its own process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from signal import SIGTERM
from types import TracebackType
from typing import Self

from cluster_lab.managed_process import ManagedProcess, inherited_environment
from cluster_lab.ports import LOOPBACK, free_port
from demo.airflow_client import AirflowClient, heartbeat_of
from demo.airflow_configuration import DeploymentSettings, configuration, worker_configuration

START_TIMEOUT = 180.0
MIGRATION_TIMEOUT = 120.0
STATELESS_STOP_TIMEOUT = 5.0


class Component(StrEnum):
    """A process of the deployment; the value is its ``airflow`` subcommand."""

    API_SERVER = "api-server"
    DAG_PROCESSOR = "dag-processor"
    TRIGGERER = "triggerer"
    SCHEDULER = "scheduler"

    @property
    def health_name(self) -> str:
        """What the health report of the API server calls it."""
        return self.value.replace("-", "_")


class DeploymentError(RuntimeError):
    """A component did not come up; the message ends with the last lines of its log."""


class AirflowDeployment:
    """
    The four components, started on entering the ``with`` block and stopped at its end.

    To lose one of them, signal its process in ``components``; :meth:`start` starts it again.

    :param settings: See :class:`DeploymentSettings`.
    """

    def __init__(self, settings: DeploymentSettings) -> None:
        self._settings = settings
        self._started_at: dict[Component, datetime] = {}
        self.url = f"http://{LOOPBACK}:{free_port()}"
        self.client = AirflowClient(self.url)
        self._configuration = configuration(settings, self.url)
        self.environment = inherited_environment() | self._configuration
        self.components = {component: self._process(component) for component in Component}

    def __enter__(self) -> Self:
        try:
            self.migrate()
            self.start(*Component)
            self.client.log_in()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def migrate(self) -> None:
        """
        Bring the schema of the metadata database up to date.

        :raises DeploymentError: If that fails.
        """
        done = subprocess.run(
            [sys.executable, "-m", "airflow", "db", "migrate"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=MIGRATION_TIMEOUT,
            check=False,
        )
        if done.returncode != 0:
            raise DeploymentError(f"airflow db migrate failed:\n{done.stdout}{done.stderr}")

    def start(self, *components: Component) -> None:
        """
        Start components and wait until each reports itself healthy.

        :raises DeploymentError: If one ends, or is not healthy after ``START_TIMEOUT`` seconds.
        """
        for component in components:
            self._started_at[component] = datetime.now(UTC)
            self.components[component].start()
        self._wait_until_healthy(components)

    def stop(self) -> None:
        """Stop what runs: the scheduler first, so that it says its last words to the others."""
        self.components[Component.SCHEDULER].stop()
        for process in self.components.values():
            process.signal(SIGTERM)
        for process in self.components.values():
            # An API server waits for its clients, and workers that are still there would not leave it.
            process.stop(STATELESS_STOP_TIMEOUT)
        self.client.close()

    def worker_environment(self) -> dict[str, str]:
        """Return the configuration that a worker container needs."""
        return worker_configuration(self._configuration)

    def wait_for_dag(self, dag_id: str, timeout: float = 60.0) -> None:
        """
        Wait until a DAG can be triggered.

        :raises DeploymentError: If its file cannot be parsed, or it is not there after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while not self.client.has_dag(dag_id):
            if errors := self.client.import_errors():
                raise DeploymentError(f"a DAG file cannot be parsed:\n{errors[0]}")
            if time.monotonic() > deadline:
                tail = self.components[Component.DAG_PROCESSOR].tail()
                raise DeploymentError(f"DAG {dag_id} was not found in {timeout:.0f} s:\n{tail}")
            time.sleep(0.3)

    def _wait_until_healthy(self, components: Iterable[Component]) -> None:
        waiting = set(components)
        deadline = time.monotonic() + START_TIMEOUT
        while waiting:
            for component in waiting:
                self._check_alive(component, deadline)
            health = self.client.health()
            waiting = {component for component in waiting if not self._healthy(component, health)}
            if waiting:
                time.sleep(0.2)

    def _healthy(self, component: Component, health: Mapping[str, object]) -> bool:
        if component is Component.API_SERVER:
            return bool(health)
        heartbeat = heartbeat_of(dict(health), component.health_name)
        # A restarted component is healthy in the report of the one before for some time.
        return heartbeat is not None and heartbeat >= self._started_at[component]

    def _check_alive(self, component: Component, deadline: float) -> None:
        process = self.components[component]
        if not process.running:
            raise DeploymentError(f"{component} ended ({process.returncode}):\n{process.tail()}")
        if time.monotonic() > deadline:
            raise DeploymentError(
                f"{component} is not healthy after {START_TIMEOUT:.0f} s:\n{process.tail()}"
            )

    def _process(self, component: Component) -> ManagedProcess:
        command = [sys.executable, "-m", "airflow", component.value]
        if component is Component.API_SERVER:
            command += ["--host", LOOPBACK, "--port", self.url.rpartition(":")[2]]
        if component in (Component.TRIGGERER, Component.SCHEDULER):
            # Their log servers would listen on fixed ports of all interfaces; logs are in one folder anyway.
            command.append("--skip-serve-logs")
        log_file = self._settings.home / f"{component}.log"
        return ManagedProcess(component.value, command, self.environment, log_file)
