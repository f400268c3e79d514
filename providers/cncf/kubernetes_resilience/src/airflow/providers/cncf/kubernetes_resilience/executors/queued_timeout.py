# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Airflow's limit of the time in ``queued``, which a relaunch that waits on purpose must not run into."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime

from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.executors import task_instances


class QueuedTimeout:
    """
    Keeps ``[scheduler] task_queued_timeout`` away from task instances whose relaunch waits.

    The scheduler takes a task instance that is queued for longer from the executor, and fails it the third
    time. That time is meant for a pod that does not come up, not for our waiting.

    :param timeout: seconds
    :param job_id: this scheduler's job
    :param clock: monotonic time, seconds
    """

    def __init__(self, timeout: float, *, job_id: int | None, clock: Callable[[], float]) -> None:
        self._interval = timeout / 3
        self._job_id = job_id
        self._clock = clock
        self._next = clock() + self._interval

    def hold_off(self, ti_ids: Collection[str]) -> None:
        """
        Begin the time of task instances anew, if it is time for that.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer; it is tried again then
        """
        now = self._clock()
        if now < self._next:
            return
        if ti_ids:
            with create_session(scoped=False) as session:
                task_instances.begin_queued_anew(ti_ids, self._job_id, at=datetime.now(UTC), session=session)
        self._next = now + self._interval
