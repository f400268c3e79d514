# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A real Airflow on loopback: API server, DAG processor, triggerer and scheduler, each its own process."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from signal import SIGTERM
from subprocess import CompletedProcess

from cluster_lab.managed_process import (
    ManagedProcess,
    ProcessError,
    Service,
    inherited_environment,
    run_to_end,
    run_well,
)
from cluster_lab.ports import LOOPBACK, free_port
from testbed.airflow_client import AirflowClient
from testbed.airflow_configuration import (
    KUBECONFIG_VARIABLE,
    NOT_FOR_WORKERS,
    DeploymentSettings,
    configuration,
    teams_of,
)

START_TIMEOUT = 300.0
STATELESS_STOP_TIMEOUT = 5.0


AIRFLOW = (sys.executable, "-m", "airflow")


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

    @property
    def command(self) -> list[str]:
        """The program and its arguments."""
        # The log servers would listen on fixed ports of all interfaces; logs are in one folder anyway.
        has_log_server = self in (Component.TRIGGERER, Component.SCHEDULER)
        return [*AIRFLOW, self.value, *(["--skip-serve-logs"] if has_log_server else [])]


class AirflowDeployment(Service):
    """
    The four components, started on entering the ``with`` block and stopped at its end.

    To lose one of them, signal its process in ``components``; :meth:`start_components` starts it again.

    :param settings: See :class:`DeploymentSettings`.
    """

    def __init__(self, settings: DeploymentSettings) -> None:
        self._settings = settings
        self._started_at: dict[Component, datetime] = {}
        self.database_url = settings.database_url
        self.url = f"http://{LOOPBACK}:{free_port()}"
        self.client = AirflowClient(self.url)
        self._configuration = configuration(settings, self.url)
        self.environment = inherited_environment() | self._configuration
        self.components = {component: self._process(component) for component in Component}

    def _start(self) -> None:
        self.run_well("db", "migrate")
        for team in teams_of(self._configuration):
            self.run_well("teams", "create", team)
        self.start_components(*Component)
        self.client.log_in()

    def run(self, *arguments: str) -> CompletedProcess[str]:
        """Run an ``airflow`` command to its end, with the configuration of the deployment."""
        return run_to_end([*AIRFLOW, *arguments], self.environment)

    def run_well(self, *arguments: str) -> str:
        """
        Run one that ends well, and return its output.

        :raises ProcessError: If it does not.
        """
        return run_well([*AIRFLOW, *arguments], self.environment)

    def start_components(self, *components: Component) -> None:
        """
        Start components and wait until each reports itself healthy.

        :raises ProcessError: If one ends, or is not healthy after ``START_TIMEOUT`` seconds.
        """
        for component in components:
            self._started_at[component] = datetime.now(UTC)
            self.components[component].start()
        for component in components:
            self.components[component].wait_until(
                "it is healthy", partial(self._healthy, component), START_TIMEOUT
            )

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
        """Return the configuration that a worker container is given."""
        return {
            key: value for key, value in self._configuration.items() if not key.startswith(NOT_FOR_WORKERS)
        }

    def wait_for_dag(self, dag_id: str) -> None:
        """
        Wait until a DAG can be triggered.

        :raises ProcessError: If its file cannot be parsed, or it is not there in ``START_TIMEOUT`` seconds.
        """

        def is_there() -> bool:
            if self.client.has_dag(dag_id):
                return True
            if errors := self.client.import_errors():
                raise ProcessError(f"a DAG file cannot be parsed:\n{errors[0]}")
            return False

        processor = self.components[Component.DAG_PROCESSOR]
        processor.wait_until(f"DAG {dag_id} is found", is_there, START_TIMEOUT)

    def _healthy(self, component: Component) -> bool:
        health = self.client.health()
        if component is Component.API_SERVER:
            return bool(health) and self.client.serves_workers()
        report = health.get(component.health_name) or {}
        heartbeat = report.get(f"latest_{component.health_name}_heartbeat")
        if report.get("status") != "healthy" or heartbeat is None:
            return False
        # A restarted component is healthy in the report of the one before for some time.
        return datetime.fromisoformat(heartbeat) >= self._started_at[component]

    def _process(self, component: Component) -> ManagedProcess:
        command = component.command
        if component is Component.API_SERVER:
            command += ["--host", LOOPBACK, "--port", self.url.rpartition(":")[2]]
        environment = self.environment | {KUBECONFIG_VARIABLE: str(self._kubeconfig(component))}
        log_file = self._settings.home / f"{component}.log"
        return ManagedProcess(component.value, command, environment, log_file)

    def _kubeconfig(self, component: Component) -> Path:
        """Return with what a component reaches Kubernetes; those that need not reach it cannot."""
        match component:
            case Component.SCHEDULER:
                return self._settings.kubeconfig
            case Component.API_SERVER:
                return self._settings.api_server_kubeconfig or self._settings.kubeconfig
            case _:
                return Path(os.devnull)
