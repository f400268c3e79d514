# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Messages between the scheduler's thread and the Kubernetes thread. Pure.

Commands go to the launcher. Messages of informer and launcher go to the executor, through its inbox.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef


@dataclass(frozen=True, slots=True)
class PodObservation:
    """The informer saw a change of a pod that matters."""

    facts: PodFacts
    """The last known reading."""
    gone: bool = False
    """Whether the pod is gone from the informer's store: deleted, or without the matching labels."""


@dataclass(frozen=True, slots=True)
class PodCreated:
    """The pod of a launch exists and is ours, whichever call created it."""

    launch_id: str
    facts: PodFacts
    """Of a new pod only its metadata; of a pod that was looked for, all facts."""


@dataclass(frozen=True, slots=True)
class PodNotCreated:
    """A failed attempt to create the pod of a launch. The executor decides whether to try again."""

    launch_id: str
    error: KubernetesApiError


@dataclass(frozen=True, slots=True)
class PodConfirmed:
    """The API server has said whether a pod exists, to a read, a change or a deletion."""

    ref: PodRef
    facts: PodFacts | None
    """None if no pod with that UID exists any more."""


@dataclass(frozen=True, slots=True)
class PodNotConfirmed:
    """The API server does not permit that a pod is read."""

    ref: PodRef


@dataclass(frozen=True, slots=True)
class PodDeletionAccepted:
    """The API server has accepted a deletion. The pod's grace period begins now at the latest."""

    ref: PodRef
    grace_seconds: int


@dataclass(frozen=True, slots=True)
class PodNotDeleted:
    """
    A pod was not deleted that was to be unless it had started: it has started, or has ended.

    Or it was to be unless another scheduler had adopted it, and has another one's label.
    """

    facts: PodFacts
    """As it is now."""


Message = (
    PodObservation
    | PodCreated
    | PodNotCreated
    | PodConfirmed
    | PodNotConfirmed
    | PodDeletionAccepted
    | PodNotDeleted
)


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the pod of a launch; answered by ``PodCreated`` or ``PodNotCreated``."""

    launch_id: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod, and no other of its name; answered by ``PodConfirmed``, or ``PodDeletionAccepted``."""

    ref: PodRef
    unless_started_since: str | None = None
    """A resource version at which the pod had not started, or one that no pod has: a pod that has started by
    the time of the deletion stays, which is answered by ``PodNotDeleted``. None to delete it in any case."""
    scheduler_label: str | None = None
    """The scheduler's label without which the pod stays too, as an adopted pod. None for any label; with a
    resource version only."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """The version, and the label, that the pod has to have to be deleted."""
        version, label = self.unless_started_since, self.scheduler_label
        if version is None:
            return ()
        return (version, label) if label else (version,)


@dataclass(frozen=True, slots=True)
class FindCreatedPod:
    """Look for the pod of a create call whose outcome is not known; answered by ``PodCreated``, if at all."""

    namespace: str
    name: str
    launch_id: str


@dataclass(frozen=True, slots=True)
class CleanUpPod:
    """Delete a pod that has ended."""

    ref: PodRef


@dataclass(frozen=True, slots=True)
class MarkPodDone:
    """Label a pod that is kept, so that no executor sees it again."""

    ref: PodRef


@dataclass(frozen=True, slots=True)
class StopAndKeepPod:
    """Stop what still runs in a pod that is kept, and label it as :class:`MarkPodDone` does."""

    ref: PodRef


@dataclass(frozen=True, slots=True)
class ConfirmPod:
    """Ask what is true of a pod now; answered by ``PodConfirmed``, or ``PodNotConfirmed``."""

    ref: PodRef


@dataclass(frozen=True, slots=True)
class AdoptPod:
    """Put this scheduler's labels on a pod; answered by ``PodConfirmed`` if it is gone."""

    ref: PodRef


Command = (
    CreatePod | DeletePod | FindCreatedPod | CleanUpPod | MarkPodDone | StopAndKeepPod | ConfirmPod | AdoptPod
)
