# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the executor consists of, and what each part is given. Nothing starts here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from airflow.configuration import conf
from airflow.providers.cncf.kubernetes.kube_config import KubeConfig

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.adopter import Adopter
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.completion import Completion
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.hand_back import HandBack
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.orphans import Orphans
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.patience import Patience
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.pod_search import PodSearch
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.surplus_pods import SurplusPods
from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import CreateRetries
from airflow.providers.cncf.kubernetes_resilience.executors.creation.launch_queue import LaunchQueue
from airflow.providers.cncf.kubernetes_resilience.executors.creation.pod_builder import PodBuilder
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.cancelled_launches import (
    CancelledLaunches,
)
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.garbage_collection import OrphanCollector
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import PodDeletion
from airflow.providers.cncf.kubernetes_resilience.executors.failures.event_filter import StaleEventFilter
from airflow.providers.cncf.kubernetes_resilience.executors.failures.executions import Executions
from airflow.providers.cncf.kubernetes_resilience.executors.failures.expired_tokens import ExpiredTokens
from airflow.providers.cncf.kubernetes_resilience.executors.failures.ownership import Ownership
from airflow.providers.cncf.kubernetes_resilience.executors.failures.policies import RetryPolicies
from airflow.providers.cncf.kubernetes_resilience.executors.failures.settlement import Settlement
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import (
    NOT_DONE_BY,
    SCHEDULER_LABEL,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.settings import Settings
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.queued_timeout import QueuedTimeout
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow.providers.cncf.kubernetes_resilience.pods.facts import EXECUTOR_LABEL
from airflow.providers.cncf.kubernetes_resilience.pods.messages import Message
from airflow.providers.cncf.kubernetes_resilience.pods.thread.runtime import (
    KubernetesRuntime,
    RuntimeSettings,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the executor is."""

    job_id: int | None
    """The scheduler's job; None for ``DAG.test``."""
    scheduler_label: str
    """Value of the label by which the scheduler's pods are selected."""
    executor_label: str
    """Tells this executor from the others of its scheduler, also after a restart."""
    team_name: str | None
    namespaces: Sequence[str | None]
    """In which it has pods; None for all."""

    @property
    def labels(self) -> dict[str, str]:
        """The labels by which its pods are selected."""
        return {SCHEDULER_LABEL: self.scheduler_label, EXECUTOR_LABEL: self.executor_label}


@dataclass(frozen=True, slots=True)
class Parts:
    """What the executor consists of."""

    runtime: KubernetesRuntime
    commands: PodCommands
    policies: RetryPolicies
    launch_queue: LaunchQueue
    create_retries: CreateRetries
    deletion: PodDeletion
    cancelled: CancelledLaunches
    garbage: OrphanCollector
    event_filter: StaleEventFilter
    ownership: Ownership
    expired_tokens: ExpiredTokens
    settlement: Settlement
    executions: Executions
    adopter: Adopter
    completion: Completion
    hand_back: HandBack
    queued_timeout: QueuedTimeout


def assemble(
    who: Identity,
    settings: Settings,
    kube_config: KubeConfig,
    *,
    registry: LaunchRegistry,
    slots: Slots,
    isolation: Isolation,
    patience: Patience,
    jwt_generator: Any,
    emit: Callable[[Message], None],
    clock: Callable[[], float],
) -> Parts:
    """
    Make the parts of an executor.

    :param kube_config: the official executor's configuration
    :param jwt_generator: signs the workloads' tokens
    :param emit: takes what the Kubernetes thread has to tell, in that thread
    :param clock: monotonic time, seconds
    :raises AirflowConfigException: if the configured policy file cannot be used
    """
    runtime = KubernetesRuntime(_runtime_settings(who, settings, kube_config), emit)
    commands = PodCommands(runtime, who.labels)
    token_validity = conf.getfloat("scheduler", "task_queued_timeout")
    policies = RetryPolicies(settings, clock)
    builder = PodBuilder(
        kube_config,
        str(who.job_id),
        who.executor_label,
        jwt_generator,
        worker_log_as_termination_message=settings.worker_log_as_termination_message,
        infrastructure=policies.current.infrastructure,
    )
    deletion = PodDeletion(commands=commands, registry=registry, kube_config=kube_config, clock=clock)
    create_retries = CreateRetries(
        registry=registry,
        commands=commands,
        builder=builder,
        isolation=isolation,
        token_validity=token_validity,
        job_id=who.job_id,
        retries=settings.publish_retries,
        clock=clock,
    )
    executions = Executions(policies=policies, job_id=who.job_id, clock=clock)
    expired_tokens = ExpiredTokens(registry=registry, commands=commands, validity=token_validity, clock=clock)
    orphans = Orphans(registry=registry, slots=slots, isolation=isolation, job_id=who.job_id)
    surplus = SurplusPods(registry=registry, deletion=deletion, job_id=who.job_id, clock=clock)
    completion = Completion(
        orphans=orphans,
        surplus=surplus,
        commands=commands,
        registry=registry,
        slots=slots,
        isolation=isolation,
    )
    ownership = Ownership(
        registry=registry,
        commands=commands,
        slots=slots,
        job_id=who.job_id,
        isolation=isolation,
        clock=clock,
    )
    return Parts(
        runtime=runtime,
        commands=commands,
        policies=policies,
        deletion=deletion,
        create_retries=create_retries,
        expired_tokens=expired_tokens,
        ownership=ownership,
        launch_queue=LaunchQueue(
            builder=builder,
            registry=registry,
            create_retries=create_retries,
            isolation=isolation,
            job_id=who.job_id,
            clock=clock,
        ),
        cancelled=CancelledLaunches(
            registry=registry,
            deletion=deletion,
            slots=slots,
            job_id=who.job_id,
            isolation=isolation,
            clock=clock,
        ),
        garbage=OrphanCollector(
            runtime=runtime,
            commands=commands,
            deletion=deletion,
            namespaces=who.namespaces,
            own_label=who.scheduler_label,
            isolation=isolation,
            job_id=who.job_id,
            clock=clock,
        ),
        event_filter=StaleEventFilter(
            registry=registry,
            commands=commands,
            deletion=deletion,
            own_label=who.scheduler_label,
            given_up_reasons=kube_config.worker_pod_pending_fatal_container_state_reasons,
            unschedulable_timeout=settings.unschedulable_timeout,
            ownership=ownership,
            create_retries=create_retries,
            clock=clock,
        ),
        executions=executions,
        settlement=Settlement(
            policies=policies,
            slots=slots,
            executions=executions,
            expired_tokens=expired_tokens,
            job_id=who.job_id,
        ),
        adopter=Adopter(
            orphans=orphans,
            search=PodSearch(
                runtime=runtime,
                commands=commands,
                namespaces=who.namespaces,
                own_labels=who.labels,
                patience=patience,
                clock=clock,
            ),
            completion=completion,
            surplus=surplus,
            registry=registry,
            deletion=deletion,
            slots=slots,
            isolation=isolation,
        ),
        completion=completion,
        hand_back=HandBack(
            registry=registry,
            slots=slots,
            isolation=isolation,
            job_id=who.job_id,
            clock=clock,
        ),
        queued_timeout=QueuedTimeout(
            token_validity,
            registry=registry,
            commands=commands,
            isolation=isolation,
            job_id=who.job_id,
            clock=clock,
        ),
    )


def _runtime_settings(who: Identity, settings: Settings, kube_config: KubeConfig) -> RuntimeSettings:
    return RuntimeSettings(
        namespaces=tuple(who.namespaces),
        label_selector=",".join([*(f"{name}={value}" for name, value in who.labels.items()), NOT_DONE_BY]),
        concurrency=settings.api_concurrency,
        delete_options=kube_config.delete_option_kwargs,
        request_timeout=kube_config.kube_client_request_args.get("_request_timeout"),
        inactivity_timeout=settings.watch_inactivity_timeout,
        team_name=who.team_name,
    )
