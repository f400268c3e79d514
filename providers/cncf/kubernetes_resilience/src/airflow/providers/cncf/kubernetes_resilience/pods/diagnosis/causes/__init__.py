# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Causes of the death of worker pods: a table in precedence order. The first row that applies wins.

Pods that could not be created come first: nothing else is known of them. Then come disruptions, the pod's own
reason, deletions, the scheduler, and the containers last. Whatever takes a pod away makes its containers fail
too, so their failure is a consequence.

The rule holds even for a container that had failed by itself before its pod was disrupted. The times of the
two come from two clocks, so their order is not known. If in doubt, one more launch from a bounded budget is
the smaller error than a retry of the task's own. So evidence of a disruption never turns a failure of the
infrastructure into one of the task.

There is no row for a deletion by the executor: it leaves no mark on the pod, and the executor does not ask
about pods that it has deleted. Nor is there one for a deletion by a user: a manifest does not say who deleted
the pod.
"""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.cause import Cause
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.containers import CONTAINERS
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.pods import PODS
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow_resilience.context import StateChangeReason
from airflow_resilience.retry_policy.evidence import Phase

__all__ = ["TABLE", "UNKNOWN_CAUSE", "Cause", "find_cause"]

UNKNOWN_CAUSE = Cause(
    name="unknown",
    applies=lambda failure: True,  # noqa: ARG005
    reason=StateChangeReason.UNKNOWN,
    why="The pod failed, but no container of it is known to have failed by itself, so nothing speaks "
    "against the task.",
    url="https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase",
)

TABLE: tuple[Cause, ...] = (*PODS, *CONTAINERS, UNKNOWN_CAUSE)
"""Every row, in precedence order. The documentation is generated from it."""


def find_cause(failure: PodFailure, phase: Phase) -> Cause:
    """
    Return the first row that applies; the last one always does.

    :param phase: how far the task had come
    """
    rows = (cause for cause in TABLE if phase is Phase.LAUNCH or not cause.launch_only)
    return next((cause for cause in rows if cause.applies(failure)), UNKNOWN_CAUSE)
