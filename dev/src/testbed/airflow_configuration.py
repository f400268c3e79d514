# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The configuration of a throw-away Airflow deployment, as environment variables."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testbed.airflow_version import is_in_place

RESILIENT_EXECUTOR = (
    "KubernetesExecutor"
    if is_in_place()
    else "KubernetesExecutor:"
    "airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor.KubernetesExecutor"
)

POD_TEMPLATE = """\
apiVersion: v1
kind: Pod
metadata:
  name: airflow-worker
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  containers:
    - name: base
      image: airflow:lab
      resources: {requests: {memory: 1Mi}, limits: {memory: 1Gi}}
"""

KUBECONFIG_VARIABLE = "AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE"

# A worker container has the key of neither the database nor the tokens, and makes no pods.
NOT_FOR_WORKERS = ("AIRFLOW__DATABASE__", "AIRFLOW__API__", "AIRFLOW__API_AUTH__", "AIRFLOW__KUBERNETES")


@dataclass(frozen=True)
class DeploymentSettings:
    """What one deployment differs from another in."""

    home: Path
    """``AIRFLOW_HOME``: an existing folder; logs and generated files go there."""

    database_url: str
    """SQLAlchemy URL of an empty or a migrated database."""

    kubeconfig: Path
    """Where the scheduler finds its cluster; has to exist only when the scheduler starts."""

    dags_folder: Path

    api_server_kubeconfig: Path | None = None
    """The same for the API server, which need not be allowed as much; None: the same file."""

    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables on top (``AIRFLOW__SECTION__KEY``), for components and workers alike."""


def configuration(settings: DeploymentSettings, url: str) -> dict[str, str]:
    """
    Return the environment variables of every component.

    :param settings: What is particular to this deployment; its ``env`` overrides everything here.
    :param url: The address of the API server.
    """
    pod_template = settings.home / "pod_template.yaml"
    pod_template.write_text(POD_TEMPLATE)
    options: dict[str, dict[str, object]] = {
        "CORE": {
            "EXECUTOR": RESILIENT_EXECUTOR,
            "DAGS_FOLDER": settings.dags_folder,
            "LOAD_EXAMPLES": False,
            "DAGS_ARE_PAUSED_AT_CREATION": False,
            "SIMPLE_AUTH_MANAGER_ALL_ADMINS": True,
            "EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "PARALLELISM": 64,
            "MAX_ACTIVE_TASKS_PER_DAG": 64,
            # The log of a task names the node and the pod; by default it would be this machine for all.
            "HOSTNAME_CALLABLE": "cluster_lab.hostname.pod_hostname",
        },
        "API": {"BASE_URL": url, "SECRET_KEY": secrets.token_urlsafe(32), "WORKERS": 1},
        "API_AUTH": {"JWT_SECRET": secrets.token_urlsafe(48)},
        "DATABASE": {"SQL_ALCHEMY_CONN": settings.database_url},
        "DAG_PROCESSOR": {
            "BUNDLE_REFRESH_CHECK_INTERVAL": 1,
            "REFRESH_INTERVAL": 5,
            "MIN_FILE_PROCESS_INTERVAL": 5,
            "PARSING_PROCESSES": 1,
        },
        "SCHEDULER": {
            "SCHEDULER_IDLE_SLEEP_TIME": 0.5,
            "MAX_TIS_PER_QUERY": 64,
        },
        # With more workers than cores, an answer that takes long is no reason to give up.
        "WORKERS": {"EXECUTION_API_TIMEOUT": 120},
        "KUBERNETES_EXECUTOR": {
            "NAMESPACE": "default",
            "IN_CLUSTER": False,
            "CONFIG_FILE": settings.kubeconfig,
            "POD_TEMPLATE_FILE": pod_template,
            "WORKER_PODS_CREATION_BATCH_SIZE": 64,
        },
        "LOGGING": {"COLORED_CONSOLE_LOG": False},
    }
    variables = {
        f"AIRFLOW__{section}__{key}": str(value)
        for section, entries in options.items()
        for key, value in entries.items()
    }
    return {"AIRFLOW_HOME": str(settings.home), **variables, **settings.env}


def teams_of(variables: Mapping[str, str]) -> list[str]:
    """Return the teams that have bundles of DAGs. Airflow refuses the executors of a team that it has not."""
    bundles = json.loads(variables.get("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", "[]"))
    return sorted({bundle["team_name"] for bundle in bundles if "team_name" in bundle})
