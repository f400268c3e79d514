# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The parts of the executor, and their arguments. Nothing starts here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from airflow.configuration import conf
from airflow.providers.cncf.kubernetes.kube_config import KubeConfig
from attrs import define

from airflow.providers.cncf.kubernetes_resilience.executors import upstream
from airflow.providers.cncf.kubernetes_resilience.executors.actions import Actions
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.abandoned_pods import AbandonedPods
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.adopter import Adopter
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.pod_search import PodSearch, WaitBudget
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


@define(kw_only=True, eq=False, repr=False, slots=False)
class Parts:
    """
    The parts of the executor, made from the lowest layer up.

    :raises AirflowConfigException: if the configured policy file cannot be used
    """

    settings: Settings
    kube_config: KubeConfig
    """The official executor's configuration."""
    job_id: int | None
    """The scheduler's job; None for ``DAG.test``."""
    labels: Mapping[str, str]
    """By which the executor's pods are selected."""
    team_name: str | None
    namespaces: Sequence[str | None]
    """In which it has pods; None for all."""
    registry: LaunchRegistry
    slots: Slots
    wait_budget: WaitBudget
    """One for all executors of a scheduler."""
    make_token: Callable[[str], str]
    """Makes the token of a workload from its task instance's UUID."""
    emit: Callable[[Message], None]
    """Takes the messages of the Kubernetes thread, in that thread."""
    clock: Callable[[], float]
    """Monotonic time, seconds."""

    def __attrs_post_init__(self) -> None:
        self._make_thread()
        self._make_deletion()
        self._make_creation()
        self._make_failures()
        self._make_adoption()
        self._make_reconciler()

    def _make_thread(self) -> None:
        self.isolation = Isolation(self.clock)
        self.token_validity = upstream.read_validity(self.make_token("probe"))
        self.runtime = KubernetesRuntime(
            RuntimeSettings(
                namespaces=tuple(self.namespaces),
                label_selector=",".join([*map("=".join, self.labels.items()), NOT_DONE_BY]),
                concurrency=self.settings.api_concurrency,
                delete_options=self.kube_config.delete_option_kwargs,
                request_timeout=self.settings.request_timeout,
                inactivity_timeout=self.settings.watch_inactivity_timeout,
                team_name=self.team_name,
            ),
            self.emit,
        )
        self.commands = PodCommands(self.runtime, self.labels)
        self.policies = RetryPolicies(self.settings, self.clock)
        self.queued_timeout = QueuedTimeout(
            timeout=conf.getfloat("scheduler", "task_queued_timeout"),
            gate_timeout=self.settings.scheduling_gate_timeout,
            registry=self.registry,
            commands=self.commands,
            isolation=self.isolation,
            job_id=self.job_id,
            clock=self.clock,
        )

    def _make_deletion(self) -> None:
        self.deletion = PodDeletion(
            commands=self.commands,
            registry=self.registry,
            kube_config=self.kube_config,
            clock=self.clock,
        )
        self.garbage = OrphanCollector(
            runtime=self.runtime,
            commands=self.commands,
            deletion=self.deletion,
            namespaces=self.namespaces,
            isolation=self.isolation,
            job_id=self.job_id,
            clock=self.clock,
        )

    def _make_creation(self) -> None:
        self.suspect_nodes = SuspectNodes(self.settings.node_suspect_timeout, clock=self.clock)
        self.builder = PodBuilder(
            kube_config=self.kube_config,
            scheduler_job_id=str(self.job_id),
            executor_label=self.labels[EXECUTOR_LABEL],
            make_token=self.make_token,
            worker_log_as_termination_message=self.settings.worker_log_as_termination_message,
            infrastructure=self.policies.current.infrastructure,
            suspect_nodes=self.suspect_nodes.names,
        )
        self.outages = Outages(
            limits=self.settings.outage_limits, registry=self.registry, slots=self.slots, clock=self.clock
        )
        self.create_retries = CreateRetries(
            registry=self.registry,
            commands=self.commands,
            builder=self.builder,
            outages=self.outages,
            token_validity=self.token_validity,
            retries=self.settings.publish_retries,
            clock=self.clock,
        )
        self.launch_queue = LaunchQueue(
            builder=self.builder,
            registry=self.registry,
            create_retries=self.create_retries,
            outages=self.outages,
            clock=self.clock,
        )

    def _make_failures(self) -> None:
        self.traces = LaunchTraces()
        self.superseded_pods = SupersededPods(
            registry=self.registry,
            commands=self.commands,
            deletion=self.deletion,
            job_id=self.job_id,
            isolation=self.isolation,
            clock=self.clock,
        )
        self.event_filter = StaleEventFilter(
            registry=self.registry,
            commands=self.commands,
            deletion=self.deletion,
            limits=Limits(
                self.kube_config.worker_pod_pending_fatal_container_state_reasons,
                self.settings.unschedulable_timeout,
                self.settings.pending_timeout,
            ),
            superseded=self.superseded_pods,
            create_retries=self.create_retries,
            outages=self.outages,
            suspect_nodes=self.suspect_nodes,
            isolation=self.isolation,
            clock=self.clock,
        )
        self.recorder = Recorder(
            policies=self.policies,
            token_validity=self.token_validity,
            outages=self.outages,
            suspect_nodes=self.suspect_nodes,
            job_id=self.job_id,
            clock=self.clock,
        )
        self.reports = Reports(
            slots=self.slots, isolation=self.isolation, job_id=self.job_id, clock=self.clock
        )

    def _make_adoption(self) -> None:
        self.search = PodSearch(
            runtime=self.runtime,
            commands=self.commands,
            namespaces=self.namespaces,
            wait_budget=self.wait_budget,
            clock=self.clock,
        )
        self.adopter = Adopter(
            search=self.search,
            abandoned=AbandonedPods(
                registry=self.registry,
                deletion=self.deletion,
                commands=self.commands,
                job_id=self.job_id,
                clock=self.clock,
            ),
            registry=self.registry,
            deletion=self.deletion,
            slots=self.slots,
            isolation=self.isolation,
            job_id=self.job_id,
            with_budget=self.policies.with_budget,
            follow=self.event_filter.follow_adopted,
            hold_lost=self.event_filter.hold_lost,
        )

    def _make_reconciler(self) -> None:
        self.running_workers = RunningWorkers(
            registry=self.registry,
            commands=self.commands,
            adopter=self.adopter,
            event_filter=self.event_filter,
            policies=self.policies,
            deletion=self.deletion,
            isolation=self.isolation,
            job_id=self.job_id,
        )
        self.actions = Actions(
            registry=self.registry,
            slots=self.slots,
            deletion=self.deletion,
            event_filter=self.event_filter,
            create_retries=self.create_retries,
            launch_queue=self.launch_queue,
            superseded_pods=self.superseded_pods,
            running_workers=self.running_workers,
            traces=self.traces,
            isolation=self.isolation,
            job_id=self.job_id,
        )
        self.reconciler = Reconciler(
            registry=self.registry,
            commands=self.commands,
            slots=self.slots,
            recorder=self.recorder,
            create_retries=self.create_retries,
            actions=self.actions,
            launch_queue=self.launch_queue,
            isolation=self.isolation,
            job_id=self.job_id,
            token_validity=self.token_validity,
            clock=self.clock,
        )
