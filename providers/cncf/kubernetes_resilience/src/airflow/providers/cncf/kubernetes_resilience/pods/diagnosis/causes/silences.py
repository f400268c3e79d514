# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Workers that were running, and say nothing any more."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.cause import Cause
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    HEARTBEAT_TIMEOUT,
    UNREPORTED_END,
    PodFailure,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import ContainerState
from airflow_resilience.context import StateChangeCategory, StateChangeReason

_AIRFLOW = "https://airflow.apache.org/docs/apache-airflow/stable"
_HEARTBEAT = f"{_AIRFLOW}/core-concepts/tasks.html#task-instance-heartbeat-timeout"


def _on_lost_node(failure: PodFailure) -> bool:
    """Whether the node has not been heard of either."""
    facts = failure.facts
    runs = facts.worker is not None and facts.worker.state is ContainerState.RUNNING
    return failure.reason == HEARTBEAT_TIMEOUT and runs and facts.is_on_silent_node


SILENCES = (
    Cause(
        name="node-not-ready",
        applies=_on_lost_node,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_LOST,
        why="Airflow has not heard of the worker for too long, nor the control plane of the worker's node.",
        url="https://kubernetes.io/docs/concepts/architecture/nodes/#node-status",
    ),
    Cause(
        name="heartbeat-timeout",
        applies=lambda failure: failure.reason == HEARTBEAT_TIMEOUT,
        category=StateChangeCategory.TIMEOUT,
        reason=StateChangeReason.WORKER_LOST,
        why="Airflow has not heard of the worker for too long, though its pod runs on a node that is there.",
        url=_HEARTBEAT,
    ),
    Cause(
        name="ended-without-report",
        applies=lambda failure: failure.reason == UNREPORTED_END,
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.UNKNOWN,
        why="The worker ended in good order and did not report how its task had ended: the process that ran "
        "the task was killed alone, for the memory that it took or by somebody.",
        url=_HEARTBEAT,
    ),
)
