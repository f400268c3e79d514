# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Worker pods as Airflow makes them, and what a kubelet says about them."""

from __future__ import annotations

import json
import random
from typing import Any

from airflow.providers.cncf.kubernetes_resilience.pods.facts import EXECUTOR_LABEL
from benchmarks.candidates import EXECUTOR_NAME
from cluster_lab.faults.scenarios import REGISTRY_AWAY

Json = dict[str, Any]

DAG_ID, TASK_ID, RUN_ID = "benchmark", "task", "run"
NAMESPACE = "default"
_NOW = "2026-01-01T00:00:00Z"


def worker_pod(map_index: int, ti_id: str, job_id: int) -> Json:
    """
    Return the manifest of the worker of a mapped task instance that a scheduler job has launched.

    It has the labels by which each executor selects the pods that it watches.
    """
    identity = {"dag_id": DAG_ID, "task_id": TASK_ID, "run_id": RUN_ID}
    counters = {"try_number": "1", "map_index": str(map_index)}
    labels = {
        **identity,
        **counters,
        "airflow_version": "3.3.2",
        "kubernetes_executor": "True",
        "airflow-worker": str(job_id),
        EXECUTOR_LABEL: EXECUTOR_NAME,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{DAG_ID}-{TASK_ID}-{map_index}",
            "namespace": NAMESPACE,
            "labels": labels,
            "annotations": {**identity, **counters},
        },
        "spec": {
            "restartPolicy": "Never",
            "schedulerName": "nobody",
            "containers": [_container(ti_id)],
            "volumes": [
                {"name": "logs", "emptyDir": {}},
                {"name": "config", "configMap": {"name": "airflow-config"}},
            ],
        },
    }


def _container(ti_id: str) -> Json:
    workload = {
        # What differs from pod to pod is not to be compressed away: a signature has no pattern.
        "token": random.Random(ti_id).randbytes(450).hex(),
        "ti": {"id": ti_id, "dag_id": DAG_ID, "task_id": TASK_ID, "run_id": RUN_ID, "try_number": 1},
        "dag_rel_path": "benchmark.py",
        "bundle_info": {"name": "dags-folder", "version": None},
        "log_path": f"dag_id={DAG_ID}/run_id={RUN_ID}/task_id={TASK_ID}/attempt=1.log",
        "type": "ExecuteTask",
    }
    return {
        "name": "base",
        "image": "apache/airflow:3.3.2",
        "args": [
            *("python", "-m", "airflow.sdk.execution_time.execute_workload"),
            *("--json-string", json.dumps(workload)),
        ],
        "env": [
            {"name": "AIRFLOW__CORE__EXECUTOR", "value": "LocalExecutor"},
            {"name": "AIRFLOW_IS_K8S_EXECUTOR_POD", "value": "True"},
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "volumeMounts": [
            {"mountPath": "/opt/airflow/logs", "name": "logs"},
            {"mountPath": "/opt/airflow/airflow.cfg", "name": "config", "subPath": "airflow.cfg"},
        ],
    }


def running() -> Json:
    """Return the status of a pod whose worker runs."""
    return {
        "phase": "Running",
        "startTime": _NOW,
        "podIP": "10.0.0.7",
        "conditions": _conditions("True"),
        "containerStatuses": [_container_status({"running": {"startedAt": _NOW}}, ready=True)],
    }


def running_again() -> Json:
    """Return the status of a pod whose worker runs, of which a readiness gate is now fulfilled."""
    return {"conditions": [{"type": "example.com/checked", "status": "True", "lastTransitionTime": _NOW}]}


def ended(phase: str, exit_code: int, reason: str) -> Json:
    """Return the status of a pod whose worker container has ended."""
    terminated = {"exitCode": exit_code, "reason": reason, "startedAt": _NOW, "finishedAt": _NOW}
    return {
        "phase": phase,
        "startTime": _NOW,
        "conditions": _conditions("False"),
        "containerStatuses": [_container_status({"terminated": terminated}, ready=False)],
    }


def succeeded() -> Json:
    """Return the status of a pod that has done its work."""
    return ended("Succeeded", 0, "Completed")


def failed() -> Json:
    """Return the status of a pod whose worker has ended with an error."""
    return ended("Failed", 1, "Error")


def never_started() -> Json:
    """Return the status of a pod whose worker container could not be started."""
    return ended("Failed", 128, "StartError")


def image_not_pulled() -> Json:
    """Return the status of a pod whose image is not pulled, since its registry does not answer."""
    waiting = {"reason": "ErrImagePull", "message": REGISTRY_AWAY}
    return {
        "phase": "Pending",
        "startTime": _NOW,
        "conditions": _conditions("False"),
        "containerStatuses": [_container_status({"waiting": waiting}, ready=False)],
    }


def disrupted(status: Json, reason: str) -> Json:
    """Return the status of a pod that has ended, with the condition that says what has disrupted it."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return {**status, "conditions": [*status["conditions"], condition]}


def shut_down() -> Json:
    """Return the status of a pod that has ended with its node, which was shut down."""
    message = "Pod was terminated in response to imminent node shutdown."
    status = {**ended("Failed", 143, "Error"), "reason": "Terminated", "message": message}
    return disrupted(status, "TerminationByKubelet")


def _conditions(ready: str) -> list[Json]:
    states = {"Initialized": "True", "Ready": ready, "ContainersReady": ready, "PodScheduled": "True"}
    return [{"type": name, "status": status, "lastTransitionTime": _NOW} for name, status in states.items()]


def _container_status(state: Json, *, ready: bool) -> Json:
    return {
        "name": "base",
        "image": "docker.io/apache/airflow:3.3.2",
        "imageID": "docker.io/apache/airflow@sha256:" + "0" * 64,
        "containerID": "containerd://" + "1" * 64,
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }
