# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Worker pods as they are sent to the API server: upstream's construction, plus what identifies a launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from airflow.exceptions import AirflowConfigException
from airflow.executors.workloads import ExecuteTask
from airflow.providers.cncf.kubernetes.exceptions import PodMutationHookException
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob
from airflow.providers.cncf.kubernetes.kube_config import KubeConfig
from airflow.providers.cncf.kubernetes.kubernetes_helper_functions import add_unique_suffix, create_unique_id
from airflow.providers.cncf.kubernetes.pod_generator import workload_to_command_args
from attrs import define, field
from kubernetes.client import ApiClient, V1Container, V1EnvVar, V1Pod

from airflow import settings
from airflow.providers.cncf.kubernetes_resilience.executors.creation.mutations import go_elsewhere, mutate
from airflow.providers.cncf.kubernetes_resilience.executors.creation.template_cache import (
    Pattern,
    Task,
    TemplateCache,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Creation, Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.workload import StoredWorkload
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    EXECUTOR_LABEL,
    LAUNCH_ID_ANNOTATION,
    LAUNCH_NUMBER_ANNOTATION,
    TASK_INSTANCE_ID_ANNOTATION,
    WORKER_ANNOTATION,
    WORKER_CONTAINER,
    WORKLOAD_OPTION,
)
from airflow_resilience.ledger_entries import LaunchHistory, LedgerEntry
from airflow_resilience.mutation import Mutation
from airflow_resilience.propagation.stored import PREVIOUS_FAILURE, StoredContext
from airflow_resilience.retry_policy.rule import InfrastructureBudget
from airflow_resilience.retry_policy.selection import infrastructure_budget, read_task_options
from airflow_resilience.termination import environment


@define(kw_only=True, eq=False, repr=False, slots=False)
class PodBuilder:
    """Builds the pods of launches."""

    _kube_config: KubeConfig
    """Configuration of the executor."""
    _scheduler_job_id: str
    """This scheduler's job; its pods are labelled with it."""
    _executor_label: str
    """Distinguishes the pods of this executor from those of the scheduler's other executors."""
    _make_token: Callable[[str], str]
    """Makes the token of a workload from its task instance's UUID, valid from then on."""
    _worker_log_as_termination_message: bool
    """Whether the last lines of a failed worker become its container's termination message, unless its pod
    states a policy."""
    _infrastructure: InfrastructureBudget
    """The configured budget of running tasks."""
    _suspect_nodes: Callable[[], Sequence[str]] = tuple
    """Returns the names of nodes on which launches fail, and others do not."""
    _serializer: ApiClient = field(factory=ApiClient, init=False)

    def __attrs_post_init__(self) -> None:
        self._templates = TemplateCache(str(self._kube_config.kube_namespace), self._scheduler_job_id)

    def build(
        self,
        launch: Launch,
        history: LaunchHistory,
        lost: LedgerEntry | None = None,
        previous: StoredContext | None = None,
        mutations: Sequence[Mutation] = (),
    ) -> Creation:
        """
        Build the pod of a launch that waits, its name included, without any API call.

        :param launch: given what is known of its pod from now on
        :param history: the launches of this try that have failed
        :param lost: the loss after which the task runs again; None if it does not
        :param previous: why the run before has ended, of this try or of the one before; None if there was
            none, or if that is not known
        :param mutations: what retry policies have decided to change in the launches of this try
        :raises PodMutationHookException: if the deployment's hook fails
        :raises PodReconciliationError: if template, override and defaults cannot be merged
        :raises OSError: if the template cannot be read
        :raises AirflowConfigException: if there is none
        """
        if launch.waiting is None or launch.waiting.job is None:
            raise AssertionError("a launch without a job is not built")
        job, number = launch.waiting.job, history.relaunches + 1
        workload = self._with_fresh_token(job)
        last = history.last or lost
        pod = self._build(job, workload, previous)
        pod.metadata.annotations[LAUNCH_NUMBER_ANNOTATION] = str(number)
        go_elsewhere(pod, last, self._suspect_nodes())
        mutate(pod, pod.spec.containers[0], mutations)
        _call_hook(pod)
        is_another = number > 1 or lost is not None
        if is_another and pod.metadata.name in (launch.waiting.previous_name, _pinned_name(job)):
            # A pod that it replaces has that name, and may be kept.
            pod.metadata.name = add_unique_suffix(name=pod.metadata.name)
        # A hook may have put other metadata in their place, or none.
        pod.metadata.annotations = {
            **(pod.metadata.annotations or {}),
            LAUNCH_ID_ANNOTATION: launch.launch_id,
            TASK_INSTANCE_ID_ANNOTATION: launch.ti_id,
        }
        pod.metadata.labels = {**(pod.metadata.labels or {}), EXECUTOR_LABEL: self._executor_label}
        body = self._serializer.sanitize_for_serialization(pod)
        worker = _find_worker(body["spec"]["containers"])
        if worker["name"] != WORKER_CONTAINER:
            body["metadata"]["annotations"][WORKER_ANNOTATION] = worker["name"]
        _set_grace_period(worker, body["spec"].get("terminationGracePeriodSeconds"))
        launch.namespace, launch.name, launch.number = pod.metadata.namespace, pod.metadata.name, number
        launch.workload = StoredWorkload.of(job)
        return Creation(body, workload.token)

    def renew_token(self, creation: Creation, ti_id: str) -> None:
        """
        Put a fresh token into the manifest of a pod that does not exist yet.

        The pod mutation hook may have moved the token, so its text is replaced wherever it is found. If a
        hook has encoded the arguments, the token stays as it was.
        """
        fresh = self._make_token(ti_id)
        creation.body, creation.token = _replace(creation.body, creation.token, fresh), fresh

    def _build(self, job: KubernetesJob, workload: ExecuteTask, previous: StoredContext | None) -> V1Pod:
        key = workload.ti.key
        pod = self._templates.make(
            Pattern(
                template=self._template(job),
                image=job.kube_image or self._kube_config.kube_image,
                override=job.kube_executor_config,
            ),
            Task(key, create_unique_id(key.dag_id, key.task_id), workload_to_command_args(workload)),
        )
        worker = pod.spec.containers[0]  # upstream merges by position, and puts the workload there
        # A template or an override may state another policy. The API server fills in ``File`` where none is
        # stated. https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
        if self._worker_log_as_termination_message and worker.termination_message_policy is None:
            worker.termination_message_policy = "FallbackToLogsOnError"
        options = read_task_options(getattr(workload.ti, "executor_config", None))
        if infrastructure_budget(options, self._infrastructure):
            _set_variable(worker, environment.INFRASTRUCTURE_RETRY, "1")
        if previous:
            _set_variable(worker, PREVIOUS_FAILURE, previous.to_json())
        return pod

    def _template(self, job: KubernetesJob) -> str:
        template = job.pod_template_file or self._kube_config.pod_template_file
        if not template:
            raise AirflowConfigException("[kubernetes_executor] pod_template_file is not set")
        return template

    def _with_fresh_token(self, job: KubernetesJob) -> ExecuteTask:
        # A token is valid for [scheduler] task_queued_timeout from when it was made. The first one is made
        # when the task is queued, and would have expired by the time that a late relaunch starts.
        workload = job.command[0]
        if not isinstance(workload, ExecuteTask):
            raise TypeError(f"cannot launch a workload of type {type(workload).__name__}")
        return workload.model_copy(update={"token": self._make_token(str(workload.ti.id))})


def _call_hook(pod: V1Pod) -> None:
    # Last, so that a deployment's hook has the last word about everything.
    try:
        settings.pod_mutation_hook(pod)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise PodMutationHookException from error


def _set_variable(worker: V1Container, name: str, value: str) -> None:
    """Set an environment variable of the worker, unless its container has stated it."""
    own = worker.env or []
    if name not in {item.name for item in own}:
        worker.env = [*own, V1EnvVar(name=name, value=value)]


def _set_grace_period(worker: dict[str, Any], seconds: int | None) -> None:
    """Set how long a worker that guards its task has for its end, as the hook has left it."""
    variables = worker.get("env") or ()
    stated = {item.get("name") for item in variables}
    is_guarded = environment.INFRASTRUCTURE_RETRY in stated and environment.GRACE_PERIOD not in stated
    if is_guarded and seconds is not None:
        worker["env"] = [*variables, {"name": environment.GRACE_PERIOD, "value": str(seconds)}]


def _find_worker(containers: list[dict[str, Any]]) -> dict[str, Any]:
    """
    Return the container that runs the task: the one with the workload, whatever its name.

    A hook may have put the workload elsewhere. The name says which container it is then, or its place.
    """
    words = [(item, [*(item.get("command") or ()), *(item.get("args") or ())]) for item in containers]
    return next(
        chain(
            (item for item, own in words if WORKLOAD_OPTION in own),
            (item for item in containers if item["name"] == WORKER_CONTAINER),
            # A hook may have a shell run it, and more before. A sidecar may look for such a process, too.
            (item for item, own in words if any(WORKLOAD_OPTION in str(word) for word in own)),
            containers,
        )
    )


def rename(launch: Launch, creation: Creation) -> None:
    """Give the pod of a launch, which does not exist yet, a name that no other pod has."""
    launch.name, creation.is_renamed = add_unique_suffix(name=launch.name), True
    metadata = {**creation.body["metadata"], "name": launch.name}
    creation.body = {**creation.body, "metadata": metadata}


def _replace(value: Any, old: str, new: str) -> Any:
    """Replace a text wherever it stands in a manifest; the parts without it are shared with the result."""
    match value:
        case str():
            return value.replace(old, new)
        case dict():
            return {name: _replace(item, old, new) for name, item in value.items()}
        case list():
            return [_replace(item, old, new) for item in value]
        case _:
            return value


def _pinned_name(job: KubernetesJob) -> str | None:
    override = job.kube_executor_config
    return override.metadata.name if override and override.metadata else None
