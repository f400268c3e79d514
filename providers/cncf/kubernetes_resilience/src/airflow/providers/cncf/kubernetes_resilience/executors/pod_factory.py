# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Worker pods as they are sent to the API server: upstream's construction, plus what identifies a launch."""

from __future__ import annotations

from typing import Any

from airflow.executors.workloads import ExecuteTask
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_utils import AirflowKubernetesScheduler
from airflow.providers.cncf.kubernetes.kube_config import KubeConfig
from airflow.providers.cncf.kubernetes.kubernetes_helper_functions import add_unique_suffix
from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator
from airflow.utils.log.logging_mixin import LoggingMixin

from airflow.providers.cncf.kubernetes_resilience.executors import upstream
from airflow.providers.cncf.kubernetes_resilience.executors.launches import Launch, WaitingLaunch
from airflow.providers.cncf.kubernetes_resilience.executors.node_avoidance import avoid
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    LAUNCH_ID_ANNOTATION,
    LAUNCH_NUMBER_ANNOTATION,
    TASK_INSTANCE_ID_ANNOTATION,
)
from airflow_resilience.ledger import LaunchHistory, LedgerEntry


class PodFactory(AirflowKubernetesScheduler):
    """
    Upstream's pod construction without the processes that its constructor starts.

    :param kube_config: configuration of the executor
    :param scheduler_job_id: this scheduler's job, by which its pods are labelled
    :param jwt_generator: signs the workloads' tokens
    """

    def __init__(self, kube_config: KubeConfig, scheduler_job_id: str, jwt_generator: Any) -> None:
        # Not super().__init__(): it starts a manager process and one watcher process for each namespace.
        LoggingMixin.__init__(self)  # type: ignore[no-untyped-call]
        self.kube_config = kube_config
        self.namespace = kube_config.kube_namespace
        self.scheduler_job_id = scheduler_job_id
        self.supports_task_instance_uuid = False
        self._jwt_generator = jwt_generator

    def make_launch(self, waiting: WaitingLaunch, history: LaunchHistory) -> Launch:
        """
        Build the pod of a launch, its name included, without any API call.

        :param waiting: what to launch
        :param history: the launches of this try that have failed
        :raises PodMutationHookException: if the deployment's hook fails
        :raises PodReconciliationError: if template, override and defaults cannot be merged
        """
        number = history.relaunches + 1
        job = self._with_fresh_token(waiting.job)
        pod = self._build_pod_request(job)
        if number > 1 and pod.metadata.name in (waiting.previous_name, _pinned_name(job)):
            # Of the pods that it replaces one has that name, and may be kept.
            pod.metadata.name = add_unique_suffix(name=pod.metadata.name)
        launch = Launch(
            key=waiting.job.key,
            ti_id=waiting.ti_id,
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            number=number,
            job=waiting.job,
        )
        pod.metadata.annotations |= {
            LAUNCH_ID_ANNOTATION: launch.launch_id,
            LAUNCH_NUMBER_ANNOTATION: str(number),
            TASK_INSTANCE_ID_ANNOTATION: waiting.ti_id,
        }
        launch.body = _elsewhere(PodGenerator.serialize_pod(pod), history.last)
        return launch

    def _with_fresh_token(self, job: KubernetesJob) -> KubernetesJob:
        # A token is valid for [scheduler] task_queued_timeout from when it was made. The first one is made
        # when the task is queued, and would have expired by the time that a late relaunch starts.
        workload = job.command[0]
        if not isinstance(workload, ExecuteTask):
            raise TypeError(f"cannot launch a workload of type {type(workload).__name__}")
        token = upstream.make_token(str(workload.ti.id), self._jwt_generator)
        return job._replace(command=[workload.model_copy(update={"token": token})])


def rename(launch: Launch) -> None:
    """Give the pod of a launch, which does not exist yet, a name that no other pod has."""
    if launch.body is None:
        raise AssertionError("a launch without identity has a manifest")
    launch.name, launch.is_renamed = add_unique_suffix(name=launch.name), True
    launch.body = {**launch.body, "metadata": {**launch.body["metadata"], "name": launch.name}}


def _elsewhere(manifest: dict[str, Any], last: LedgerEntry | None) -> dict[str, Any]:
    """Keep a pod away from the node on which the one before failed, if it was decided so."""
    if last is None:
        return manifest
    return avoid(manifest, last.context.metadata.get("node"), last.decision.avoid_node)


def _pinned_name(job: KubernetesJob) -> str | None:
    override = job.kube_executor_config
    return override.metadata.name if override and override.metadata else None
