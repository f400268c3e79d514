# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""One deployment with everything around it: PostgreSQL, the cluster lab, Airflow, and ways to look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from sqlalchemy import create_engine

from cluster_lab.postgres import EmbeddedPostgres
from demo.airflow_configuration import DeploymentSettings
from demo.airflow_deployment import AirflowDeployment
from demo.code_journal import FOLDER_VARIABLE
from demo.lab import Lab, LabSettings

from .cluster import Cluster
from .evidence import Records, Run
from .schedulers import Schedulers

FOLDER = Path(__file__).parent

# The files do not change, and to parse them again and again takes time from the workers.
_PARSE_ONCE = {
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "3600",
}


@dataclass(frozen=True)
class Stage:
    """A deployment that runs."""

    deployment: AirflowDeployment
    schedulers: Schedulers
    cluster: Cluster
    records: Records
    api: httpx.Client
    """The REST API, as an administrator."""

    @property
    def home(self) -> Path:
        """``AIRFLOW_HOME``."""
        return self.records.executions

    def trigger(self, dag_id: str) -> Run:
        """Start a run of a DAG; no DAG is started more than once."""
        self.deployment.wait_for_dag(dag_id)
        (self.home / dag_id).mkdir()
        return Run(self.records, dag_id, self.deployment.client.trigger(dag_id))

    def decide(self, pod: str, script: str = "") -> None:
        """
        Let a held pod go on (see ``dags/held.sh``).

        :param pod: its name
        :param script: shell commands that it runs before, and maybe instead of, its worker
        """
        decision = self.home / "held" / pod
        unfinished = decision.with_suffix(".new")
        unfinished.write_text(script)
        unfinished.rename(decision)


@contextmanager
def open_stage(home: Path, env: Mapping[str, str]) -> Iterator[Stage]:
    """
    Start a deployment, and stop it in the end.

    :param home: an existing folder
    :param env: Airflow configuration on top of the demo's
    """
    (home / "held").mkdir()
    with EmbeddedPostgres() as postgres:
        deployment = AirflowDeployment(
            DeploymentSettings(
                home=home,
                database_url=postgres.url,
                kubeconfig=home / "kubeconfig",
                dags_folder=FOLDER / "dags",
                env={FOLDER_VARIABLE: str(home), **_PARSE_ONCE, **env},
            )
        )
        lab = LabSettings(
            home=home,
            kubeconfig=home / "kubeconfig",
            plan=FOLDER / "faults.yaml",
            # A real pod takes its log files with it; what is left is what it has printed.
            worker_env={
                **deployment.worker_environment(),
                "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs-of-workers"),
            },
        )
        engine = create_engine(postgres.url)
        try:
            with Lab(lab), closing(Cluster(lab.kubeconfig)) as cluster, deployment:
                schedulers = Schedulers(deployment, engine, home)
                try:
                    with _rest_api(deployment.url) as api:
                        yield Stage(deployment, schedulers, cluster, Records(engine, lab.journal, home), api)
                finally:
                    schedulers.stop()
        finally:
            engine.dispose()


def _rest_api(url: str) -> httpx.Client:
    token = httpx.get(f"{url}/auth/token").raise_for_status().json()["access_token"]
    return httpx.Client(base_url=f"{url}/api/v2", headers={"Authorization": f"Bearer {token}"}, timeout=60)
