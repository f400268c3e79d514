# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Lets go of launches: their slots are freed, and Airflow is told what is certain, and nothing else.

No decision is needed for that: their tasks have ended, they have no pod, or they cannot be handled.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import NotLaunched
from airflow.providers.cncf.kubernetes_resilience.executors.creation.launch_queue import LaunchQueue
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import PodDeletion
from airflow.providers.cncf.kubernetes_resilience.executors.failures.assessment import Report
from airflow.providers.cncf.kubernetes_resilience.executors.failures.event_filter import StaleEventFilter
from airflow.providers.cncf.kubernetes_resilience.executors.failures.outcome import Decided, Settled
from airflow.providers.cncf.kubernetes_resilience.executors.failures.settlement import Settlement
from airflow.providers.cncf.kubernetes_resilience.executors.failures.traces import LaunchTraces
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation, describe
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow_resilience.context import (
    ContextSource,
    ExecutionContext,
    MetadataKey,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.propagation import audit
from airflow_resilience.retry_policy.evidence import Phase


class GivingUp:
    """
    Lets go of launches.

    :param slots: those of the launches are freed
    :param settlement: says whether a task instance is still queued
    :param launch_queue: reports failures once no pod can start any more
    """

    def __init__(
        self,
        *,
        registry: LaunchRegistry,
        slots: Slots,
        deletion: PodDeletion,
        event_filter: StaleEventFilter,
        settlement: Settlement,
        launch_queue: LaunchQueue,
        traces: LaunchTraces,
        isolation: Isolation,
    ) -> None:
        self._registry = registry
        self._slots = slots
        self._deletion = deletion
        self._event_filter = event_filter
        self._settlement = settlement
        self._launch_queue = launch_queue
        self._traces = traces
        self._isolation = isolation

    def release(self, launch: Launch) -> None:
        """Free the slot of a launch, if it is still the current one. Nothing is reported."""
        if self._registry.is_current(launch):
            self._registry.release(launch.key)
            self._slots.free(launch.key)

    def report(self, launch: Launch, state: str | None, info: str | None) -> None:
        """
        Report how the task instance of a launch has ended, and free its slot.

        :param state: None to report nothing
        """
        if state:
            self._slots.report(launch.key, state, info)
        self.release(launch)

    def not_launched(self, given_up: Iterable[NotLaunched]) -> list[TaskInstanceKey]:
        """
        Let go of launches whose pod is not created.

        :return: those of the task instances that run, in another pod
        :raises DatabaseAwayError: if the database does not answer
        """
        running = []
        for item in given_up:
            launch = item.launch
            if not self._registry.is_current(launch):
                continue
            if item.error:
                self._give_up(launch, item.error)
                continue
            if item.is_anothers:
                self.release(launch)
                continue
            if item.why:
                self._fail(launch, item.why, item.context)
                continue
            self._drop(launch.key)
            if item.runs:
                running.append(launch.key)
        return running

    def cannot_act(self, settled: Settled, error: Exception) -> None:
        """Report what is known of a launch whose outcome could not be acted on."""
        launch, outcome = settled.launch, settled.outcome
        match outcome:
            case Decided(entry) if entry.phase is Phase.LAUNCH:
                self._launch_queue.fail(launch, _unhandled(error))
            case Decided():
                self.report(launch, TaskInstanceState.FAILED, _unhandled(error))
            case Report(state):
                self.report(launch, state, _unhandled(error))
            case _:
                self.release(launch)
        self._put_away(launch, settled.failure)

    def cannot_settle(self, launch: Launch, error: Exception) -> None:
        """Give up a launch that could not be settled."""
        self._give_up(launch, error)
        self._put_away(launch, launch.failure)

    def store_why(self, key: TaskInstanceKey, context: ExecutionContext) -> None:
        """
        Store why a task instance will be reported as failed that has no pod.

        :raises DatabaseAwayError: if the database does not answer
        """
        self._isolation.run("tell", audit.record_unlaunched, key, context)

    def _give_up(self, launch: Launch, error: Exception) -> None:
        """
        Leave a task instance that cannot be handled to Airflow.

        It is reported as failed if it is known that no worker runs it. Otherwise nothing is reported, since
        no healthy task may fail: Airflow's own timeouts end the task if it does not run.
        """
        if self._isolation.run("give-up", self._settlement.is_queued, launch.key, launch.ti_id):
            self._fail(launch, _unhandled(error), _not_handled(error))
        else:
            self.release(launch)

    def _put_away(self, launch: Launch, failure: PodFailure | None) -> None:
        self._event_filter.settled(launch)
        self._traces.cancelled(launch)
        self._isolation.run("retire", self._deletion.supersede, launch, failure)

    def _fail(self, launch: Launch, why: str, context: ExecutionContext | None) -> None:
        """Report that a task instance has failed, once no pod of its launch can start any more."""
        if launch.may_run:
            self._deletion.call_off(launch.key)
            self._launch_queue.fail(launch, why, context)
            return
        if context:
            self.store_why(launch.key, context)
        self._drop(launch.key)
        self._slots.fail(launch.key, why)

    def _drop(self, key: TaskInstanceKey) -> None:
        self._deletion.call_off(key)
        self._slots.withdraw(key)


def _unhandled(error: Exception) -> str:
    return f"The executor could not handle the launch: {describe(error)}"


def _not_handled(error: Exception) -> ExecutionContext:
    return ExecutionContext(
        StateChangeCategory.INFRASTRUCTURE,
        StateChangeReason.UNKNOWN,
        ContextSource.EXECUTOR,
        {MetadataKey.MESSAGE.value: _unhandled(error)},
    )
