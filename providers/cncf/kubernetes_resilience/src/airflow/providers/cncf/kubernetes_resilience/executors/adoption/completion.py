# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Completes the adoption of task instances whose pods were looked for: with a pod, or without one.

Their other pods that were found are deleted.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.plan import FoundPods
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import PodDeletion
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
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
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import TaskInstanceRow, is_running
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow_resilience import ledger
from airflow_resilience.ledger import LedgerEntry

log = logging.getLogger(__name__)


class Completion:
    """
    Completes adoptions: holds the launches that were found, and notes what has lost its pod.

    :param deletion: deletes or keeps the pods that are not adopted
    :param slots: of task instances that cannot be adopted they are freed
    """

    def __init__(
        self,
        *,
        registry: LaunchRegistry,
        deletion: PodDeletion,
        slots: Slots,
        isolation: Isolation,
    ) -> None:
        self._registry = registry
        self._deletion = deletion
        self._slots = slots
        self._isolation = isolation
        self.to_follow: deque[Launch] = deque()
        """Launches that were adopted."""
        self.lost: list[Orphan] = []
        """Task instances that were running and have no pod any more."""

    def complete(self, found: FoundPods, rows: Mapping[TaskInstanceKey, TaskInstanceRow | None]) -> None:
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
        counts: Counter[str] = Counter()

        def complete(orphan: Orphan) -> None:
            counts[self._complete_one(orphan, found, decided)] += 1
            self.let_go_of(orphan.key)

        def give_up(orphan: Orphan, _: Exception) -> None:
            self._registry.adopted(orphan.key)
            self._slots.free(orphan.key)  # Airflow limits how long it may be queued, or silent

        for orphan in completed.values():
            self._isolation.alone("adopt", orphan, complete, name=lambda item: item.key, give_up=give_up)
        self._delete_surplus(found, completed)
        if not completed:
            return
        adopting = self._registry.adopting()
        log.info(
            "Adopted %d of %d task instances, %d to come; %d are queued without a pod and are scheduled "
            "again, %d were running and have lost theirs",
            counts["held"],
            len(found.orphans),
            sum(key in adopting for key in found.orphans),
            counts["handed back"],
            counts["lost"],
        )

    def let_go_of(self, key: TaskInstanceKey) -> None:
        """Adopt a task instance no longer; without a launch it has no slot."""
        self._registry.adopted(key)
        if self._registry.get(key) is None:
            self._slots.free(key)

    def _complete_one(
        self,
        orphan: Orphan,
        found: FoundPods,
        decided: Mapping[str, LedgerEntry],
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
            launch.was_held = found.is_late
            if (before := self._registry.get(key)) and before.ref == pod.ref:
                self._registry.settled(before)  # with the one that takes its place
            self._registry.hold(launch)
            self.to_follow.append(launch)
            return "held"
        self._registry.release(key)  # a pod of an earlier phase, if there is one
        if found.has_lost(orphan):
            self.lost.append(orphan)
            return "lost"
        if orphan.state == TaskInstanceState.QUEUED and orphan.pod_id not in found.odd:
            self._registry.hold(Launch(key, orphan.ti_id, waiting=Waiting(job=None)))
            return "handed back"
        # Its worker has ended, or it may have one of the pods that do not say enough about themselves.
        # Airflow limits how long it may be queued, or silent.
        return "left"

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


def _read_failed_launches(orphans: Sequence[Orphan]) -> Iterable[LedgerEntry]:
    ti_ids = {orphan.key: orphan.ti_id for orphan in orphans}
    with create_session(scoped=False) as session:
        histories = ledger.read_histories(ti_ids, session=session)
    return chain.from_iterable(found.launches.entries for found in histories.values())
