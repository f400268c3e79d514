# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Worker pods as Airflow makes them."""

from __future__ import annotations

import json
import random

from cluster_lab.client import JsonObject
from cluster_lab.kubelet.status import PodStatus
from testbed.cluster import EXECUTOR_LABEL, OWNER_LABEL

DAG_ID, TASK_ID, RUN_ID = "benchmark", "task", "run"
NAMESPACE = "default"
EXECUTOR_NAME = "KubernetesExecutor"
"""What Airflow calls the executor of each candidate. Ours puts it on its pods, in a label."""
MANY = 100_000
"""More tasks than any benchmark has: no limit of Airflow's is to be in the way."""

TEMPLATE: JsonObject = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "airflow-worker"},
    "spec": {
        "restartPolicy": "Never",
        # Nobody places the pods on a node: what happens to them is what the benchmark does.
        "schedulerName": "nobody",
        "containers": [
            {
                "name": "base",
                "image": "apache/airflow:3.3.2",
                "env": [
                    {"name": "AIRFLOW__CORE__EXECUTOR", "value": "LocalExecutor"},
                    {
                        "name": "AIRFLOW__CORE__EXECUTION_API_SERVER_URL",
                        "value": "http://airflow-api-server:8080/execution/",
                    },
                ],
                "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
                "volumeMounts": [
                    {"mountPath": "/opt/airflow/logs", "name": "logs"},
                    {"mountPath": "/opt/airflow/airflow.cfg", "name": "config", "subPath": "airflow.cfg"},
                ],
            }
        ],
        "volumes": [
            {"name": "logs", "emptyDir": {}},
            {"name": "config", "configMap": {"name": "airflow-config"}},
        ],
    },
}


def worker_status() -> PodStatus:
    """Return the status of a pod whose worker has not started."""
    return PodStatus(TEMPLATE, "10.0.0.7")


def pod_name(map_index: int) -> str:
    """Return the name of the pod of a mapped task instance that :func:`worker_pod` makes."""
    return f"{DAG_ID}-{TASK_ID}-{map_index}"


def worker_pod(map_index: int, ti_id: str, job_id: str) -> JsonObject:
    """
    Return the manifest of the worker of a mapped task instance that a scheduler job has launched.

    It has the labels by which each executor selects the pods that it watches.
    """
    identity = {"dag_id": DAG_ID, "task_id": TASK_ID, "run_id": RUN_ID}
    annotations = {**identity, "try_number": "1", "map_index": str(map_index)}
    labels = {"kubernetes_executor": "True", OWNER_LABEL: job_id, EXECUTOR_LABEL: EXECUTOR_NAME}
    workload = {
        # What differs from pod to pod is not to be compressed away: a signature has no pattern.
        "token": random.Random(ti_id).randbytes(450).hex(),
        "ti": {"id": ti_id, **identity, "try_number": 1},
        "dag_rel_path": "benchmark.py",
        "bundle_info": {"name": "dags-folder", "version": None},
        "log_path": f"dag_id={DAG_ID}/run_id={RUN_ID}/task_id={TASK_ID}/attempt=1.log",
        "type": "ExecuteTask",
    }
    command = ("python", "-m", "airflow.sdk.execution_time.execute_workload", "--json-string")
    (worker,) = TEMPLATE["spec"]["containers"]
    container = {
        **worker,
        "args": [*command, json.dumps(workload)],
        # Airflow adds it: with a template that has it, pods have it twice, and then no managed fields.
        "env": [*worker["env"], {"name": "AIRFLOW_IS_K8S_EXECUTOR_POD", "value": "True"}],
    }
    return {
        **TEMPLATE,
        "metadata": {
            "name": pod_name(map_index),
            "labels": {**annotations, **labels, "airflow_version": "3.3.2"},
            "annotations": annotations,
        },
        "spec": {**TEMPLATE["spec"], "containers": [container]},
    }
