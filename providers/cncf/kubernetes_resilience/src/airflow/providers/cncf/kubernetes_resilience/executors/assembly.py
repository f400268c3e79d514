# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The parts of the executor, and their arguments. Nothing starts here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from airflow.configuration import conf
from airflow.providers.cncf.kubernetes.kube_config import KubeConfig

from airflow.providers.cncf.kubernetes_resilience.executors import upstream
from airflow.providers.cncf.kubernetes_resilience.executors.actions import Actions
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.abandoned_pods import AbandonedPods
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.adopter import Adopter
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.pod_search import Patience, PodSearch
from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import CreateRetries
from airflow.providers.cncf.kubernetes_resilience.executors.creation.launch_queue import LaunchQueue
from airflow.providers.cncf.kubernetes_resilience.executors.creation.outages import Outages
from airflow.providers.cncf.kubernetes_resilience.executors.creation.pod_builder import PodBuilder
from airflow.providers.cncf.kubernetes_resilience.executors.creation.suspect_nodes import SuspectNodes
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.garbage_collection import OrphanCollector
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import PodDeletion
from airflow.providers.cncf.kubernetes_resilience.executors.failures.event_filter import StaleEventFilter
from airflow.providers.cncf.kubernetes_resilience.executors.failures.policies import RetryPolicies
from airflow.providers.cncf.kubernetes_resilience.executors.failures.record import Recorder
from airflow.providers.cncf.kubernetes_resilience.executors.failures.reports import Reports
from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import Limits
from airflow.providers.cncf.kubernetes_resilience.executors.failures.superseded_pods import SupersededPods
from airflow.providers.cncf.kubernetes_resilience.executors.failures.traces import LaunchTraces
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import NOT_DONE_BY
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.reconciler import Reconciler
from airflow.providers.cncf.kubernetes_resilience.executors.running_workers import RunningWorkers
from airflow.providers.cncf.kubernetes_resilience.executors.settings import Settings
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.queued_timeout import QueuedTimeout
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow.providers.cncf.kubernetes_resilience.pods.facts import EXECUTOR_LABEL
from airflow.providers.cncf.kubernetes_resilience.pods.messages import Message
from airflow.providers.cncf.kubernetes_resilience.pods.thread.runtime import (
    KubernetesRuntime,
    RuntimeSettings,
)


class Parts:
    """
    The parts of the executor, made from the lowest layer up.

    :param kube_config: the official executor's configuration
    :param job_id: the scheduler's job; None for ``DAG.test``
    :param labels: by which the executor's pods are selected
    :param namespaces: in which it has pods; None for all
    :param patience: one for all executors of a scheduler
    :param make_token: makes the token of a workload from its task instance's UUID
    :param emit: takes the messages of the Kubernetes thread, in that thread
    :param clock: monotonic time, seconds
    :raises AirflowConfigException: if the configured policy file cannot be used
    """

    def __init__(
        self,
        settings: Settings,
        kube_config: KubeConfig,
        *,
        job_id: int | None,
        labels: Mapping[str, str],
        team_name: str | None,
        namespaces: Sequence[str | None],
        registry: LaunchRegistry,
        slots: Slots,
        patience: Patience,
        make_token: Callable[[str], str],
        emit: Callable[[Message], None],
        clock: Callable[[], float],
    ) -> None:
        self.isolation = isolation = Isolation(clock)
        token_validity = upstream.read_validity(make_token("probe"))
        self.runtime = KubernetesRuntime(
            RuntimeSettings(
                namespaces=tuple(namespaces),
                label_selector=",".join([*map("=".join, labels.items()), NOT_DONE_BY]),
                concurrency=settings.api_concurrency,
                delete_options=kube_config.delete_option_kwargs,
                request_timeout=settings.request_timeout,
                inactivity_timeout=settings.watch_inactivity_timeout,
                team_name=team_name,
            ),
            emit,
        )
        self.commands = PodCommands(self.runtime, labels)
        self.policies = RetryPolicies(settings, clock)
        self.queued_timeout = QueuedTimeout(
            conf.getfloat("scheduler", "task_queued_timeout"),
            settings.scheduling_gate_timeout,
            registry=registry,
            commands=self.commands,
            isolation=isolation,
            job_id=job_id,
            clock=clock,
        )
        # ---------------------------------------------------------------- deletion
        self.deletion = PodDeletion(
            commands=self.commands,
            registry=registry,
            kube_config=kube_config,
            clock=clock,
        )
        self.garbage = OrphanCollector(
            runtime=self.runtime,
            commands=self.commands,
            deletion=self.deletion,
            namespaces=namespaces,
            isolation=isolation,
            job_id=job_id,
            clock=clock,
        )
        # ---------------------------------------------------------------- creation
        self.suspect_nodes = SuspectNodes(settings.node_suspect_timeout, clock=clock)
        builder = PodBuilder(
            kube_config,
            str(job_id),
            labels[EXECUTOR_LABEL],
            make_token,
            worker_log_as_termination_message=settings.worker_log_as_termination_message,
            infrastructure=self.policies.current.infrastructure,
            suspect_nodes=self.suspect_nodes.names,
        )
        self.outages = Outages(settings.outage_limits, registry=registry, slots=slots, clock=clock)
        create_retries = CreateRetries(
            registry=registry,
            commands=self.commands,
            builder=builder,
            outages=self.outages,
            token_validity=token_validity,
            retries=settings.publish_retries,
            clock=clock,
        )
        self.launch_queue = LaunchQueue(
            builder=builder,
            registry=registry,
            create_retries=create_retries,
            outages=self.outages,
            isolation=isolation,
            job_id=job_id,
            clock=clock,
        )
        # ---------------------------------------------------------------- failures
        self.traces = LaunchTraces()
        self.superseded_pods = SupersededPods(
            registry=registry,
            commands=self.commands,
            deletion=self.deletion,
            job_id=job_id,
            isolation=isolation,
            clock=clock,
        )
        self.event_filter = StaleEventFilter(
            registry=registry,
            commands=self.commands,
            deletion=self.deletion,
            limits=Limits(
                kube_config.worker_pod_pending_fatal_container_state_reasons,
                settings.unschedulable_timeout,
                settings.pending_timeout,
            ),
            superseded=self.superseded_pods,
            create_retries=create_retries,
            outages=self.outages,
            suspect_nodes=self.suspect_nodes,
            isolation=isolation,
            clock=clock,
        )
        self.recorder = Recorder(
            policies=self.policies,
            token_validity=token_validity,
            outages=self.outages,
            suspect_nodes=self.suspect_nodes,
            job_id=job_id,
            clock=clock,
        )
        self.reports = Reports(slots=slots, isolation=isolation, job_id=job_id, clock=clock)
        # ---------------------------------------------------------------- adoption
        search = PodSearch(
            runtime=self.runtime,
            commands=self.commands,
            namespaces=namespaces,
            patience=patience,
            clock=clock,
        )
        self.adopter = Adopter(
            search=search,
            abandoned=AbandonedPods(
                registry=registry,
                deletion=self.deletion,
                commands=self.commands,
                job_id=job_id,
                clock=clock,
            ),
            registry=registry,
            deletion=self.deletion,
            slots=slots,
            isolation=isolation,
            job_id=job_id,
            with_budget=self.policies.with_budget,
            follow=self.event_filter.follow_adopted,
            hold_lost=self.event_filter.hold_lost,
        )
        # ---------------------------------------------------------------- launches as a whole
        self.running_workers = RunningWorkers(
            registry=registry,
            commands=self.commands,
            adopter=self.adopter,
            event_filter=self.event_filter,
            policies=self.policies,
            deletion=self.deletion,
            isolation=isolation,
            job_id=job_id,
        )
        self.actions = Actions(
            registry=registry,
            slots=slots,
            deletion=self.deletion,
            event_filter=self.event_filter,
            create_retries=create_retries,
            launch_queue=self.launch_queue,
            superseded_pods=self.superseded_pods,
            running_workers=self.running_workers,
            traces=self.traces,
            isolation=isolation,
            job_id=job_id,
        )
        self.reconciler = Reconciler(
            registry=registry,
            commands=self.commands,
            slots=slots,
            recorder=self.recorder,
            create_retries=create_retries,
            actions=self.actions,
            launch_queue=self.launch_queue,
            isolation=isolation,
            job_id=job_id,
            token_validity=token_validity,
            clock=clock,
        )
