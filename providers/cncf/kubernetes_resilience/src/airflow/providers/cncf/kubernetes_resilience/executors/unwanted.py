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
from collections.abc import Callable, Mapping

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.launches import Launch, LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.retirement import Retirement
from airflow.providers.cncf.kubernetes_resilience.executors.task_instances import TaskInstanceRow

log = logging.getLogger(__name__)

CHECK_INTERVAL = 10.0
"""Seconds between two looks, each of which is one query."""

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


class UnwantedLaunches:
    """
    Retires the current launches that are not wanted any more.

    :param release: gives back the slot of a launch
    :param relaunching: tells which relaunches wait, with the UUIDs of their task instances
    :param call_off: gives up such a relaunch, and its slot
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        registry: LaunchRegistry,
        retirement: Retirement,
        release: Callable[[Launch], None],
        relaunching: Callable[[], Mapping[TaskInstanceKey, str]],
        call_off: Callable[[TaskInstanceKey], None],
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._retirement = retirement
        self._release = release
        self._relaunching = relaunching
        self._call_off = call_off
        self._clock = clock
        self._next_look = 0.0

    def tick(self) -> None:
        """
        Look for such launches, if it is time to.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer
        """
        if self._clock() < self._next_look:
            return
        pending = self._registry.pending()
        waiting = self._relaunching()
        if pending or waiting:
            with create_session(scoped=False) as session:
                ti_ids = {*waiting.values(), *(launch.ti_id for launch in pending)}
                rows = task_instances.read_rows(ti_ids, session=session)
                gone = {launch.key for launch in pending if launch.ti_id not in rows}
                restarting = task_instances.read_restarting(gone, session=session)
            for launch in pending:
                # What restarts did start, and the end of its pod is waited for.
                if is_over(rows.get(launch.ti_id), launch.key.try_number) and launch.key not in restarting:
                    self._retire(launch)
            for key, ti_id in waiting.items():
                if is_over(rows.get(ti_id), key.try_number):
                    log.info("%s was cleared, marked or deleted; it is not launched again", key)
                    self._call_off(key)
        self._next_look = self._clock() + CHECK_INTERVAL

    def _retire(self, launch: Launch) -> None:
        log.info("%s was cleared, marked or deleted; pod %s has not started and goes", launch.key, launch.ref)
        self._release(launch)
        self._retirement.revoke(launch)
