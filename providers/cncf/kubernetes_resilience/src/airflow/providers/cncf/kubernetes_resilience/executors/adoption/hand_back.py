# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Has the scheduler queue task instances again that this executor has no workload of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, LaunchState
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots


class HandBack:
    """
    Hands launches that were adopted, and have to be made again, back to the scheduler in the same try.

    :param slots: those of the launches are freed
    :param job_id: this scheduler's job
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        registry: LaunchRegistry,
        slots: Slots,
        isolation: Isolation,
        job_id: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._slots = slots
        self._isolation = isolation
        self._job_id = job_id
        self._clock = clock

    def tick(self) -> None:
        """
        Hand back the launches whose superseded pods are gone.

        A scheduler that is handed one knows nothing of a pod that still departs. A launch whose row somebody
        else has locked comes again in the next turn.

        :raises DatabaseAwayError: if the database does not answer; it is tried again then
        """
        now = self._clock()
        clear = [
            launch
            for launch in self._registry.in_state(LaunchState.WAITING)
            if launch.waiting and not (launch.waiting.job or launch.waiting.fails)
            if self._registry.is_clear(launch.key, now)
        ]
        # One that cannot be handed back is let go of all the same: it is queued, and Airflow limits the time.
        for launch in self._isolation.batch(
            "hand-back", clear, self._reschedule, name=_launch_id, give_up=self._let_go
        ):
            self._let_go(launch)

    def _let_go(self, launch: Launch, _: Exception | None = None) -> None:
        self._slots.free(launch.key)
        self._registry.release(launch.key)

    def _reschedule(self, launches: Sequence[Launch]) -> list[Launch]:
        ti_ids = [launch.ti_id for launch in launches]
        with create_session(scoped=False) as session:
            locked = task_instances.reschedule(ti_ids, self._job_id, at=datetime.now(UTC), session=session)
        return [launch for launch in launches if launch.ti_id not in locked]


def _launch_id(launch: Launch) -> str:
    return launch.launch_id
