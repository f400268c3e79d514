# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Completes the adoption of task instances whose pods were looked for: with a pod, or without one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.found_pods import FoundPods, launch_of
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.orphans import Orphans
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.plan import choose
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.surplus_pods import SurplusPods
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import ConfirmPod, PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch, Waiting
from airflow.providers.cncf.kubernetes_resilience.executors.launches.orphan import Orphan
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow_resilience import ledger
from airflow_resilience.ledger import LaunchHistory, LedgerEntry

log = logging.getLogger(__name__)


class _Became(Enum):
    """What became of a task instance whose adoption is complete."""

    HELD = auto()
    """It has its pod."""
    HANDED_BACK = auto()
    """It is queued without a pod, and the scheduler queues it again."""
    LOST = auto()
    """It was running, and its pod is not there."""
    UNCERTAIN = auto()
    """It may have one of the pods that do not say enough about themselves."""


class Completion:
    """
    Completes adoptions: holds the launches that were found, and notes what has lost its pod.

    :param orphans: those that are completed are let go of
    :param surplus: deletes the pods that are not adopted
    :param slots: of task instances that cannot be adopted they are freed
    """

    def __init__(
        self,
        *,
        orphans: Orphans,
        surplus: SurplusPods,
        commands: PodCommands,
        registry: LaunchRegistry,
        slots: Slots,
        isolation: Isolation,
    ) -> None:
        self._orphans = orphans
        self._surplus = surplus
        self._commands = commands
        self._registry = registry
        self._slots = slots
        self._isolation = isolation
        self._to_follow: list[Launch] = []
        self._lost: list[Orphan] = []

    def complete(self, found: FoundPods) -> set[TaskInstanceKey]:
        """
        Adopt what was found; return the keys of running task instances that have no pod.

        :raises DatabaseAwayError: if the database does not answer; nothing was adopted then
        """
        self._isolation.run("adopt", self._surplus.delete_abandoned, found)
        completed = found.answered(self._registry.adopting())
        self._isolation.run("adopt", self._choose_again, found, completed)
        decided = self._decided(completed)
        lost: set[TaskInstanceKey] = set()
        counts: Counter[_Became] = Counter()

        def complete(orphan: Orphan) -> None:
            counts[self._complete_one(orphan, found, decided, lost)] += 1
            self._orphans.let_go_of(orphan.key)

        def give_up(orphan: Orphan, _: Exception) -> None:
            self._registry.adopted(orphan.key)
            self._slots.free(orphan.key)  # Airflow limits how long it may be queued, or silent

        for orphan in completed.values():
            self._isolation.alone("adopt", orphan, complete, name=_key, give_up=give_up)
        self._surplus.delete(found, completed)
        if not completed:
            return lost
        adopting = self._registry.adopting()
        log.info(
            "Adopted %d of %d task instances, %d to come; %d are queued without a pod and are scheduled "
            "again, %d were running and have lost theirs",
            counts[_Became.HELD],
            len(found.orphans),
            sum(adopting.get(key) is orphan for key, orphan in found.orphans.items()),
            counts[_Became.HANDED_BACK],
            len(lost),
        )
        return lost

    def take_adopted(self) -> Iterator[Launch]:
        """Return, each once, the launches that were adopted."""
        while self._to_follow:
            yield self._to_follow.pop(0)

    def lost(self) -> list[Orphan]:
        """Return the task instances that were running and have no pod any more."""
        return list(self._lost)

    def forget_lost(self, orphans: Sequence[Orphan]) -> None:
        """Forget lost task instances that were seen to."""
        del self._lost[: len(orphans)]

    def _complete_one(
        self,
        orphan: Orphan,
        found: FoundPods,
        decided: Mapping[str, LedgerEntry],
        lost: set[TaskInstanceKey],
    ) -> _Became:
        """Adopt a task instance; return what became of it."""
        key = orphan.key
        if pod := found.plan.current.get(key):
            launch = launch_of(orphan, pod, has_siblings=key in found.plan.shared)
            entry = decided.get(pod.ref.uid)
            # A pod that has started after it was given up on is neither deleted nor replaced.
            if entry and launch.facts and not launch.has_outlived(entry, launch.facts):
                launch.given_up = PodFailure(entry.reason, launch.facts, alive=not pod.is_terminal)
            launch.was_held = found.is_late
            if (before := self._registry.get(key)) and before.ref == pod.ref:
                self._registry.settled(before)  # with the one that takes its place
            self._registry.hold(launch)
            self._to_follow.append(launch)
            if not found.is_labelled(key, pod):
                # It has gone since it was listed, or keeps its old label.
                self._commands.send(ConfirmPod(pod.ref))
            return _Became.HELD
        self._registry.release(key)  # a pod of an earlier phase, if there is one
        if orphan.pod_id in found.plan.odd:
            return _Became.UNCERTAIN  # Airflow limits how long it may be queued, or silent
        if orphan.state == TaskInstanceState.QUEUED:
            waiting = Waiting(job=None)
            self._registry.hold(Launch(key, orphan.ti_id, waiting=waiting, adopted_from=orphan.job_id))
            return _Became.HANDED_BACK
        if None not in found.plan.odd:  # else it may run in a pod that does not say whose it is
            lost.add(key)
            self._lost.append(orphan)
        return _Became.LOST

    def _choose_again(self, found: FoundPods, orphans: Mapping[TaskInstanceKey, Orphan]) -> None:
        """Choose by what the rows say now: a task may have started in one of several pods since."""
        shared = {key: orphan for key, orphan in orphans.items() if key in found.plan.shared}
        if not shared:
            return
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({o.ti_id for o in shared.values()}, session=session)
        again = {key: row for key, orphan in shared.items() if (row := rows.get(orphan.ti_id))}
        found.plan.superseded = [item for item in found.plan.superseded if item[0] not in again]
        for key, row in again.items():
            today = replace(shared[key], state=row.state, hostname=row.hostname)
            choose(found.plan, today, found.plan.shared[key])

    def _decided(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> dict[str, LedgerEntry]:
        """Return, by the UID of the pod, what the dead scheduler had decided about failures of launches."""
        queued = [
            (key, orphan.ti_id) for key, orphan in orphans.items() if orphan.state == TaskInstanceState.QUEUED
        ]
        histories = self._isolation.batch("adopt", queued, self._read_histories)
        return {entry.worker_uid: entry for history in histories for entry in history.entries}

    def _read_histories(self, queued: Sequence[tuple[TaskInstanceKey, str]]) -> Iterable[LaunchHistory]:
        with create_session(scoped=False) as session:
            return ledger.read_histories(dict(queued), session=session).values()


def _key(orphan: Orphan) -> TaskInstanceKey:
    return orphan.key
