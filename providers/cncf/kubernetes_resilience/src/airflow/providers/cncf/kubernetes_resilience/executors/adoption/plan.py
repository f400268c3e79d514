# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Chooses the current launches of a dead scheduler's task instances among its pods.

Pure: pods and task instances go in, a plan comes out.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import (
    Orphan,
    Place,
    is_host,
    locate,
    newest_first,
    place_of,
    task_key,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    SCHEDULER_LABEL,
    TASK_INSTANCE_ID_ANNOTATION,
    PodFacts,
)

log = logging.getLogger(__name__)

CLOCK_SKEW = timedelta(seconds=5)
"""
By how much Airflow's clocks may be ahead of the API server's. Creation times have whole seconds. A failed
pod of an earlier phase was created longer ago than that.
"""


@dataclass(slots=True)
class FoundPods:
    """The pods of orphaned task instances, or of some of them, and what to do with these pods."""

    orphans: Mapping[TaskInstanceKey, Orphan]
    current: dict[TaskInstanceKey, PodFacts] = field(default_factory=dict)
    superseded: list[tuple[TaskInstanceKey, PodFacts]] = field(default_factory=list)
    shared: dict[TaskInstanceKey, list[PodFacts]] = field(default_factory=dict)
    """The pods of the task instances that have more than one."""
    unreadable: set[str | None] = field(default_factory=set)
    """UUIDs of the task instances whose pods could not be read; None for a pod without a UUID, which may
    belong to any of them."""
    replaced: list[tuple[TaskInstanceKey, PodFacts]] = field(default_factory=list)
    """The pods in which the task instances ran in this try before they ran again."""
    is_partial: bool = False
    """Whether a namespace could not be listed, in which a task instance without a pod may have one."""
    is_late: bool = False
    """Whether the first look has failed: the API server was away, which may have kept pods from starting."""
    asked_at: float = 0.0
    """When the first namespace was asked for them, on the executor's monotonic clock."""

    def answered(self, waiting: Mapping[TaskInstanceKey, Orphan]) -> dict[TaskInstanceKey, Orphan]:
        """Return the orphans that still wait, without those with a pod that may be missing in the list."""
        return {
            key: orphan
            for key, orphan in self.orphans.items()
            if waiting.get(key) is orphan and (key in self.current or not self.is_partial)
        }

    def has_lost(self, orphan: Orphan) -> bool:
        """Return whether a task instance runs, and none of the pods can be the one in which it runs."""
        runs = orphan.state in (TaskInstanceState.RUNNING, TaskInstanceState.RESTARTING)
        return runs and orphan.key not in self.current and not {None, orphan.pod_id} & self.unreadable

    def pods_of(self, keys: Container[TaskInstanceKey]) -> list[tuple[TaskInstanceKey, PodFacts]]:
        """Return the pods of these task instances in their present runs."""
        return [item for item in (*self.current.items(), *self.superseded) if item[0] in keys]

    def superseded_of(self, keys: Container[TaskInstanceKey]) -> list[tuple[TaskInstanceKey, PodFacts]]:
        """Return the pods that are not the current launches of these task instances."""
        return [(key, pod) for key, pod in self.superseded if key in keys]

    def replaced_of(self, keys: Container[TaskInstanceKey]) -> list[tuple[TaskInstanceKey, PodFacts]]:
        """Return the pods of earlier runs of these task instances, as on a node that is cut off."""
        return [(key, pod) for key, pod in self.replaced if key in keys and not pod.has_ended]

    def choose(self, orphan: Orphan, pods: list[PodFacts]) -> None:
        """Choose one of a task instance's pods; none if it runs in a pod that is not among them."""
        key, runs = orphan.key, orphan.state != TaskInstanceState.QUEUED
        if runs and all(place_of(orphan.hostname, pod) is Place.ELSEWHERE for pod in pods):
            self.superseded.extend((key, pod) for pod in pods)
            return
        self.current[key], *others = newest_first(pods, orphan.hostname if runs else None)
        if others:
            self.shared[key] = pods
        if runs and place_of(orphan.hostname, self.current[key]) is not Place.HERE:
            others = [pod for pod in others if place_of(orphan.hostname, pod) is Place.ELSEWHERE]
        self.superseded.extend((key, pod) for pod in others)

    def choose_again(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> None:
        """Choose by what the rows say now: a task may have started in one of several pods since."""
        again = [key for key in self.shared if key in orphans]
        self.superseded = [item for item in self.superseded if item[0] not in again]
        for key in again:
            self.current.pop(key, None)
            self.choose(orphans[key], self.shared[key])


def plan_adoption(orphans: Mapping[TaskInstanceKey, Orphan], pods: Iterable[PodFacts]) -> FoundPods:
    """
    Choose the newest launch of each task instance.

    A pod in which the task is known to run comes before one that was launched later: it won the start. If a
    task runs in an unknown one of its pods, none of them is superseded. Pods of other task instances are not
    touched. Neither is the pod of an earlier phase that has ended: one that has succeeded, unless the task is
    said to run in it, or one that was created before a queued task instance was scheduled.

    A pod's labels are no evidence: an earlier adoption may have set them, and have failed then.
    """
    plan = FoundPods(orphans)
    candidates: dict[TaskInstanceKey, list[PodFacts]] = {}
    for pod in pods:
        try:
            key = task_key(pod.annotations)
            if key is None or key not in orphans:
                continue
            if pod.annotations.get(TASK_INSTANCE_ID_ANNOTATION) in orphans[key].replaced_ids:
                plan.replaced.append((key, pod))
            elif _may_be_past(pod, orphans[key]):
                continue
            elif _is_launch_of(pod, orphans[key]):
                candidates.setdefault(key, []).append(pod)
        except Exception:
            # A malformed pod must not keep the others from being adopted.
            log.exception("Pod %s cannot be read, and is left out of adoption", pod.ref)
            plan.unreadable.add(_ti_id_of_unreadable(pod))
    for key, found in candidates.items():
        plan.choose(orphans[key], found)
    return plan


def _ti_id_of_unreadable(pod: PodFacts) -> str | None:
    try:
        return pod.annotations.get(TASK_INSTANCE_ID_ANNOTATION)
    except Exception:  # noqa: BLE001 - it was logged why
        return None


def _may_be_past(pod: PodFacts, orphan: Orphan) -> bool:
    # While it is queued, the host name is that of an earlier phase.
    if orphan.state == TaskInstanceState.QUEUED:
        return pod.has_succeeded or (pod.has_ended and _is_new(pod, orphan) is False)
    return pod.phase == "Succeeded" and not is_host(orphan.hostname, pod)


def _is_new(pod: PodFacts, orphan: Orphan) -> bool | None:
    """Return whether a pod was created since its task instance was last scheduled; None if unknown."""
    if pod.created is None or orphan.scheduled_dttm is None:
        return None
    return pod.created >= orphan.scheduled_dttm - CLOCK_SKEW


def _is_launch_of(pod: PodFacts, orphan: Orphan) -> bool:
    # By name only: a new pod may have got the address of an earlier phase's pod. The names may be equal too,
    # if an override gives all pods of a task the same name.
    has_run = (
        orphan.state == TaskInstanceState.QUEUED and locate(orphan.hostname, name=pod.ref.name) is Place.HERE
    )
    if has_run and not (pod.may_start and _is_new(pod, orphan)):
        return False
    if ti_id := pod.annotations.get(TASK_INSTANCE_ID_ANNOTATION):
        # A task instance that was cleared has the same key in its next life, but another UUID.
        return ti_id == orphan.pod_id
    # Neither the pod's annotation nor its workload has a UUID. Another deployment in the namespace may have
    # equal keys, but not equal jobs.
    return pod.labels.get(SCHEDULER_LABEL) == str(orphan.job_id) or is_host(orphan.hostname, pod)
