# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Identities of pods, launches and orphans: labels, annotations, UUIDs, host names, and their order. Pure.

By default the host name that a worker reports is its pod's name, or begins with it; ``[core]
hostname_callable`` may make it the pod's address, or anything else.

.. seealso::
    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
    https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-s-hostname-and-subdomain-fields
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from ipaddress import ip_address
from typing import Final
from uuid import UUID

from airflow.models.taskinstancekey import TaskInstanceKey

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

HOSTNAME_LENGTH: Final = 63
"""Characters of a pod's name that its host name has at most."""

_UNIQUE_SUFFIX_LENGTH: Final = 9
"""A dash and eight random characters end the name of each worker pod."""

_BEGINNING = datetime.min.replace(tzinfo=UTC)


class Place(Enum):
    """Where a worker runs, as seen from one pod of its task instance."""

    HERE = auto()
    """In this pod."""
    ELSEWHERE = auto()
    """In another pod."""
    UNKNOWN = auto()
    """The host name says nothing about this pod."""


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
    """The UUID that its worker knows, for a task instance that was cleared while it ran."""
    replaced_ids: frozenset[str] = frozenset()
    """The UUIDs that it had in this try before its worker was lost and it ran again."""
    scheduled_dttm: datetime | None = None
    """When it was last scheduled: a pod that was created before is of an earlier phase."""

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


def locate(hostname: str | None, *, name: str, addresses: str = "") -> Place:
    """
    Say whether a host name is that of a pod.

    :param hostname: what the worker has reported
    :param name: of the pod
    :param addresses: of the pod, separated by commas; empty if they are not known
    """
    if not hostname:
        return Place.UNKNOWN
    if _is_address(hostname):
        if not addresses:
            return Place.UNKNOWN
        return Place.HERE if _same_address(hostname, addresses) else Place.ELSEWHERE
    # A longer name is cut, and what is cut off is what makes it unique.
    if len(name) <= HOSTNAME_LENGTH and f"{hostname}.".startswith(f"{name}."):
        return Place.HERE
    return Place.ELSEWHERE if _is_sibling(hostname, name) else Place.UNKNOWN


def is_host(hostname: str | None, pod: PodFacts) -> bool:
    """Return whether a worker with that host name runs, or has run, in a pod."""
    return place_of(hostname, pod) is Place.HERE


def place_of(hostname: str | None, pod: PodFacts) -> Place:
    """Say whether a worker with that host name runs in a pod."""
    return locate(hostname, name=pod.ref.name, addresses=pod.addresses)


def _likelihood(hostname: str | None, pod: PodFacts) -> tuple[bool, bool, bool]:
    if not hostname:
        return False, False, False
    place = place_of(hostname, pod)
    return place is Place.HERE, place is Place.UNKNOWN, place is Place.UNKNOWN and not pod.has_ended


def _age(pod: PodFacts) -> tuple[datetime, int]:
    # Creation times have whole seconds; the number decides between launches of the same second.
    return pod.created or _BEGINNING, pod.launch_number


def _is_address(hostname: str) -> bool:
    try:
        ip_address(hostname)
    except ValueError:
        return False
    return True


def _same_address(hostname: str, addresses: str) -> bool:
    wanted = ip_address(hostname)
    return any(_is_address(item) and ip_address(item) == wanted for item in addresses.split(","))


def _is_sibling(hostname: str, name: str) -> bool:
    """
    Say whether a host name is that of another pod of the same task.

    A name that a pod override fixes is the first launch's as it is, and that of later ones with a suffix.
    """
    stem = name[:-_UNIQUE_SUFFIX_LENGTH]
    if len(name) > HOSTNAME_LENGTH or not stem:
        return False
    suffix = hostname[len(stem) :].partition(".")[0]
    is_unique = len(suffix) == _UNIQUE_SUFFIX_LENGTH and suffix[0] == "-" and suffix[1:].isalnum()
    return hostname.startswith(stem) and (not suffix or is_unique)
