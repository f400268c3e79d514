# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
By what pods, launches and orphans are known: labels, annotations, UUIDs, and their order. Pure.

.. seealso:: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from airflow.models.taskinstancekey import TaskInstanceKey

from airflow.providers.cncf.kubernetes_resilience.executors.launches.hosts import Place, locate
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    DONE_LABEL,
    TASK_INSTANCE_ID_ANNOTATION,
    PodFacts,
)

NOT_DONE_BY = f"{DONE_LABEL}!=True"
"""Label selector of the pods that an executor still has use for."""

NOT_DONE = f"kubernetes_executor=True,{NOT_DONE_BY}"
"""Label selector of the worker pods with which no executor is done."""

Try = tuple[TaskInstanceKey | None, str | None]
"""The key and the UUID of a task instance, as a pod carries them; None if the pod does not say."""

_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Orphan:
    """A task instance whose scheduler is dead."""

    key: TaskInstanceKey
    ti_id: str
    state: str | None
    hostname: str | None
    job_id: int
    """The dead scheduler's job."""
    former_id: str | None = None
    """The UUID that its worker knows, if it was cleared while it ran and waits for the end of that worker."""
    replaced_ids: frozenset[str] = frozenset()
    """The UUIDs that it had in this try before its worker was lost and it ran again."""
    past_workers: frozenset[str] = frozenset()
    """UIDs of the pods that had failed in this try before a worker last started the task. They are of an
    earlier phase if it is queued."""
    start_date: datetime | None = None
    """When a worker has first started the try, or the try before it."""

    @property
    def pod_id(self) -> str:
        """The task instance's UUID that its pods carry."""
        return self.former_id or self.ti_id


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


def ti_id_of(pod: PodFacts) -> str | None:
    """Read the UUID of the task instance that a pod was launched for; None if it does not say."""
    try:
        return str(UUID(pod.annotations.get(TASK_INSTANCE_ID_ANNOTATION, "")))
    except ValueError:
        return None  # not one of ours


def try_of(pod: PodFacts) -> Try:
    """Read the key and the UUID of the task instance that a pod was launched for."""
    return task_key(pod.annotations), ti_id_of(pod)


def newest_first(pods: Iterable[PodFacts], hostname: str | None) -> list[PodFacts]:
    """
    Put the launches of one task instance in order, the current one first.

    :param hostname: where the task is known to run; that pod is the current launch, whatever its age. If it
        is none of them for certain, those in which it may run come first, and of these the living ones
    """
    return sorted(pods, key=lambda pod: (*_likelihood(hostname, pod), *_age(pod)), reverse=True)


def is_host(hostname: str | None, pod: PodFacts) -> bool:
    """Whether a worker with that host name runs, or has run, in a pod."""
    return place_of(hostname, pod) is Place.HERE


def place_of(hostname: str | None, pod: PodFacts) -> Place:
    """Say whether a worker with that host name runs in a pod."""
    return locate(hostname, name=pod.ref.name, addresses=pod.addresses)


def _likelihood(hostname: str | None, pod: PodFacts) -> tuple[bool, bool, bool]:
    if not hostname:
        return False, False, False
    place = place_of(hostname, pod)
    return place is Place.HERE, place is Place.UNKNOWN, place is Place.UNKNOWN and not pod.is_terminal


def _age(pod: PodFacts) -> tuple[datetime, int]:
    # Creation times have whole seconds; the number decides between launches of the same second.
    return pod.created or _BEGINNING, pod.launch_number
