# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Meanings of a task instance's row for a launch. Pure.

Whether a worker has started is written there and nowhere else: ``queued`` means that it has not.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum, auto
from typing import NamedTuple, TypeGuard

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts


class TaskInstanceRow(NamedTuple):
    """Columns of a task instance that a launch needs."""

    ti_id: str
    """Its UUID, which is another one after it was cleared."""
    key: TaskInstanceKey
    state: str | None
    """``queued`` means that no worker has started it; None that it is to be scheduled."""
    queued_by_job_id: int | None
    """The job of the scheduler that has queued it."""
    hostname: str | None
    """Host of its worker, or of the worker that has deferred; empty or None before the first start."""
    scheduled_dttm: datetime | None = None
    """When Airflow has last scheduled it; None if that is not known."""


def is_running(row: TaskInstanceRow | None) -> TypeGuard[TaskInstanceRow]:
    """Return whether a worker runs a task instance."""
    return row is not None and row.state == TaskInstanceState.RUNNING


class TaskSnapshot(NamedTuple):
    """The task instance of a launch, as the database has it."""

    key: TaskInstanceKey | None
    """The try of the launch; None if its pod does not say."""
    row: TaskInstanceRow | None
    """The row with the UUID that the launch was made for; None if there is none any more."""
    restarting: TaskInstanceRow | None = None
    """The row with the new UUID of a task instance that was cleared while it ran, and waits for the end of
    its worker."""

    @property
    def owner(self) -> int | None:
        """The job of the scheduler that has it; None if nobody has."""
        row = self.row or self.restarting
        return row.queued_by_job_id if row else None

    def standing(self, job_id: int | None) -> Standing:
        """Say what the task instance means for the launch, as :func:`standing` does."""
        if self.restarting:
            return Standing.RESTARTED if self.owner == job_id else Standing.ELSEWHERE
        return standing(self.row, self.key, job_id=job_id)

    def has_released(self, pod: PodFacts) -> bool:
        """
        Return whether its try goes on without a pod, whose phase has deferred or was rescheduled.

        The pod of such a phase succeeds before its try is over. While the task instance waits, its row names
        the scheduler of that phase.
        """
        return pod.has_succeeded and self.standing(self.owner) is Standing.HELD_UP


class Standing(Enum):
    """Standings of a launch by its task instance's row."""

    GONE = auto()
    """The task instance was cleared or deleted, or is in another try."""
    RESTARTED = auto()
    """The running task was cleared, and waits for the end of its worker. The row has another UUID."""
    OVER = auto()
    """The try has come to its end."""
    ELSEWHERE = auto()
    """The task goes on, and is another scheduler's."""
    QUEUED = auto()
    """The task is queued by this scheduler: no worker has started."""
    RUNNING = auto()
    """A worker runs it, or was asked to stop because it was cleared."""
    HELD_UP = auto()
    """The task goes on, and is neither queued nor running: deferred, or scheduled again."""


_OVER = frozenset(
    {
        None,
        TaskInstanceState.SUCCESS,
        TaskInstanceState.FAILED,
        TaskInstanceState.SKIPPED,
        TaskInstanceState.UPSTREAM_FAILED,
        TaskInstanceState.REMOVED,
        TaskInstanceState.UP_FOR_RETRY,
    }
)
_RUNNING = frozenset({TaskInstanceState.RUNNING, TaskInstanceState.RESTARTING})


def standing(row: TaskInstanceRow | None, key: TaskInstanceKey | None, *, job_id: int | None) -> Standing:
    """
    Say what a row means for a launch.

    :param row: the task instance with the UUID that the pod was launched for; None if there is none any more
    :param key: of the try that the pod was launched for; None if it does not say
    """
    if row is None or key is None or row.key.try_number != key.try_number:
        return Standing.GONE
    if row.state in _OVER:
        return Standing.OVER
    if row.queued_by_job_id != job_id:
        return Standing.ELSEWHERE
    if row.state == TaskInstanceState.QUEUED:
        return Standing.QUEUED
    return Standing.RUNNING if row.state in _RUNNING else Standing.HELD_UP


def awaits_launch(row: TaskInstanceRow | None, key: TaskInstanceKey, *, job_id: int | None) -> bool:
    """
    Return whether this scheduler has queued a try, and no worker has started it.

    A pod of that try which has failed is a launch failure. The row alone says so: a worker that starts writes
    ``running`` into the row before any of the task's code runs.
    """
    return standing(row, key, job_id=job_id) is Standing.QUEUED
