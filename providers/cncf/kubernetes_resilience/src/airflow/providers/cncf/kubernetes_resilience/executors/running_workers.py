# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Follows workers whose launches were given up.

The end of a worker that is followed is settled here. Airflow's guess that it is gone only speeds that up.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from contextlib import suppress

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from attrs import define

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.adopter import Adopter
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import PodDeletion
from airflow.providers.cncf.kubernetes_resilience.executors.failures.event_filter import StaleEventFilter
from airflow.providers.cncf.kubernetes_resilience.executors.failures.policies import RetryPolicies
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import DatabaseAwayError, Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import Orphan
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, LaunchState
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import is_running

log = logging.getLogger(__name__)


@define(kw_only=True, eq=False, repr=False, slots=False)
class RunningWorkers:
    """Has the workers of running tasks followed."""

    _registry: LaunchRegistry
    _commands: PodCommands
    """Says whether the API server answers."""
    _adopter: Adopter
    """Looks for the pods of those that nobody follows."""
    _event_filter: StaleEventFilter
    """Follows launches until their pods end."""
    _policies: RetryPolicies
    """Say which tasks may run again after a loss."""
    _deletion: PodDeletion
    _isolation: Isolation
    _job_id: int | None

    def follow(self, keys: Iterable[TaskInstanceKey]) -> None:
        """
        Have the workers of task instances followed that superseded pods have started after all.

        Airflow settles workers without an infrastructure budget, by the heartbeat timeout.

        :raises DatabaseAwayError: if the database does not answer
        """
        unknown = [key for key in keys if not self._registry.adopting_of(key)]
        for orphan in self._isolation.batch("find", unknown, self._find_running):
            launch = self._registry.get(orphan.key)
            if launch and launch.ref and launch.runs(orphan.hostname):
                self._event_filter.note_heartbeat_timeout(
                    launch
                )  # its kubelet does not even say that it starts
                continue
            log.info("%s has started in %s, which nobody follows", orphan.key, orphan.hostname)
            if launch and launch.ref:  # else the task may run in the pod of its create call
                self._registry.release(orphan.key)
                self._deletion.revoke(launch)  # its worker cannot start the task any more
            self._adopter.take([orphan])

    def settles(self, key: TaskInstanceKey) -> bool:
        """Return whether the end of a running task is settled here: its pod is followed, sought or known."""
        launch = self._registry.get(key)
        if launch and _is_followed(launch):
            return True
        if self._registry.adopting_of(key) and self._adopter.is_refused:
            return False
        try:
            return bool(self._isolation.batch("find", [key], self._find_running))
        except DatabaseAwayError:
            return True

    def note_heartbeat_timeout(self, key: TaskInstanceKey) -> None:
        """
        Note the heartbeat timeout of a worker whose end is settled here.

        The state of its pod is unknown while the API server does not answer. A task that may run again after
        a loss waits for the API server. Airflow guesses again.
        """
        launch = self._registry.get(key)
        if launch and _is_followed(launch):
            if not (self._commands.is_away and self._has_budget(launch.ti_id)):
                self._event_filter.note_heartbeat_timeout(launch)
            return
        # Airflow guesses again, and by then its pod, or its loss, may be known.
        with suppress(DatabaseAwayError):
            self.follow([key])

    def _has_budget(self, ti_id: str) -> bool:
        """Return whether a task may run again after a loss; it may while the database does not answer."""
        try:
            return bool(self._isolation.batch("heartbeat", [ti_id], self._policies.with_budget))
        except DatabaseAwayError:
            return True

    def _find_running(self, keys: Collection[TaskInstanceKey]) -> list[Orphan]:
        """
        Return those of these task instances that run under this scheduler, and may run again after a loss.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer
        """
        with create_session(scoped=False) as session:
            rows = task_instances.read_by_key(keys, session=session)
        running = [
            Orphan(row.key, row.ti_id, row.state, row.hostname, row.queued_by_job_id)
            for row in rows.values()
            # Whose it is counts: another scheduler follows the others.
            if is_running(row) and row.queued_by_job_id is not None and row.queued_by_job_id == self._job_id
        ]
        kept = self._policies.with_budget({orphan.ti_id for orphan in running})
        return [orphan for orphan in running if orphan.ti_id in kept]


def _is_followed(launch: Launch) -> bool:
    """Return whether the end of a launch's worker is, or was, noticed here."""
    return launch.has_started or launch.state is LaunchState.ENDED
