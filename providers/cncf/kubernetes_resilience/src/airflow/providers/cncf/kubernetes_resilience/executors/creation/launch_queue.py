# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Queues launches until they are due, and builds their pods.

Two other items wait for the end of earlier pods: the report of a failed launch, and a task instance without a
job, which the scheduler queues again.

All of this runs in the scheduler's thread. The Kubernetes thread makes the calls, and answers through the
executor's inbox.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.providers.cncf.kubernetes.exceptions import PodMutationHookException, PodReconciliationError
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob
from airflow.providers.cncf.kubernetes.kubernetes_helper_functions import (
    annotations_for_logging_task_metadata,
)
from attrs import define

from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import CreateRetries
from airflow.providers.cncf.kubernetes_resilience.executors.creation.outages import Outages
from airflow.providers.cncf.kubernetes_resilience.executors.creation.pod_builder import PodBuilder
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import (
    EarlierFailures,
    Launch,
    LaunchState,
    Waiting,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.masking import describe
from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    MetadataKey,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.ledger_entries import LedgerEntry
from airflow_resilience.propagation.stored import StoredContext
from airflow_resilience.retry_policy.evidence import Phase

log = logging.getLogger(__name__)


@define(kw_only=True, eq=False, repr=False, slots=False)
class LaunchQueue:
    """Asks for the pods of launches that wait, when they are due."""

    _builder: PodBuilder
    """Builds pods."""
    _registry: LaunchRegistry
    _create_retries: CreateRetries
    """Makes the create calls."""
    _outages: Outages
    """Say what is away."""
    _clock: Callable[[], float]

    def add(self, job: KubernetesJob) -> None:
        """Queue the launch of a task instance. A launch that waits under the same key is replaced."""
        workload: Any = job.command[0]  # the type hint is of Airflow 2
        self._registry.make_current(Launch(key=job.key, ti_id=str(workload.ti.id), waiting=Waiting(job)))

    def relaunch(self, launch: Launch, entry: LedgerEntry | None) -> None:
        """
        Queue the relaunch of a task instance.

        The job of an adopted launch is not known here. The scheduler then queues its task instance again, in
        the same try.

        :param entry: the decision about the failed launch; None if the launch has not failed
        """
        ti_id = entry.next_ti_id if entry and entry.next_ti_id else launch.ti_id
        waiting = Waiting(
            job=launch.workload.job(launch.key, ti_id) if launch.workload else None,
            not_before=self._clock() + (_seconds_until(entry) if entry else 0.0),
            is_relaunch=launch.workload is not None,
            previous_name=launch.name,
        )
        relaunch = Launch(key=launch.key, ti_id=ti_id, waiting=waiting)
        # A worker that had begun its task had the dependency for which its launch was held.
        if entry is None or entry.phase is Phase.LAUNCH:
            relaunch.held_for, relaunch.held_since = launch.held_for, launch.held_since
        self._registry.make_current(relaunch)

    def fail(self, launch: Launch, why: str, context: ExecutionContext | None = None) -> None:
        """
        Queue the report that a task instance has failed, until no pod of it can start any more.

        :param launch: the failed launch, which is followed again if its pod starts first
        :param context: the failure for callbacks and the audit log; None if the ledger has the context
        """
        waiting = Waiting(job=None, is_relaunch=True, fails=why, context=context)
        self._registry.make_current(Launch(key=launch.key, ti_id=launch.ti_id, waiting=waiting))

    def due(self) -> list[Launch]:
        """Return the launches that are due. Those that are handed back come first: they take no time."""
        now = self._clock()
        due = [
            launch
            for launch in self._registry.in_state(LaunchState.WAITING)
            if launch.waiting and self._is_due(launch.key, launch.waiting, now)
        ]
        return sorted(due, key=lambda launch: not launch.is_handed_back)

    def _is_due(self, key: TaskInstanceKey, waiting: Waiting, now: float) -> bool:
        if waiting.fails:
            return self._registry.is_stopped(key, now)
        # The scheduler that is handed a task instance knows nothing of a pod that still departs. The ledger
        # has the time when the launch is due.
        is_due = waiting.not_before <= now or waiting.job is None
        return is_due and self._registry.is_clear(key, now)

    def postpone(self, launch: Launch, earlier: EarlierFailures) -> bool:
        """
        Postpone a launch until the time in the ledger; return whether the launch has to wait.

        Another scheduler has decided on this relaunch, and has died or handed the task instance over. The
        transaction may fail and be repeated, which changes nothing.
        """
        decided, waiting = earlier.decided(launch.ti_id), launch.waiting
        if waiting is None or waiting.job is None or decided is None:
            return False
        if not waiting.is_relaunch:
            waiting.is_relaunch, waiting.not_before = True, self._clock() + _seconds_until(decided)
        return waiting.not_before > self._clock()

    def build(self, launch: Launch, earlier: EarlierFailures) -> str | None:
        """
        Build the pod of a launch and ask for it, or hold the launch if a dependency of the pod is away.

        :return: why there is no pod, for the user of the task; None if there is one, or will be
        """
        (launches, whole_try), lost = earlier.histories, earlier.lost(launch.ti_id)
        previous = _previous_run(launch, earlier)
        try:
            creation = self._builder.build(launch, launches, lost, previous, whole_try.mutations)
        except PodMutationHookException as error:
            log.exception("The pod mutation hook failed for %s", launch.key)
            return f"Pod mutation hook failed: {describe(error.__cause__ or error)}"
        except PodReconciliationError as error:
            log.exception("Template, configuration and override could not be merged for %s", launch.key)
            return f"Pod could not be put together: {describe(error.__cause__ or error)}"
        except Exception as error:
            # A template that cannot be read, for example. The failure concerns this task alone.
            log.exception("No pod could be built for %s", launch.key)
            return f"Pod could not be built: {describe(error)}"
        if not self._outages.hold_back(launch, creation.body):
            metadata = creation.body["metadata"]
            shown = annotations_for_logging_task_metadata(metadata["annotations"])  # type: ignore[no-untyped-call]
            log.info("Creating pod %s for %s with annotations %s", metadata["name"], launch.key, shown)
            self._registry.create(launch, creation)
            self._create_retries.ask(launch)
        return None


def not_built(why: str) -> ExecutionContext:
    """Say why there is no pod: a template, a configuration or a workload that cannot be used."""
    return ExecutionContext(
        StateChangeCategory.APPLICATION,
        StateChangeReason.START_ERROR,
        ContextSource.EXECUTOR,
        {MetadataKey.MESSAGE.value: why},
    )


def _previous_run(launch: Launch, earlier: EarlierFailures) -> StoredContext | None:
    """Return the end of the previous run, for the worker of a launch."""
    if decided := earlier.decided(launch.ti_id):
        explanation = decided.decision.explanation
        return StoredContext(launch.ti_id, launch.key.try_number, decided.context, explanation)
    failed = earlier.previous_try
    return StoredContext(launch.ti_id, launch.key.try_number, failed) if failed else None


def _seconds_until(entry: LedgerEntry) -> float:
    if entry.due is None:
        return 0.0
    seconds = (entry.due - datetime.now(UTC)).total_seconds()
    # Another scheduler may have written it, with a clock that is ahead of ours.
    return min(max(0.0, seconds), entry.decision.delay)
