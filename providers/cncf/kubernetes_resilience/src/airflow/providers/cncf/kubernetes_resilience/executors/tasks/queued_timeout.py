# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Airflow's limit of the time in ``queued``, which a relaunch that waits on purpose must not run into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances


class QueuedTimeout:
    """
    Keeps ``[scheduler] task_queued_timeout`` away from task instances that wait for no fault of their pods.

    The scheduler takes a task instance that is queued for longer from the executor, and fails it the third
    time. That time is meant for a pod that does not come up, not for our waiting, nor for an API server that
    is away: pods can be neither created nor scheduled then, and what they need cannot be read.

    :param timeout: seconds
    :param waiting: tells the UUIDs of those whose launch waits on purpose
    :param held: tells the UUIDs of all that have not started
    :param is_away: whether the API server does not answer
    :param job_id: this scheduler's job
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        timeout: float,
        *,
        waiting: Callable[[], set[str]],
        held: Callable[[], set[str]],
        is_away: Callable[[], bool],
        isolation: Isolation,
        job_id: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._interval = timeout / 3
        self._waiting = waiting
        self._held = held
        self._is_away = is_away
        self._isolation = isolation
        self._job_id = job_id
        self._clock = clock
        self._next = clock() + self._interval
        self._was_away = False

    def tick(self) -> None:
        """
        Begin the time of those task instances anew, if it is time for that or an outage begins or ends.

        :raises DatabaseAwayError: if the database does not answer; it is tried again then
        """
        now, is_away = self._clock(), self._is_away()
        if now < self._next and is_away == self._was_away:
            return
        ti_ids = self._waiting()
        if is_away or self._was_away:
            ti_ids |= self._held()
        self._isolation.batch("hold-off", ti_ids, self._begin_anew)
        self._next, self._was_away = now + self._interval, is_away

    def _begin_anew(self, ti_ids: Sequence[str]) -> None:
        with create_session(scoped=False) as session:
            task_instances.begin_queued_anew(ti_ids, self._job_id, at=datetime.now(UTC), session=session)
