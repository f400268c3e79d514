# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Which of the pods that a dead scheduler left behind are the current launches of its task instances.

Pure: pods and task instances go in, a plan comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import POD_EXECUTOR_DONE_KEY

from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    LAUNCH_NUMBER_ANNOTATION,
    TASK_INSTANCE_ID_ANNOTATION,
    PodFacts,
)

NOT_DONE = f"kubernetes_executor=True,{POD_EXECUTOR_DONE_KEY}!=True"
"""Label selector of the worker pods with which no executor is done."""

_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Orphan:
    """A task instance whose scheduler is dead."""

    key: TaskInstanceKey
    ti_id: str
    state: str | None
    hostname: str | None
    job_id: int
    """The dead scheduler's job, by which the pods are labelled."""


@dataclass(slots=True)
class AdoptionPlan:
    """What to do with the pods that were found."""

    current: dict[TaskInstanceKey, PodFacts] = field(default_factory=dict)
    superseded: list[tuple[TaskInstanceKey, PodFacts]] = field(default_factory=list)


def plan_adoption(
    orphans: Mapping[TaskInstanceKey, Orphan], pods: Iterable[PodFacts], *, own_label: str = ""
) -> AdoptionPlan:
    """
    Choose the newest launch of each task instance.

    A pod in which the task is known to run comes before one that was launched later: it won the start.
    Pods that are not of these task instances are left alone, and so is the pod of an earlier phase of a task
    that is queued again: its worker has reported, and is no launch any more.

    :param own_label: the adopting scheduler's label, which a pod has after an adoption that was cut off
    """
    candidates: dict[TaskInstanceKey, list[PodFacts]] = {}
    for pod in pods:
        key = task_key(pod.annotations)
        if key and key in orphans and _is_launch_of(pod, orphans[key], own_label):
            candidates.setdefault(key, []).append(pod)
    plan = AdoptionPlan()
    for key, found in candidates.items():
        hostname = orphans[key].hostname if orphans[key].state == "running" else None
        plan.current[key], *older = newest_first(found, hostname)
        plan.superseded.extend((key, pod) for pod in older)
    return plan


def newest_first(pods: Iterable[PodFacts], hostname: str | None) -> list[PodFacts]:
    """
    Put the launches of one task instance in order, the current one first.

    :param hostname: where the task is known to run; that pod is the current launch, whatever its age
    """
    return sorted(pods, key=lambda pod: (is_host(hostname, pod), *_age(pod)), reverse=True)


def task_key(annotations: Mapping[str, str]) -> TaskInstanceKey | None:
    """Read which task instance a worker pod belongs to; None if the annotations do not say."""
    try:
        return TaskInstanceKey(
            dag_id=annotations["dag_id"],
            task_id=annotations["task_id"],
            run_id=annotations["run_id"],
            try_number=int(annotations["try_number"]),
            map_index=int(annotations.get("map_index", -1)),
        )
    except (KeyError, ValueError):
        return None


def launch_number(pod: PodFacts) -> int:
    """Read the number of the launch that a pod is; 1 for a pod that another executor has created."""
    text = pod.annotations.get(LAUNCH_NUMBER_ANNOTATION, "")
    return int(text) if text.isdecimal() else 1


def is_host(hostname: str | None, pod: PodFacts) -> bool:
    """Whether a worker with that host name runs, or has run, in a pod."""
    return pod.ref.name == (hostname or "").split(".")[0]


def _is_launch_of(pod: PodFacts, orphan: Orphan, own_label: str) -> bool:
    if orphan.state == "queued" and is_host(orphan.hostname, pod):
        return False
    if ti_id := pod.annotations.get(TASK_INSTANCE_ID_ANNOTATION):
        # A task instance that was cleared has the same key in its next life, but another UUID.
        return ti_id == orphan.ti_id
    # The official executor's pod. Another deployment in the namespace may have equal keys, not equal jobs. A
    # scheduler that died while it adopted may have left the label of the one before.
    is_ours = pod.labels.get("airflow-worker") in (str(orphan.job_id), own_label)
    return is_ours or is_host(orphan.hostname, pod)


def _age(pod: PodFacts) -> tuple[datetime, int]:
    # Creation times have whole seconds; the number decides between launches of the same second.
    return pod.created or _BEGINNING, launch_number(pod)
