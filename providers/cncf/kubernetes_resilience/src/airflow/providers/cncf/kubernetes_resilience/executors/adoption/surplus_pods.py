# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Deletes the pods that were found and are no current launches: superseded, replaced, or abandoned."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from math import inf

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import State

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.found_pods import FoundPods
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import (
    DELETION_TIMEOUT,
    PodDeletion,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import SCHEDULER_LABEL, is_host
from airflow.providers.cncf.kubernetes_resilience.executors.launches.orphan import Orphan
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import TaskInstanceRow
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts


class SurplusPods:
    """
    Deletes or keeps the pods that are found and not adopted.

    :param job_id: this scheduler's job
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        registry: LaunchRegistry,
        deletion: PodDeletion,
        job_id: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._deletion = deletion
        self._job_id = job_id
        self._clock = clock
        self.abandoned: dict[TaskInstanceKey, Orphan] = {}
        """Not adopted any more, but their pods have to be found and deleted."""

    def abandon(self, orphan: Orphan) -> None:
        """
        Have the pods of a task instance deleted when they are found; its next launch waits for that.

        It waits for as long as they cannot be listed: until then nobody has asked for their deletion. If that
        is not permitted, it waits for no longer than for a deletion that is not.
        """
        self.abandoned[orphan.key] = orphan
        if orphan.state == "queued":  # else its worker has started and reported since
            self._registry.leave(orphan.key, orphan.ti_id, inf)

    def wait_no_longer(self) -> None:
        """Limit the waits of the next launches, as it is not known when the pods can be listed."""
        for orphan in self.abandoned.values():
            self._registry.wait_until(orphan.ti_id, self._clock() + DELETION_TIMEOUT)

    def reclaim(self, keys: Iterable[TaskInstanceKey]) -> None:
        """Leave the pods of task instances whose adoption begins anew: they are found with the new ones."""
        for key in self.abandoned.keys() & keys:
            self._close(key)

    def delete(self, found: FoundPods, adopted: Container[TaskInstanceKey]) -> None:
        """Delete or keep the other pods of task instances that are adopted."""
        self._delete_superseded(found.superseded_of(adopted))
        self._delete_replaced(found, adopted)

    def delete_abandoned(self, found: FoundPods) -> None:
        """Delete or keep the pods of task instances that are not adopted any more."""
        abandoned = found.answered(self.abandoned)
        if not abandoned:
            return
        for orphan in abandoned.values():
            self._registry.wait_until(orphan.ti_id, self._clock() + DELETION_TIMEOUT)
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({o.ti_id for o in abandoned.values()}, session=session)
        by_key = {row.key: row for row in rows.values()}
        current = [
            (key, found.plan.current[key])
            for key, orphan in abandoned.items()
            if key in found.plan.current and orphan.state == "queued"
        ]
        self._delete_superseded(
            (key, pod)
            for key, pod in [*current, *found.superseded_of(abandoned)]
            if not self._is_used(pod, by_key.get(key))
        )
        self._delete_replaced(found, abandoned)
        for key in abandoned:
            self._close(key)

    def _is_used(self, pod: PodFacts, row: TaskInstanceRow | None) -> bool:
        """Whether a worker has run in a pod, or another scheduler has launched it since."""
        if row is None:
            return False
        if is_host(row.hostname, pod):
            return True  # it ends by itself; the pod carries our label now, and is seen then
        is_anothers = row.state in State.adoptable_states and row.queued_by_job_id != self._job_id
        return is_anothers and pod.labels.get(SCHEDULER_LABEL) == str(row.queued_by_job_id)

    def _close(self, key: TaskInstanceKey) -> None:
        self._registry.left(self.abandoned.pop(key).ti_id)

    def _delete_superseded(self, superseded: Iterable[tuple[TaskInstanceKey, PodFacts]]) -> None:
        for key, pod in superseded:
            if self._registry.find(pod):
                continue  # launched by this scheduler while the pods were looked for
            if pod.is_terminal:
                self._deletion.tidy(pod.ref, failed=pod.phase == "Failed")
            else:
                self._deletion.give_up(key, pod)

    def _delete_replaced(self, found: FoundPods, keys: Container[TaskInstanceKey]) -> None:
        """Delete the pods in which these ran before they ran again; their next launches wait for them."""
        for key, pod in found.plan.replaced:
            if key in keys and not pod.is_terminal:  # its node may be cut off
                self._deletion.delete(key, pod)
