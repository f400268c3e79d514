# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Taking over the task instances of a dead scheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.completion import Completion
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.orphans import Orphans
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.pod_search import PodSearch
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.surplus_pods import SurplusPods
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import PodDeletion
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import DatabaseAwayError, Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import Orphan
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance


class Adopter:
    """
    Adopts orphaned task instances.

    The scheduler waits for the list of their pods. Pods are labelled and deleted in the next turn, when
    Airflow has committed the adoption. While the API server does not answer, the task instances are kept, and
    their pods are looked for again without waiting.

    :param slots: adopted task instances get one
    :param with_budget: returns which task instances, by their UUIDs, may run again after a loss
    """

    def __init__(
        self,
        *,
        orphans: Orphans,
        search: PodSearch,
        completion: Completion,
        surplus: SurplusPods,
        registry: LaunchRegistry,
        deletion: PodDeletion,
        slots: Slots,
        isolation: Isolation,
        with_budget: Callable[[Collection[str]], set[str]],
    ) -> None:
        self._orphans = orphans
        self._search = search
        self._completion = completion
        self._surplus = surplus
        self._registry = registry
        self._deletion = deletion
        self._slots = slots
        self._isolation = isolation
        self._with_budget = with_budget

    def adopt(self, tis: Sequence[TaskInstance]) -> list[TaskInstance]:
        """
        Adopt task instances; return those that have to be reset.

        :param tis: rows that the scheduler holds locked in its own transaction
        :raises DatabaseAwayError: if the database does not answer
        """
        ti_ids = [str(ti.id) for ti in tis]
        read = self._orphans.read(ti_ids)
        orphans = {orphan.key: orphan for orphan in read.values() if orphan}
        new = {key: orphan for key, orphan in orphans.items() if not self._orphans.is_taken(orphan)}
        lost = self._adopt(new) if new else set()
        kept = {orphan.ti_id for key, orphan in orphans.items() if key not in lost}
        # What could not be read may run.
        return [ti for ti, ti_id in zip(tis, ti_ids, strict=True) if ti_id in read and ti_id not in kept]

    def follow(self, orphan: Orphan) -> None:
        """
        Have the pod looked for in which a task instance of this scheduler runs, and which nobody follows.

        Its launch was taken back or given up, and its worker has started all the same. Its pod is followed
        until it ends; without one the task instance has lost its worker. The scheduler does not wait.
        """
        self._take([orphan])

    def _adopt(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> set[TaskInstanceKey]:
        """
        Return those that were running, have no pod, and may not run again in the same try.

        Airflow resets them, and their superseded pods are deleted in the next turn.
        """
        self._take(orphans.values())
        found = self._search.look(orphans)
        lost = [o for o in found.answered(orphans).values() if found.has_lost(o)] if found else []
        running = [orphan.ti_id for orphan in lost if orphan.state == TaskInstanceState.RUNNING]
        kept: Collection[str] = ()
        try:
            kept = self._isolation.batch("adopt", running, self._with_budget)
        finally:  # if the database does not answer, Airflow repeats the offer
            reset = [orphan for orphan in lost if orphan.ti_id not in kept]
            for orphan in reset:
                self._orphans.let_go_of(orphan.key)
                self._surplus.abandon(orphan)
        return {orphan.key for orphan in reset}

    def _take(self, orphans: Collection[Orphan]) -> None:
        keys = {orphan.key for orphan in orphans}
        for key in keys:  # what was planned before another scheduler had the task instance is forgotten
            self._slots.forget_queued(key)
            launch = self._registry.get(key)
            if launch and launch.ref is None:
                # A create call that is carried out all the same makes a pod in which the task may run.
                self._deletion.call_off(key)
        self._registry.adopt(orphans)
        self._surplus.reclaim(keys)
        self._slots.occupied.update(keys)

    def continue_(self) -> None:
        """
        Go on with adoptions that could not be finished at once.

        :raises DatabaseAwayError: if the database does not answer; it is tried again then
        """
        is_due = self._search.is_due
        answers = deque(self._search.answers())
        try:
            adopted = self._orphans.read_adopted() if is_due or answers else {}
            while answers:
                self._isolation.run("adopt", self._surplus.delete_abandoned, answers[0])
                self._completion.complete(answers[0], adopted)
                answers.popleft()
        except DatabaseAwayError:
            self._search.put_back(answers)
            raise
        if self._search.is_refused:
            self._surplus.wait_no_longer()
            if self._search.is_due:
                self._isolation.run("adopt", self._forget_over)
        self._search.look_again(self._surplus.abandoned | self._registry.adopting())

    def _forget_over(self) -> None:
        """Forget what has ended, and whose pod may never be found; the collector tidies that up."""
        for key in self._orphans.find_over(self._registry.adopting().values()):
            self._orphans.let_go_of(key)
        self._surplus.reclaim(self._orphans.find_over(self._surplus.abandoned.values()))

    @property
    def is_refused(self) -> bool:
        """Whether the pods of what is adopted may not be listed, which may last."""
        return self._search.is_refused

    def waiting(self) -> Iterable[Orphan]:
        """Return the task instances that wait until the API server answers."""
        return () if self.is_refused else self._registry.adopting().values()

    def forget(self, key: TaskInstanceKey) -> None:
        """Do not adopt a task instance any more; its pod, if it is found, is deleted."""
        if orphan := self._registry.adopted(key):
            self._surplus.abandon(orphan)
