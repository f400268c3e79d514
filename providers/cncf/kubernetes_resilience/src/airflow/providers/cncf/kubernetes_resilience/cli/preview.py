# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The pod of a task as it would be launched first."""

from __future__ import annotations

import time
from queue import Queue
from typing import Any

from airflow.exceptions import AirflowConfigException
from airflow.executors.workloads import ExecuteTask
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob

from airflow.providers.cncf.kubernetes_resilience.executors.creation.pod_builder import PodBuilder
from airflow.providers.cncf.kubernetes_resilience.executors.failures.policies import RetryPolicies
from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, Waiting
from airflow.providers.cncf.kubernetes_resilience.executors.settings import read_settings
from airflow_resilience.ledger import LaunchHistory

AT_LAUNCH = "set-at-launch"
"""Stands for what is not known before the launch, or is secret."""


def preview(executor: KubernetesExecutor, workload: ExecuteTask) -> dict[str, Any]:
    """
    Return the manifest of the pod in which a task would be launched first. Nothing is launched.

    What only a launch has is :data:`AT_LAUNCH`: its id, the scheduler's, and the token, which is secret.

    :param executor: one that has not been started
    :raises AirflowConfigException: if a configured value or the task's ``executor_config`` is wrong
    :raises Exception: if a coordinator's template cannot be used, and as :meth:`.PodBuilder.build` does
    """
    settings, ti = read_settings(executor.conf), workload.ti
    launch = Launch(ti.key, str(ti.id), launch_id=AT_LAUNCH, waiting=Waiting(_accept(executor, workload)))
    builder = PodBuilder(
        executor.kube_config,
        AT_LAUNCH,
        executor.label,
        lambda _: AT_LAUNCH,
        worker_log_as_termination_message=settings.worker_log_as_termination_message,
        infrastructure=RetryPolicies(settings, time.monotonic).current.infrastructure,
    )
    return builder.build(launch, LaunchHistory()).body


def _accept(executor: KubernetesExecutor, workload: ExecuteTask) -> KubernetesJob:
    """Have the inherited executor make of a workload what a pod is built from."""
    ti, executor.task_queue = workload.ti, Queue()
    executor.scheduler_job_id = AT_LAUNCH
    super(KubernetesExecutor, executor).execute_async(
        key=ti.key, command=[workload], queue=ti.queue, executor_config=ti.executor_config or {}
    )
    if executor.task_queue.empty():
        _, why = executor.event_buffer.pop(ti.key)
        raise AirflowConfigException(f"{ti.dag_id}.{ti.task_id}: {why}")
    job: KubernetesJob = executor.task_queue.get_nowait()
    return job
