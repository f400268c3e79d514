# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The pod was deleted, not by the executor, and nothing more is known."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.cause import Cause
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import DELETION_OVERDUE
from airflow_resilience.context import StateChangeCategory, StateChangeReason

_TERMINATION = "https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination"

DELETIONS = (
    Cause(
        name="deletion-overdue",
        applies=lambda failure: failure.reason == DELETION_OVERDUE,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_LOST,
        why="The pod's deletion was asked for, and its node did not confirm it within the grace period.",
        url="https://kubernetes.io/docs/tasks/run-application/force-delete-stateful-set-pod/",
    ),
    Cause(
        name="deleted",
        applies=lambda failure: failure.deleted and failure.facts.deletion_timestamp is not None,
        # Not USER_ACTION: that would be a guess, and whoever deletes a pod says nothing about the task.
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_TERMINATION,
        why="Somebody other than the executor deleted the pod: a person, an autoscaler, a controller.",
        url=_TERMINATION,
    ),
    Cause(
        name="vanished",
        applies=lambda failure: failure.deleted,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_LOST,
        why="The pod was there and then was not, and nobody saw its deletion: it was removed by force, or "
        "while the watch was interrupted.",
        url=f"{_TERMINATION}-forced",
    ),
)
