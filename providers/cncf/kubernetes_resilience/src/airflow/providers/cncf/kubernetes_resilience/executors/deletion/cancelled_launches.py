# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Launches that have not started and whose task instance was cleared, marked or deleted.

Airflow does not tell the executor when a user does that. A worker that runs learns of it from the answer to
its next heartbeat. A pod that is Pending would keep its slot, and its place in the cluster, until it starts,
which may be never.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import (
    UNKNOWN_VERSION,
    PodDeletion,
)
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, LaunchState
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import (
    Standing,
    TaskInstanceRow,
    standing,
)
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef

log = logging.getLogger(__name__)

CHECK_INTERVAL = 10.0
"""Seconds between two looks."""

CHECK_BATCH = 500
"""Launches that are looked at in one turn of the scheduler's loop, with one query; the others in the next."""


class CancelledLaunches:
    """
    Cancels launches that have not started and whose task instance was cleared, marked or deleted.

    :param slots: those of the launches are freed
    :param job_id: this scheduler's job
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        registry: LaunchRegistry,
        deletion: PodDeletion,
        slots: Slots,
        job_id: int | None,
        isolation: Isolation,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._deletion = deletion
        self._slots = slots
        self._job_id = job_id
        self._isolation = isolation
        self._clock = clock
        self._next_look = 0.0
        self._to_check: list[Launch] = []

    def tick(self) -> list[Launch]:
        """
        Look for such launches, if it is time to; return those that were cancelled.

        :raises DatabaseAwayError: if the database does not answer; it is tried again then
        """
        if not self._to_check:
            if self._clock() < self._next_look:
                return []
            self._next_look = self._clock() + CHECK_INTERVAL
            waiting = self._registry.in_state(LaunchState.WAITING)
            relaunches = (launch for launch in waiting if launch.waiting and launch.waiting.is_relaunch)
            held = self._registry.in_state(LaunchState.HELD)
            self._to_check = [*self._registry.in_state(LaunchState.PENDING), *relaunches, *held]
        cancelled = []
        if batch := self._to_check[:CHECK_BATCH]:
            for launch, found in self._isolation.batch("cancel", batch, self._look_up):
                if self._isolation.run("cancel", self._handle, launch, found):
                    cancelled.append(launch)
            del self._to_check[:CHECK_BATCH]
        return cancelled

    def _look_up(self, launches: Sequence[Launch]) -> list[tuple[Launch, TaskInstanceRow | None]]:
        """Return the launches that have not started yet, with the rows of their task instances."""
        launches = [launch for launch in launches if self._registry.is_current(launch) and _may_start(launch)]
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({launch.ti_id for launch in launches}, session=session)
            gone = {launch.key for launch in launches if launch.ti_id not in rows}
            restarting = task_instances.read_restarting(gone, session=session)
        # A task instance that restarts has started. The end of its pod is waited for.
        return [(launch, rows.get(launch.ti_id)) for launch in launches if launch.key not in restarting]

    def _handle(self, launch: Launch, row: TaskInstanceRow | None) -> bool:
        """Cancel a launch if it has to be; return whether it was."""
        now = standing(
            row,
            try_number=launch.key.try_number,
            job_id=self._job_id,
            adopted_from=launch.adopted_from,
        )
        if now in (Standing.GONE, Standing.OVER):
            self._cancel(launch)
            return True
        if now is Standing.ELSEWHERE and launch.waiting is None:
            # That scheduler may have adopted this very pod, before its label or our watch says so.
            log.info("%s was adopted by scheduler job %s", launch.key, row and row.queued_by_job_id)
            self._registry.release(launch.key)
            self._slots.free(launch.key)
        return False

    def _cancel(self, launch: Launch) -> None:
        if launch.waiting:
            log.info("%s was cleared, marked or deleted; it is not launched again", launch.key)
            self._deletion.revoke_given_up(launch.key)
            self._registry.release(launch.key)
            self._slots.withdraw(launch.key)
        else:
            log.info("%s was cleared, marked or deleted; its pod has not started and goes", launch.key)
            self._registry.release(launch.key)
            self._slots.free(launch.key)
            # It may have started, and ended its try, and nobody has told this scheduler.
            self._deletion.give_up(launch, launch.facts or _unseen(launch.ref))


def _unseen(ref: PodRef | None) -> PodFacts:
    """Return what is known of a pod of which only its creation is."""
    if ref is None:
        raise AssertionError("a launch that is pending has a pod")
    return PodFacts(ref, {}, {}, resource_version=UNKNOWN_VERSION)


def _may_start(launch: Launch) -> bool:
    return launch.state in (LaunchState.WAITING, LaunchState.HELD, LaunchState.PENDING)
