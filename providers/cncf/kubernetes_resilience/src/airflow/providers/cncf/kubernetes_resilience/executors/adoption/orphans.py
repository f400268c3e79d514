# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Which task instances are orphans, by their rows: before their pods are looked for, and while they are.

Airflow offers the task instances of a scheduler that seems to be dead. It repeats the offer if its own
transaction fails, and another scheduler may take what is offered at the same time.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import Orphan
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import (
    Standing,
    TaskInstanceRow,
    TaskSnapshot,
)
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow_resilience import ledger
from airflow_resilience.ledger import Histories

log = logging.getLogger(__name__)

_ENDS = (Standing.GONE, Standing.OVER, Standing.HELD_UP)


class Orphans:
    """
    Reads which task instances are orphans, and lets go of those that are not to be adopted any more.

    :param slots: those of task instances that another scheduler has adopted are freed
    """

    def __init__(
        self, *, registry: LaunchRegistry, slots: Slots, isolation: Isolation, job_id: int | None
    ) -> None:
        self._registry = registry
        self._slots = slots
        self._isolation = isolation
        self._job_id = job_id

    def read(self, ti_ids: Sequence[str]) -> dict[str, Orphan | None]:
        """
        Read task instances that are offered, by their UUIDs.

        :return: None for one that no scheduler has queued; without those that cannot be read
        """
        rows = self._isolation.batch("adopt", ti_ids, self._read_rows)
        restarting = {row.key for row in rows if row.state == TaskInstanceState.RESTARTING}
        queued = [(row.key, row.ti_id) for row in rows if row.state == TaskInstanceState.QUEUED]
        with create_session(scoped=False) as session:
            former = task_instances.read_former_ids(restarting, session=session)
        histories = dict(self._isolation.batch("adopt", queued, self._read_histories))
        return {row.ti_id: _orphan(row, former.get(row.key), histories.get(row.key)) for row in rows}

    def is_taken(self, orphan: Orphan) -> bool:
        """Whether this scheduler has a task instance already, or is about to adopt it."""
        if orphan.job_id == self._job_id:
            return orphan.key in self._slots.occupied  # another scheduler took us for dead
        # Airflow repeats the offer when its transaction fails. That the key has a slot says nothing: it may
        # be the pod of an earlier phase that has it, while the dead scheduler has launched the next one.
        return self._registry.adopting_of(orphan.key) == orphan

    def read_adopted(self) -> dict[TaskInstanceKey, TaskInstanceRow | None]:
        """
        Return the rows of those that are adopted, None for one that is gone, and let go of the others.

        Airflow's transaction, in which they were offered, has ended. If it has failed, Airflow offers them
        again. Another scheduler may have adopted them since, as it took this one for dead.

        :raises DatabaseAwayError: if the database does not answer
        """
        rows = {}
        for orphan, task in self._isolation.batch(
            "adopt",
            self._registry.adopting().values(),
            _read_tasks,
            name=lambda orphan: orphan.ti_id,
            give_up=lambda orphan, _: self.let_go_of(orphan.key),
        ):
            if task.standing(orphan.key, job_id=self._job_id) is Standing.ELSEWHERE:
                log.info("%s is not adopted: its scheduler job is %s", orphan.key, task.owner)
                self.let_go_of(orphan.key)
            else:
                rows[orphan.key] = task.row
        return rows

    def find_over(self, orphans: Collection[Orphan]) -> set[TaskInstanceKey]:
        """
        Return those of this scheduler's orphans that no worker runs, or is to run, any more.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer
        """
        return {
            orphan.key
            for orphan, task in _read_tasks(orphans)
            if task.standing(orphan.key, job_id=self._job_id) in _ENDS
        }

    def let_go_of(self, key: TaskInstanceKey) -> None:
        """Adopt a task instance no longer; without a launch it has no slot."""
        self._registry.adopted(key)
        if self._registry.get(key) is None:
            self._slots.free(key)

    def _read_rows(self, ti_ids: Sequence[str]) -> Iterable[TaskInstanceRow]:
        # With one query: the scheduler hands over rows with few columns loaded, and each of the others
        # would be a query for each row.
        with create_session(scoped=False) as session:
            return task_instances.read_rows(set(ti_ids), session=session).values()

    def _read_histories(
        self, queued: Sequence[tuple[TaskInstanceKey, str]]
    ) -> Iterable[tuple[TaskInstanceKey, Histories]]:
        with create_session(scoped=False) as session:
            return ledger.read_all_histories(dict(queued), session=session).items()


def _orphan(row: TaskInstanceRow, former_id: str | None, histories: Histories | None) -> Orphan | None:
    if not row.queued_by_job_id:
        return None
    losses = histories.whole_try.entries if histories else ()
    return Orphan(
        key=row.key,
        ti_id=row.ti_id,
        state=row.state,
        hostname=row.hostname,
        job_id=row.queued_by_job_id,
        former_id=former_id,
        replaced_ids=frozenset(entry.ti_id for entry in losses if entry.next_ti_id),
        scheduled_dttm=row.scheduled_dttm,
    )


def _read_tasks(orphans: Collection[Orphan]) -> list[tuple[Orphan, TaskSnapshot]]:
    with create_session(scoped=False) as session:
        tasks = task_instances.read_snapshots({(o.key, o.ti_id) for o in orphans}, session=session)
    return [(orphan, tasks[orphan.key, orphan.ti_id]) for orphan in orphans]
