# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The executor's slots in Airflow, and the reports about the task instances in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors import upstream

if TYPE_CHECKING:
    from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor


class Slots:
    """
    Frees the slots of task instances.

    :param executor: whose slots they are
    """

    def __init__(self, executor: KubernetesExecutor) -> None:
        self._executor = executor
        self.lent = 0
        """Number of slots above the configured ones."""

    @property
    def configured(self) -> int:
        """Number of configured slots: ``[core] parallelism``."""
        return self._executor.parallelism - self.lent

    def lend(self, count: int) -> None:
        """Have so many slots more than configured, in place of those whose task instances are held."""
        self._executor.parallelism += count - self.lent
        self.lent = count

    @property
    def occupied(self) -> set[Any]:
        """The keys of the task instances that have one."""
        return self._executor.running

    def is_queued_again(self, key: TaskInstanceKey) -> bool:
        """Return whether the next phase of a task instance was handed over, and has no slot yet."""
        return key in upstream.queued_tasks(self._executor)

    def has(self, key: TaskInstanceKey) -> bool:
        """Return whether a task instance has one, or is to have one."""
        return key in self.occupied or self.is_queued_again(key)

    def forget_queued(self, key: TaskInstanceKey) -> None:
        """Forget a task instance that was handed over and has no slot yet."""
        upstream.queued_tasks(self._executor).pop(key, None)

    def free(self, key: TaskInstanceKey) -> None:
        """Free the slot of a task instance; nothing is reported."""
        self._executor.running.discard(key)

    def retract(self, key: TaskInstanceKey) -> None:
        """Like :meth:`free`, and withdraw the unread report that the task instance was queued."""
        self.free(key)
        if self._executor.event_buffer.get(key) == (
            TaskInstanceState.QUEUED,
            self._executor.scheduler_job_id,
        ):
            del self._executor.event_buffer[key]

    def fail(self, key: TaskInstanceKey, why: str) -> None:
        """Report a task instance as failed."""
        self._executor.fail(key, why)

    def report(self, key: TaskInstanceKey, state: str, info: str | None) -> None:
        """Report the state of a task instance. Its slot is freed separately."""
        self._executor.change_state(key, TaskInstanceState(state), info, remove_running=False)

    def report_again(self, key: TaskInstanceKey, event: tuple[Any, Any]) -> None:
        """Make a report again that the scheduler has taken, unless there is another one."""
        self._executor.event_buffer.setdefault(key, event)

    def follow_new_id(self, key: TaskInstanceKey, old: str, new: str | None) -> None:
        """Have the reports about a task instance be about its new UUID, if it has one."""
        upstream.follow_new_id(self._executor, key, old, new)

    def stay_awake(self) -> None:
        """
        Keep the scheduler from sleeping before its next turn.

        Airflow's scheduler sleeps for ``[scheduler] scheduler_idle_sleep_time`` after a turn without queued
        tasks and without remaining executor events. An event with a state that the scheduler ignores remains.
        The event must not be about a task instance that something is reported of, in this try or another: the
        scheduler uses the last event of each.
        """
        events = self._executor.event_buffer
        reported = {key.primary for key in events if isinstance(key, TaskInstanceKey)}
        for key in self.occupied:
            if isinstance(key, TaskInstanceKey) and key.primary not in reported:
                events[key] = (TaskInstanceState.SCHEDULED, None)
                return
