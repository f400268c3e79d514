# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Takes over the task instances of a dead scheduler.

Airflow offers the task instances of a scheduler that seems to be dead. Airflow repeats the offer if its own
transaction fails, and another scheduler may adopt an offered task instance at the same time. After the search
for pods, an adoption is completed with one of the pods, or without a pod; the other pods are deleted.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from attrs import define

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.abandoned_pods import AbandonedPods
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.plan import FoundPods
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.pod_search import PodSearch
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import PodDeletion
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import DatabaseAwayError, Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import (
    Orphan,
    Place,
    place_of,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import (
    Launch,
    Waiting,
    launch_of,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import (
    Standing,
    TaskInstanceRow,
    TaskSnapshot,
    is_running,
)
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts
from airflow_resilience import ledger
from airflow_resilience.ledger_entries import LedgerEntry

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance

log = logging.getLogger(__name__)

_ENDS = (Standing.GONE, Standing.OVER, Standing.HELD_UP)


@define(kw_only=True, eq=False, repr=False, slots=False)
class Adopter:
    """
    Adopts orphaned task instances.

    The scheduler waits for the list of their pods. Pods are labelled and deleted in the next turn, when
    Airflow has committed the adoption. While the API server does not answer, the task instances are kept, and
    their pods are looked for again without waiting.
    """

    _search: PodSearch
    _abandoned: AbandonedPods
    _registry: LaunchRegistry
    _deletion: PodDeletion
    _slots: Slots
    """Adopted task instances get one, until another scheduler has adopted them."""
    _isolation: Isolation
    _job_id: int | None
    _with_budget: Callable[[Collection[str]], set[str]]
    """Returns which task instances, by their UUIDs, may run again after a loss."""
    _follow: Callable[[Launch, PodFacts], None]
    """Follows an adopted launch until its pod, as it was found, ends."""
    _hold_lost: Callable[[Orphan], None]
    """Holds a running task instance that has lost its pod, and may run again."""

    def adopt(self, tis: Sequence[TaskInstance]) -> list[TaskInstance]:
        """
        Adopt task instances; return those that have to be reset.

        :param tis: rows that the scheduler holds locked in its own transaction
        :raises DatabaseAwayError: if the database does not answer
        """
        ti_ids = [str(ti.id) for ti in tis]
        read = self._read_offered(ti_ids)
        orphans = {orphan.key: orphan for orphan in read.values() if orphan}
        new = {key: orphan for key, orphan in orphans.items() if not self._is_taken(orphan)}
        lost = self._adopt(new) if new else set()
        kept = {orphan.ti_id for key, orphan in orphans.items() if key not in lost}
        # A pod that could not be read may run.
        return [ti for ti, ti_id in zip(tis, ti_ids, strict=True) if ti_id in read and ti_id not in kept]

    def _adopt(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> set[TaskInstanceKey]:
        """
        Return those that were running, have no pod, and may not run again in the same try.

        Airflow resets them, and their superseded pods are deleted in the next turn.
        """
        self.take(orphans.values())
        found = self._search.look(orphans)
        lost = [o for o in found.answered(orphans).values() if found.has_lost(o)] if found else []
        kept: Collection[str] = ()
        try:
            kept = self._find_with_budget(lost)
        finally:  # if the database does not answer, Airflow repeats the offer
            reset = [orphan for orphan in lost if orphan.ti_id not in kept]
            for orphan in reset:
                self._end_adoption(orphan.key)
                self._abandoned.add(orphan)
        return {orphan.key for orphan in reset}

    def _find_with_budget(self, lost: Iterable[Orphan]) -> list[str]:
        """Return the UUIDs of those that were running, and may run again after the loss of their pods."""
        running = [orphan.ti_id for orphan in lost if orphan.state == TaskInstanceState.RUNNING]
        return self._isolation.batch("adopt", running, self._with_budget)

    def take(self, orphans: Collection[Orphan]) -> None:
        """
        Have the pods of task instances looked for; the scheduler does not wait.

        The task instances may be this scheduler's: a launch was taken back or given up, and its worker has
        started all the same. The worker's pod is followed until its end; a task instance without a pod has
        lost its worker.
        """
        keys = [orphan.key for orphan in orphans]
        for key in keys:  # what was planned before another scheduler had the task instance is forgotten
            self._slots.forget_queued(key)
            launch = self._registry.get(key)
            if launch and launch.ref is None:
                # A create call that is carried out all the same makes a pod in which the task may run.
                self._deletion.cancel(key)
        self._registry.adopt(orphans)
        self._abandoned.forget(keys)
        self._slots.occupied.update(keys)

    def continue_(self) -> None:
        """
        Go on with adoptions that could not be finished at once.

        :raises DatabaseAwayError: if the database does not answer; it is tried again then
        """
        is_due = self._search.is_due
        answers = deque(self._search.answers())
        try:
            adopted = self._read_adopted() if is_due or answers else {}
            while answers:
                self._isolation.run("adopt", self._abandoned.delete, answers[0])
                self._complete(answers[0], adopted)
                answers.popleft()
        except DatabaseAwayError:
            self._search.put_back(answers)
            raise
        if self._search.is_refused:
            self._abandoned.limit_waits()
            if self._search.is_due:
                self._isolation.run("adopt", self._forget_over)
        self._search.look_again(self._abandoned.orphans | self._registry.adopting())

    def _forget_over(self) -> None:
        """Forget ended task instances, whose pod may never be found; the collector cleans up their pods."""
        for key in self._find_over(self._registry.adopting().values()):
            self._end_adoption(key)
        self._abandoned.forget(self._find_over(self._abandoned.orphans.values()))

    @property
    def is_refused(self) -> bool:
        """Whether the API server refuses to list the pods of adopted task instances, which may last."""
        return self._search.is_refused

    def waiting(self) -> Iterable[Orphan]:
        """Return the task instances that wait until the API server answers."""
        return () if self.is_refused else self._registry.adopting().values()

    def abandon(self, key: TaskInstanceKey) -> None:
        """Do not adopt a task instance any more; its pod, if it is found, is deleted."""
        if orphan := self._registry.end_adoption(key):
            self._abandoned.add(orphan)

    def _complete(self, found: FoundPods, rows: Mapping[TaskInstanceKey, TaskInstanceRow | None]) -> None:
        """
        Complete the adoption of what was found.

        :param rows: of the task instances that are this scheduler's now
        :raises DatabaseAwayError: if the database does not answer; nothing was adopted then
        """
        answered = found.answered(self._registry.adopting())
        present = {
            key: replace(orphan, state=row.state, hostname=row.hostname) if (row := rows[key]) else orphan
            for key, orphan in answered.items()
            if key in rows
        }
        self._isolation.run("adopt", found.choose_again, present)
        completed: dict[TaskInstanceKey, Orphan] = {}
        for key, orphan in present.items():
            has_begun = answered[key].state == TaskInstanceState.QUEUED and is_running(rows[key])
            pod = found.current.get(key)
            if has_begun and (pod is None or place_of(orphan.hostname, pod) is Place.ELSEWHERE):
                self._registry.adopt([orphan])  # its pod may be newer than the list
            else:
                completed[key] = orphan
        decided = self._decided(completed)
        kept = self._find_with_budget(filter(found.has_lost, completed.values()))
        counts: Counter[str] = Counter()

        def complete(orphan: Orphan) -> None:
            counts[self._complete_one(orphan, found, decided, kept)] += 1
            self._end_adoption(orphan.key)

        def give_up(orphan: Orphan, _: Exception) -> None:
            self._registry.end_adoption(orphan.key)
            self._slots.free(orphan.key)  # Airflow limits how long it may be queued, or silent

        for orphan in completed.values():
            self._isolation.alone("adopt", orphan, complete, name=lambda item: item.key, give_up=give_up)
        self._delete_surplus(found, completed)
        if not completed:
            return
        adopting = self._registry.adopting()
        log.info(
            "Adopted %d of %d task instances, %d to come; %d are queued without a pod and are scheduled "
            "again, %d were running and have lost their pods",
            counts["adopted"],
            len(found.orphans),
            sum(key in adopting for key in found.orphans),
            counts["handed back"],
            counts["lost"],
        )

    def _end_adoption(self, key: TaskInstanceKey) -> None:
        """Adopt a task instance no longer; without a launch it has no slot."""
        self._registry.end_adoption(key)
        if self._registry.get(key) is None:
            self._slots.free(key)

    def _complete_one(
        self,
        orphan: Orphan,
        found: FoundPods,
        decided: Mapping[str, LedgerEntry],
        kept: Collection[str],
    ) -> str:
        """Adopt a task instance; return what became of it, in a word."""
        key = orphan.key
        if pod := found.current.get(key):
            launch = launch_of(orphan, pod, has_siblings=key in found.shared)
            entry = decided.get(pod.ref.uid)
            # A pod that has started after it was given up on is neither deleted nor replaced.
            if entry and launch.facts and not launch.has_outlived(entry, launch.facts):
                launch.given_up = PodFailure(
                    entry.reason, launch.facts, alive=not pod.has_ended, lingers=pod.lingers
                )
            launch.was_delayed = found.is_late
            if (before := self._registry.get(key)) and before.ref == pod.ref:
                self._registry.settled(before)  # with the one that takes its place
            self._registry.make_current(launch)
            self._follow(launch, pod)
            return "adopted"
        self._registry.release(key)  # a pod of an earlier phase, if there is one
        if found.has_lost(orphan):
            if orphan.ti_id in kept:
                self._hold_lost(orphan)
            return "lost"
        if orphan.state == TaskInstanceState.QUEUED and orphan.pod_id not in found.unreadable:
            self._registry.make_current(Launch(key, orphan.ti_id, waiting=Waiting(job=None)))
            return "handed back"
        # The worker has ended, or the task instance may have one of the unreadable pods. Airflow limits how
        # long the task instance may be queued, or silent.
        return "left to Airflow"

    def _decided(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> dict[str, LedgerEntry]:
        """Return, by the UID of the pod, what the dead scheduler had decided about failures of launches."""
        queued = [orphan for orphan in orphans.values() if orphan.state == TaskInstanceState.QUEUED]
        entries = self._isolation.batch("adopt", queued, _read_failed_launches)
        return {entry.worker_uid: entry for entry in entries}

    def _delete_surplus(self, found: FoundPods, adopted: Container[TaskInstanceKey]) -> None:
        """Delete or keep the other pods of task instances that are adopted; their next launches wait."""
        for key, pod in found.superseded_of(adopted):
            if self._registry.find(pod):
                continue  # this scheduler has launched it since
            if pod.has_ended:
                self._deletion.clean_up(pod)
            else:
                self._deletion.give_up(launch_of(found.orphans[key], pod, has_siblings=True), pod)
        for key, pod in found.replaced_of(adopted):
            self._deletion.revoke(launch_of(found.orphans[key], pod, has_siblings=True))

    def _read_offered(self, ti_ids: Sequence[str]) -> dict[str, Orphan | None]:
        """
        Read task instances that are offered, by their UUIDs.

        :return: None for a task instance that no scheduler has queued; without unreadable rows
        """
        rows = self._isolation.batch("adopt", ti_ids, _read_rows)
        restarting = {row.key for row in rows if row.state == TaskInstanceState.RESTARTING}
        queued = [row.key for row in rows if row.state == TaskInstanceState.QUEUED]
        with create_session(scoped=False) as session:
            former = task_instances.read_former_ids(restarting, session=session)
        replaced = dict(
            self._isolation.batch("adopt", queued, _read_replaced_ids, name=lambda key: ("replaced", key))
        )
        return {row.ti_id: _orphan(row, former.get(row.key), replaced.get(row.key, set())) for row in rows}

    def _is_taken(self, orphan: Orphan) -> bool:
        """Return whether this scheduler has a task instance already, or is about to adopt it."""
        if orphan.job_id == self._job_id:
            return orphan.key in self._slots.occupied  # another scheduler took us for dead
        # Airflow repeats the offer when its transaction fails. A slot of the key proves nothing: the pod of
        # an earlier phase may have the slot, while the dead scheduler has launched the next phase.
        return self._registry.adopting_of(orphan.key) == orphan

    def _read_adopted(self) -> dict[TaskInstanceKey, TaskInstanceRow | None]:
        """
        Return the rows of adopted task instances, None for a row that is gone, and forget the others.

        Airflow's transaction with the offer has ended. After a failed transaction, Airflow repeats the offer.
        Another scheduler that took this one for dead may have adopted the task instances since.

        :raises DatabaseAwayError: if the database does not answer
        """
        rows = {}
        for orphan, task in self._isolation.batch(
            "adopt",
            self._registry.adopting().values(),
            _read_tasks,
            name=lambda orphan: orphan.ti_id,
            give_up=lambda orphan, _: self._end_adoption(orphan.key),
        ):
            if task.standing(self._job_id) is Standing.ELSEWHERE:
                log.info("%s is not adopted: its scheduler job is %s", orphan.key, task.owner)
                self._end_adoption(orphan.key)
            else:
                rows[orphan.key] = task.row
        return rows

    def _find_over(self, orphans: Collection[Orphan]) -> set[TaskInstanceKey]:
        """
        Return those of this scheduler's orphans that no worker runs, or is to run, any more.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer
        """
        return {orphan.key for orphan, task in _read_tasks(orphans) if task.standing(self._job_id) in _ENDS}


def _read_rows(ti_ids: Sequence[str]) -> Iterable[TaskInstanceRow]:
    # With one query: the scheduler hands over rows with few columns loaded, and each of the others would be
    # a query for each row.
    with create_session(scoped=False) as session:
        return task_instances.read_rows(ti_ids, session=session).values()


def _orphan(row: TaskInstanceRow, former_id: str | None, replaced_ids: set[str]) -> Orphan | None:
    if not row.queued_by_job_id:
        return None
    return Orphan(
        key=row.key,
        ti_id=row.ti_id,
        state=row.state,
        hostname=row.hostname,
        job_id=row.queued_by_job_id,
        former_id=former_id,
        replaced_ids=frozenset(replaced_ids),
        scheduled_dttm=row.scheduled_dttm,
    )


def _read_replaced_ids(keys: Collection[TaskInstanceKey]) -> Iterable[tuple[TaskInstanceKey, set[str]]]:
    with create_session(scoped=False) as session:
        return ledger.read_replaced_ids(keys, session=session).items()


def _read_tasks(orphans: Collection[Orphan]) -> list[tuple[Orphan, TaskSnapshot]]:
    with create_session(scoped=False) as session:
        tasks = task_instances.read_snapshots({(o.key, o.ti_id) for o in orphans}, session=session)
    return [(orphan, tasks[orphan.key, orphan.ti_id]) for orphan in orphans]


def _read_failed_launches(orphans: Sequence[Orphan]) -> Iterable[LedgerEntry]:
    ti_ids = {orphan.key: orphan.ti_id for orphan in orphans}
    with create_session(scoped=False) as session:
        histories = ledger.read_histories(ti_ids, session=session)
    return chain.from_iterable(found.launches.entries for found in histories.values())
