# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Messages of the informer and the launcher to the executor, through its inbox."""

from __future__ import annotations

from dataclasses import dataclass

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
