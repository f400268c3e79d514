# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Deletes the pods that were found and are no current launches: superseded, replaced, or abandoned."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from math import inf

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import State, TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.plan import FoundPods
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import (
    DELETION_TIMEOUT,
    PodDeletion,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import AdoptPod, PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import Orphan, is_host
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Deletion, Launch, launch_of
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import TaskInstanceRow
from airflow.providers.cncf.kubernetes_resilience.pods.facts import SCHEDULER_LABEL, PodFacts


class SurplusPods:
    """Deletes or keeps the pods that are found and not adopted."""

    def __init__(
        self,
        *,
        registry: LaunchRegistry,
        deletion: PodDeletion,
        commands: PodCommands,
        job_id: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._deletion = deletion
        self._commands = commands
        self._job_id = job_id
        self._clock = clock
        self.abandoned: dict[TaskInstanceKey, Orphan] = {}
        """Not adopted any more, but their pods have to be found and deleted."""
        self._listed_before: dict[TaskInstanceKey, FoundPods] = {}
        """What was found of those before it was known that another scheduler has them."""

    def abandon(self, orphan: Orphan) -> None:
        """
        Have the pods of a task instance deleted when they are found; its next launch waits for that.

        It waits for as long as they cannot be listed: until then nobody has asked for their deletion. If that
        is not permitted, it waits for no longer than for a deletion that is not.
        """
        self.abandoned[orphan.key] = orphan
        if orphan.state == TaskInstanceState.QUEUED:  # else its worker has started and reported since
            search = Launch(orphan.key, orphan.ti_id, launch_id=orphan.ti_id)
            self._registry.leave(search, Deletion(inf))

    def wait_no_longer(self) -> None:
        """Limit the waits of the next launches, as it is not known when the pods can be listed."""
        for orphan in self.abandoned.values():
            self._limit(orphan)

    def _limit(self, orphan: Orphan) -> None:
        launch = self._registry.departing(orphan.ti_id)
        if launch and launch.deletion:
            launch.deletion.limit(self._clock() + DELETION_TIMEOUT)

    def reclaim(self, keys: Iterable[TaskInstanceKey]) -> None:
        """Leave the pods of task instances whose adoption begins anew: they are found with the new ones."""
        for key in self.abandoned.keys() & keys:
            self._close(key)

    def delete(self, found: FoundPods, adopted: Container[TaskInstanceKey]) -> None:
        """Delete or keep the other pods of task instances that are adopted."""
        for key, pod in found.superseded_of(adopted):
            if self._goes_on(pod):
                self._deletion.give_up(launch_of(found.orphans[key], pod, has_siblings=True), pod)
        self._delete_replaced(found, adopted)

    def delete_abandoned(self, found: FoundPods) -> None:
        """
        Delete or keep the pods of task instances that are not adopted any more.

        They are deleted whether they have started or not, as those are whose launch is revoked otherwise.
        """
        answered = found.answered(self.abandoned)
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
        current = [(key, pod) for key, pod in found.current.items() if key in abandoned]
        for key, pod in [*current, *found.superseded_of(abandoned)]:
            row = by_key.get(key)
            has_run = found.current.get(key) is pod and abandoned[key].state != TaskInstanceState.QUEUED
            is_used = has_run or self._is_used(pod, row)
            if (is_used and row and self._is_anothers(row)) or not self._goes_on(pod):
                continue
            if is_used:
                self._commands.send(AdoptPod(pod.ref))  # labelled, it is watched until its end
            else:
                self._deletion.revoke(launch_of(found.orphans[key], pod, has_siblings=True))
        self._delete_replaced(found, abandoned)
        for key in abandoned:
            self._close(key)

    def _has_to_be_listed_again(
        self, key: TaskInstanceKey, found: FoundPods, row: TaskInstanceRow | None
    ) -> bool:
        """Whether another scheduler has a task instance, and may have adopted its pods since the list."""
        if row is None or not self._is_anothers(row):
            return False
        pods = [pod for _, pod in found.superseded_of({key})]
        if current := found.current.get(key):
            pods.append(current)
        if any(self._is_used(pod, row) for pod in pods):
            return False  # it had its own by then
        return self._listed_before.setdefault(key, found) is found

    def _is_anothers(self, row: TaskInstanceRow) -> bool:
        return row.state in State.adoptable_states and row.queued_by_job_id != self._job_id

    def _is_used(self, pod: PodFacts, row: TaskInstanceRow | None) -> bool:
        """Whether a worker has run in a pod, or another scheduler has launched it since."""
        if row is None:
            return False
        if is_host(row.hostname, pod):
            return True  # it ends by itself
        return self._is_anothers(row) and pod.labels.get(SCHEDULER_LABEL) == str(row.queued_by_job_id)

    def _close(self, key: TaskInstanceKey) -> None:
        self._registry.left(self.abandoned.pop(key).ti_id)
        self._listed_before.pop(key, None)

    def _goes_on(self, pod: PodFacts) -> bool:
        """Whether a pod goes on that this scheduler has not launched since; clean up a pod that has ended."""
        if self._registry.find(pod):
            return False
        if pod.is_terminal:
            self._deletion.clean_up(pod)
        return not pod.is_terminal

    def _delete_replaced(self, found: FoundPods, keys: Container[TaskInstanceKey]) -> None:
        """Delete the pods in which these ran before they ran again; their next launches wait for them."""
        for key, pod in found.replaced:
            if key in keys and not pod.is_terminal:  # its node may be cut off
                self._deletion.revoke(launch_of(found.orphans[key], pod, has_siblings=True))
