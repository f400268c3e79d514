# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The executors that are compared, and how a deployment with each of them is configured."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from testbed.airflow_configuration import DeploymentSettings, configuration

TURNS_VARIABLE = "BENCHMARK_TURNS"
"""The environment variable that names the file to which a scheduler's executor writes its turns."""

EXECUTOR_NAME = "KubernetesExecutor"
"""What Airflow calls the executor of each candidate. Ours puts it on its pods, in a label."""

MANY = 100_000
"""More tasks than any benchmark has: no limit of Airflow's is to be in the way."""

POD_TEMPLATE = """\
apiVersion: v1
kind: Pod
metadata:
  name: airflow-worker
spec:
  restartPolicy: Never
  # Nobody places the pods on a node: what happens to them is what the benchmark does.
  schedulerName: nobody
  containers:
    - name: base
      image: apache/airflow:3.3.2
      env:
        - {name: AIRFLOW__CORE__EXECUTOR, value: LocalExecutor}
        - {name: AIRFLOW__CORE__EXECUTION_API_SERVER_URL, value: "http://airflow-api-server:8080/execution/"}
      resources:
        requests: {cpu: 100m, memory: 256Mi}
      volumeMounts:
        - {mountPath: /opt/airflow/logs, name: logs}
        - {mountPath: /opt/airflow/airflow.cfg, name: config, readOnly: true, subPath: airflow.cfg}
  volumes:
    - {name: logs, emptyDir: {}}
    - {name: config, configMap: {name: airflow-config}}
"""


class Candidate(StrEnum):
    """An executor with a configuration."""

    UPSTREAM = "upstream"
    """The official one as it comes."""
    TUNED = "upstream tuned"
    """The official one with ``worker_pods_creation_batch_size=300``."""
    OURS = "ours"
    """Ours as it comes."""
    WITH_BUDGET = "ours with budget"
    """Ours with ``infrastructure_retry_budget=1``, and no delay before the next launch."""

    @property
    def executor(self) -> str:
        """The value of ``[core] executor``."""
        is_ours = self in (Candidate.OURS, Candidate.WITH_BUDGET)
        module = "observed_ours" if is_ours else "observed_upstream"
        return f"{EXECUTOR_NAME}:benchmarks.{module}.ObservedExecutor"


def airflow_environment(
    candidate: Candidate, home: Path, database_url: str, kubeconfig: Path
) -> dict[str, str]:
    """
    Return the environment variables of an Airflow process.

    :param home: an existing folder
    :param kubeconfig: of the cluster, as the executor reaches it
    """
    settings = DeploymentSettings(
        home=home,
        database_url=database_url,
        kubeconfig=kubeconfig,
        dags_folder=home,
        env=_options(candidate, home),
    )
    return configuration(settings, "http://localhost")


def _options(candidate: Candidate, home: Path) -> Mapping[str, str]:
    template = home / "worker.yaml"
    template.write_text(POD_TEMPLATE)
    return {
        "AIRFLOW__CORE__EXECUTOR": candidate.executor,
        "AIRFLOW__CORE__PARALLELISM": str(MANY),
        "AIRFLOW__SCHEDULER__MAX_TIS_PER_QUERY": "0",
        # Back to the defaults, from which the testbed's configuration differs.
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1",
        "AIRFLOW__KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE": str(template),
        "AIRFLOW__KUBERNETES_EXECUTOR__WORKER_PODS_CREATION_BATCH_SIZE": (
            "300" if candidate is Candidate.TUNED else "1"
        ),
        "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": (
            "1" if candidate is Candidate.WITH_BUDGET else "0"
        ),
        "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_DELAY": "0",
    }
