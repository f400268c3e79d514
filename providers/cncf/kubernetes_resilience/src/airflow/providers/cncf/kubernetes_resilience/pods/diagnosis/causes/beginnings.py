# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A worker ended by itself before its task began, and the end of its log says why.

The log is the container's termination message: ``[kubernetes_resilience] worker_log_as_termination_message``.
The rows rest on what the worker's entry point (``airflow.sdk.execution_time.execute_workload``) prints, tried
with Airflow 3.1.8, 3.2.2 and 3.3.2:

* It is the supervisor, which runs none of the task's code. What it does not catch is printed last, and ends
  the container with 1. Its first request to Airflow's API server makes the task instance ``running``.
* From 3.2 on the exception is one line of JSON that is longer than the kubelet's 2048 bytes. Airflow's own
  frames come first and are cut off. The frames of httpx and httpcore are left of a failed connection: at that
  time the supervisor talks to nobody else through them. Of a failed answer Airflow's frames are left, but not
  the status; only 5xx is repeated until tenacity raises it again (``reraise``).
* 3.1 prints Python's own traceback, which has Airflow's frames and the status, unless the answer was JSON.
  Such a 5xx stays a failed worker: nothing that is left tells it from 4xx.
* The bundle is loaded, and the DAG file imported, in the supervisor's child, when the task is ``running``.
  That process reports its failure itself, and the container ends with 0, so no message is kept: there is no
  row for a bundle that cannot be loaded. An exception of the task's own code ends in the same way. So an
  import that fails here is one of the image or the deployment: Airflow, its settings, a secrets backend.

All that holds before the task began. After that, such an end of the supervisor does not tell the end of the
task, so the rows are about launch failures only.
"""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.cause import (
    Cause,
    both,
    container_message,
    container_says,
    either,
    said,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow_resilience.context import StateChangeCategory, StateChangeReason
from airflow_resilience.outages import DependencyKind

_MESSAGES = "https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/"


def _worker_exited_by_itself(failure: PodFailure) -> bool:
    return failure.worker_exited_by_itself and failure.container is not None and failure.container.failed


def _root_exception(failure: PodFailure) -> str:
    """Return what follows the last name of an exception in JSON: the root of a chain of them comes last."""
    return container_message(failure).rpartition('"exc_type":"')[2]


def _uncaught_exception(failure: PodFailure) -> str:
    """Return what follows the last beginning of a traceback: the exception that was not caught."""
    return f"\n{container_message(failure)}".rpartition("\nTraceback")[2]


_NO_CONNECTION = either(
    container_says(
        r'httpcore/_exceptions\.py","lineno":\d+,"name":"map_exceptions"\}\]'
        r',"is_group":false,"exceptions":\[\]\}\]\}\s*\z'
    ),
    container_says(
        r'(?s)airflow/sdk/api/client\.py", line \d+, in request\n.*in map_httpcore_exceptions\n'
        r"(?:[^\n]*\n){1,3}httpx\.\w+: [^\n]*\s*\z"
    ),
)
_SERVER_ERROR = either(
    container_says(
        r'"name":"reraise"\}.*airflow/sdk/api/client\.py"[^{}]*"name":"raise_on_4xx_5xx\w*"\}[^\n]*\s*\z'
    ),
    container_says(
        r"(?s)airflow/sdk/api/client\.py\", line \d+, in raise_on_4xx_5xx\w*\n"
        r".*\nhttpx\.HTTPStatusError: Server error '5\d\d "
    ),
)
_NOT_IMPORTED = either(
    said(_root_exception, r'\A(ModuleNotFound|Import)Error"'),
    said(
        _uncaught_exception,
        r"(?m)^((ModuleNotFound|Import)Error: "
        r"|(\w+\.)*AirflowConfigException: The object could not be loaded\.)",
    ),
    # Python's own words for a module that was to be run.
    container_says(r"No module named '?airflow\b"),
)

IMPORT_FAILED = "worker-import-failed"
"""Cause of a worker that has not come so far as to use its token."""

BEGINNINGS = (
    Cause(
        name="airflow-api-unreachable",
        applies=both(_worker_exited_by_itself, either(_NO_CONNECTION, _SERVER_ERROR)),
        reason=StateChangeReason.DB_CONNECTION_ERROR,
        why="The worker could not tell Airflow's API server that its task begins: the name was not known, "
        "the connection or TLS failed, or the answer was 5xx or none.",
        url=_MESSAGES,
        launch_only=True,
        dependency=DependencyKind.AIRFLOW_API,
    ),
    Cause(
        name=IMPORT_FAILED,
        applies=both(_worker_exited_by_itself, _NOT_IMPORTED),
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.START_ERROR,
        why="The worker's own program could not import a module before its task began, so its image does not "
        "suit the configuration.",
        url=_MESSAGES,
        launch_only=True,
    ),
)
