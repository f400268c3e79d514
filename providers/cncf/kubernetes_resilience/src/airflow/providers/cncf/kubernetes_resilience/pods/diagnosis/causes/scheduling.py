# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The pod waits for a node."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.cause import Cause, Predicate, said
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow_resilience.context import StateChangeCategory, StateChangeReason

_DOCS = "https://kubernetes.io/docs"


def _message(failure: PodFailure) -> str | None:
    return condition.message if (condition := failure.facts.unscheduled) else None


def _unscheduled(pattern: str) -> Predicate:
    return said(_message, pattern)


SCHEDULING = (
    Cause(
        name="scheduling-gated",
        applies=lambda failure: failure.facts.is_gated,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="A scheduling gate holds the pod back, as Kueue's does until there is quota for it.",
        url=f"{_DOCS}/concepts/scheduling-eviction/pod-scheduling-readiness/",
    ),
    Cause(
        name="unschedulable-volume",
        applies=_unscheduled(r"persistent ?volume|\bvolume\b"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.VOLUME_UNAVAILABLE,
        why="The scheduler waits for a volume: it does not exist, is not bound, or is where no node is free.",
        url=f"{_DOCS}/concepts/storage/persistent-volumes/#binding",
    ),
    Cause(
        name="unschedulable-resources",
        applies=_unscheduled(r"\binsufficient\b|too many pods"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.RESOURCE_EXHAUSTION,
        why="No node has enough left of what the pod asks for.",
        url=f"{_DOCS}/tasks/debug/debug-application/debug-pods/#my-pod-stays-pending",
    ),
    Cause(
        name="scheduler-error",
        applies=lambda failure: (
            failure.facts.unscheduled is not None and failure.facts.unscheduled.reason == "SchedulerError"
        ),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.UNKNOWN,
        why="The scheduler met an error while it looked for a node, or while it bound the pod to one.",
        url=f"{_DOCS}/concepts/scheduling-eviction/scheduling-framework/",
    ),
    Cause(
        name="unschedulable",
        applies=lambda failure: failure.facts.unscheduled is not None,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The scheduler has no node for the pod: selectors, affinities or taints forbid each.",
        url=f"{_DOCS}/concepts/scheduling-eviction/assign-pod-node/",
    ),
)
