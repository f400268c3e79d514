# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The executor's slots in Airflow: which task instances have one, and what the scheduler is told of them."""

from __future__ import annotations

from typing import Any, Protocol

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState


class Executor(Protocol):
    """What is needed of Airflow's ``BaseExecutor``."""

    running: set[Any]
    queued_tasks: Any
    event_buffer: dict[Any, tuple[Any, Any]]
    scheduler_job_id: str | None

    def fail(self, key: TaskInstanceKey, info: Any = None) -> None:
        """Report a task instance as failed."""


class Slots:
    """
    Frees the slots of task instances.

    :param executor: whose slots they are
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    @property
    def occupied(self) -> set[Any]:
        """The keys of the task instances that have one."""
        return self._executor.running

    def is_queued_again(self, key: TaskInstanceKey) -> bool:
        """Whether the scheduler has handed over the next phase of a task instance, which has no slot yet."""
        return key in self._executor.queued_tasks

    def forget_queued(self, key: TaskInstanceKey) -> None:
        """Forget a task instance that was handed over and has no slot yet."""
        self._executor.queued_tasks.pop(key, None)

    def free(self, key: TaskInstanceKey) -> None:
        """Free the slot of a task instance; nothing is reported."""
        self._executor.running.discard(key)

    def withdraw(self, key: TaskInstanceKey) -> None:
        """Like :meth:`free`, and do not report that it was queued, if that has not been read yet."""
        self.free(key)
        if self._executor.event_buffer.get(key) == (
            TaskInstanceState.QUEUED,
            self._executor.scheduler_job_id,
        ):
            del self._executor.event_buffer[key]

    def fail(self, key: TaskInstanceKey, why: str) -> None:
        """Report a task instance as failed."""
        self._executor.fail(key, why)
