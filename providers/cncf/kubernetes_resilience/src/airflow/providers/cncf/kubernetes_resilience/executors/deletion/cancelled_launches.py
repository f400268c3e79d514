# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Pods that have not started, or are still to be created, and whose task instances do not want them any more.

Airflow does not tell the executor when a user clears, marks or deletes a task instance. A worker that runs
learns of it from the answer to its next heartbeat; a pod that is Pending would keep its slot, and its place
in the cluster, until it starts, which may be never.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import PodDeletion
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.task_instances import TaskInstanceRow

log = logging.getLogger(__name__)

CHECK_INTERVAL = 10.0
"""Seconds between two looks."""

CHECK_BATCH = 500
"""Launches that are looked at in one turn of the scheduler's loop, with one query; the others in the next."""

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


def is_over(row: TaskInstanceRow | None, try_number: int) -> bool:
    """
    Whether a try has no use for a pod that has not started.

    :param row: the task instance with the UUID that the pod was launched for; None if there is none any more
    """
    return row is None or row.key.try_number != try_number or row.state in _OVER


class CancelledLaunches:
    """
    Retires the current launches that are not wanted any more.

    :param release: gives back the slot of a launch
    :param relaunching: tells which relaunches wait, with the UUIDs of their task instances
    :param call_off: gives up such a relaunch, and its slot
    :param job_id: this scheduler's job
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        registry: LaunchRegistry,
        deletion: PodDeletion,
        release: Callable[[Launch], None],
        relaunching: Callable[[], Mapping[TaskInstanceKey, str]],
        call_off: Callable[[TaskInstanceKey], None],
        job_id: int | None,
        isolation: Isolation,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._deletion = deletion
        self._release = release
        self._relaunching = relaunching
        self._call_off = call_off
        self._job_id = job_id
        self._isolation = isolation
        self._clock = clock
        self._next_look = 0.0
        self._pending: list[Launch] = []
        self._waiting: list[tuple[TaskInstanceKey, str]] = []

    def tick(self) -> None:
        """
        Look for such launches, if it is time to.

        :raises DatabaseAwayError: if the database does not answer; it is tried again then
        """
        if not (self._pending or self._waiting):
            if self._clock() < self._next_look:
                return
            self._next_look = self._clock() + CHECK_INTERVAL
            self._pending, self._waiting = self._registry.pending(), list(self._relaunching().items())
        if self._pending:
            for launch in self._isolation.batch("unwanted", self._pending[:CHECK_BATCH], self._find_over):
                self._isolation.run("unwanted", self._retire, launch)
            del self._pending[:CHECK_BATCH]
        elif self._waiting:
            for key in self._isolation.batch("unwanted", self._waiting[:CHECK_BATCH], self._find_called_off):
                log.info("%s was cleared, marked or deleted; it is not launched again", key)
                self._isolation.run("unwanted", self._call_off, key)
            del self._waiting[:CHECK_BATCH]

    def _find_over(self, pending: Sequence[Launch]) -> list[Launch]:
        pending = [
            launch for launch in pending if self._registry.is_current(launch) and not launch.has_started
        ]
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({launch.ti_id for launch in pending}, session=session)
            gone = {launch.key for launch in pending if launch.ti_id not in rows}
            restarting = task_instances.read_restarting(gone, session=session)
        return [
            launch
            for launch in pending
            # What restarts did start, and the end of its pod is waited for.
            if launch.key not in restarting and not self._wants(rows.get(launch.ti_id), launch)
        ]

    def _wants(self, row: TaskInstanceRow | None, launch: Launch) -> bool:
        """Whether a launch's pod may still start; one that another scheduler has is let go of."""
        if row is None or is_over(row, launch.key.try_number):
            log.info("%s was cleared, marked or deleted; its pod has not started and goes", launch.key)
            return False
        if self._is_anothers(row, launch):
            # That scheduler may have adopted this very pod, before its label or our watch says so.
            log.info("%s was adopted by scheduler job %s", launch.key, row.queued_by_job_id)
            self._release(launch)
        return True

    def _is_anothers(self, row: TaskInstanceRow, launch: Launch) -> bool:
        # Until its adoption is committed, the row is the dead scheduler's.
        is_adopted = launch.adopted_from is not None and row.queued_by_job_id == launch.adopted_from
        return row.queued_by_job_id != self._job_id and not is_adopted

    def _find_called_off(self, waiting: Sequence[tuple[TaskInstanceKey, str]]) -> list[TaskInstanceKey]:
        still = self._relaunching()
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({ti_id for _, ti_id in waiting}, session=session)
        return [
            key
            for key, ti_id in waiting
            if still.get(key) == ti_id and is_over(rows.get(ti_id), key.try_number)
        ]

    def _retire(self, launch: Launch) -> None:
        self._release(launch)
        self._deletion.revoke(launch)
