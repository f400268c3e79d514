# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Deletes the pods of task instances whose adoption was cancelled, or that Airflow resets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import State, TaskInstanceState
from attrs import define, field

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.plan import FoundPods
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import (
    DELETION_TIMEOUT,
    PodDeletion,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import Orphan, is_host
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Deletion, Launch, launch_of
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import TaskInstanceRow
from airflow.providers.cncf.kubernetes_resilience.pods.facts import SCHEDULER_LABEL, PodFacts
from airflow.providers.cncf.kubernetes_resilience.pods.messages import AdoptPod


@define(kw_only=True, eq=False, repr=False, slots=False)
class AbandonedPods:
    """Has the pods found and deleted of task instances that are not adopted any more."""

    _registry: LaunchRegistry
    _deletion: PodDeletion
    """Deletes or keeps these pods."""
    _commands: PodCommands
    _job_id: int | None
    _clock: Callable[[], float]
    orphans: dict[TaskInstanceKey, Orphan] = field(factory=dict, init=False)
    """The task instances whose pods are still to be found."""
    _lost_at: dict[TaskInstanceKey, float] = field(factory=dict, init=False)
    """When another scheduler was first seen to have a task instance, on the executor's monotonic clock."""

    def add(self, orphan: Orphan) -> None:
        """
        Have the pods of a task instance deleted when they are found; its next launch waits for that.

        The next launch waits while the pods cannot be listed: no deletion is requested until then. Without
        the permission to list, the launch waits as long as without the permission to delete.
        """
        self.orphans[orphan.key] = orphan
        if orphan.state == TaskInstanceState.QUEUED:  # else its worker has started and reported since
            search = Launch(orphan.key, orphan.ti_id, launch_id=orphan.ti_id)
            self._registry.supersede(search, Deletion(inf))

    def limit_waits(self) -> None:
        """Limit the waits of the next launches, as it is not known when the pods can be listed."""
        for orphan in self.orphans.values():
            self._limit(orphan)

    def _limit(self, orphan: Orphan) -> None:
        launch = self._registry.departing(orphan.ti_id)
        if launch and launch.deletion:
            launch.deletion.limit(self._clock() + DELETION_TIMEOUT)

    def forget(self, keys: Iterable[TaskInstanceKey]) -> None:
        """Leave the pods of task instances whose adoption begins anew: they are found with the new ones."""
        for key in self.orphans.keys() & keys:
            self._close(key)

    def delete(self, found: FoundPods) -> None:
        """
        Delete or keep the pods of task instances that are not adopted any more.

        Started pods are deleted too, as with any other revoked launch.
        """
        answered = found.answered(self.orphans)
        if not answered:
            return
        for orphan in answered.values():
            self._limit(orphan)
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({o.ti_id for o in answered.values()}, session=session)
        by_key = {row.key: row for row in rows.values()}
        abandoned = {
            key: orphan
            for key, orphan in answered.items()
            if not self._has_to_be_listed_again(key, found, by_key.get(key))
        }
        for key, pod in found.pods_of(abandoned):
            row = by_key.get(key)
            has_run = found.current.get(key) is pod and abandoned[key].state != TaskInstanceState.QUEUED
            is_used = has_run or self._is_used(pod, row)
            if (is_used and row and self._is_anothers(row)) or self._registry.find(pod):
                continue  # another scheduler has it, or this one has launched it since
            if pod.has_ended:
                self._deletion.clean_up(pod)
            elif is_used:
                self._commands.send(AdoptPod(pod.ref))  # labelled, it is watched until its end
            else:
                self._deletion.revoke(launch_of(found.orphans[key], pod, has_siblings=True))
        for key, pod in found.replaced_of(abandoned):
            self._deletion.revoke(launch_of(found.orphans[key], pod, has_siblings=True))
        for key in abandoned:
            self._close(key)

    def _has_to_be_listed_again(
        self, key: TaskInstanceKey, found: FoundPods, row: TaskInstanceRow | None
    ) -> bool:
        """Return whether another scheduler has a task instance, and may have adopted its pods since."""
        if row is None or not self._is_anothers(row):
            return False
        if any(self._is_used(pod, row) for _, pod in found.pods_of({key})):
            return False  # it had its own by then
        # Two lists may have been under way before that was noticed, as when one has taken too long.
        return found.asked_at < self._lost_at.setdefault(key, self._clock())

    def _is_anothers(self, row: TaskInstanceRow) -> bool:
        return row.state in State.adoptable_states and row.queued_by_job_id != self._job_id

    def _is_used(self, pod: PodFacts, row: TaskInstanceRow | None) -> bool:
        """Return whether a worker has run in a pod, or another scheduler has launched it since."""
        if row is None:
            return False
        if is_host(row.hostname, pod):
            return True  # it ends by itself
        return self._is_anothers(row) and pod.labels.get(SCHEDULER_LABEL) == str(row.queued_by_job_id)

    def _close(self, key: TaskInstanceKey) -> None:
        self._registry.gone(self.orphans.pop(key).ti_id)
        self._lost_at.pop(key, None)
