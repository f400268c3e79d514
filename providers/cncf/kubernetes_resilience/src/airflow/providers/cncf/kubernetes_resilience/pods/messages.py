# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What the informer and the launcher tell the executor, through its inbox."""

from __future__ import annotations

from dataclasses import dataclass

from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef


@dataclass(frozen=True, slots=True)
class PodObservation:
    """The informer saw something about a pod change that matters."""

    facts: PodFacts
    """The last known reading."""
    gone: bool = False
    """The object is no longer in the informer's view: deleted, or its labels do not match any more."""


@dataclass(frozen=True, slots=True)
class PodCreated:
    """The pod of a launch exists and is ours, whichever call created it."""

    launch_id: str
    ref: PodRef


@dataclass(frozen=True, slots=True)
class PodNotCreated:
    """This attempt to create the pod of a launch failed; whether to try again is the executor's decision."""

    launch_id: str
    error: KubernetesApiError


@dataclass(frozen=True, slots=True)
class PodConfirmed:
    """What the API server says about a pod at this moment."""

    ref: PodRef
    facts: PodFacts | None
    """None if no pod with that UID exists any more."""


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """A deletion found the pod gone, or left it gone: nothing of it can run any more."""

    ref: PodRef


@dataclass(frozen=True, slots=True)
class PodDeletionAccepted:
    """The API server has accepted a deletion and gives the pod time to end, from now on at the latest."""

    ref: PodRef
    grace_seconds: int


@dataclass(frozen=True, slots=True)
class PodNotDeleted:
    """A pod that was to be deleted if it had not started was left as it is: it has, or it has ended."""

    facts: PodFacts
    """What it is now."""


Message = (
    PodObservation
    | PodCreated
    | PodNotCreated
    | PodConfirmed
    | PodDeleted
    | PodDeletionAccepted
    | PodNotDeleted
)
