# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The pod was disrupted: conditions, and the reasons with which a kubelet terminates pods."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.cause import (
    Cause,
    Predicate,
    both,
    pod_reason,
    said,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import KUEUE_TARGET, PodFailure
from airflow_resilience.context import StateChangeCategory, StateChangeReason

_DOCS = "https://kubernetes.io/docs/concepts"
NODE_GONE = "node-gone"
"""Cause of a pod whose node does not exist any more, or is out of service."""

_CONDITIONS = f"{_DOCS}/workloads/pods/disruptions/#pod-disruption-conditions"
_KUEUE = "https://kueue.sigs.k8s.io/docs"
_TIME_EXCEEDED = "MaximumExecutionTimeExceeded"
_SHUTDOWN = f"{_DOCS}/cluster-administration/node-shutdown/#graceful-node-shutdown"

_over_own_limit = said(lambda failure: failure.facts.message, r"\bexceed(s|ed)\b.*\blimit\b")
"""The kubelet's message for an eviction because of the pod's own limits."""


def _disrupted_by(reason: str) -> Predicate:
    return lambda failure: failure.disruption is not None and failure.disruption.reason == reason


def _evicted_by_kueue(failure: PodFailure) -> bool:
    return failure.disruption is not None and failure.disruption.type == KUEUE_TARGET


def _under_node_pressure(failure: PodFailure) -> bool:
    # The kubelet sets the condition if its node runs short, but not if the pod exceeds its own limit.
    return failure.facts.reason == "Evicted" and (
        failure.disruption is not None or not _over_own_limit(failure)
    )


def _refused_by_shutdown(failure: PodFailure) -> bool:
    facts = failure.facts
    return facts.reason == "NodeShutdown" and not any(item.started for item in facts.containers)


DISRUPTIONS = (
    Cause(
        name="preempted-by-scheduler",
        applies=_disrupted_by("PreemptionByScheduler"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_TERMINATION,
        why="The scheduler made room on the node for a pod of higher priority.",
        url=f"{_DOCS}/scheduling-eviction/pod-priority-preemption/#preemption",
    ),
    Cause(
        name="evicted-by-taint",
        applies=_disrupted_by("DeletionByTaintManager"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_TERMINATION,
        why="The node got a NoExecute taint that the pod does not tolerate, as when it stopped answering.",
        url=f"{_DOCS}/scheduling-eviction/taint-and-toleration/#taint-based-evictions",
    ),
    Cause(
        name="evicted-by-device-taint",
        applies=_disrupted_by("DeletionByDeviceTaintManager"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_TERMINATION,
        why="A device that was allocated to the pod got a NoExecute taint, as when it has failed.",
        url=f"{_DOCS}/scheduling-eviction/dynamic-resource-allocation/#device-taints-and-tolerations",
    ),
    Cause(
        name="evicted-by-api",
        applies=_disrupted_by("EvictionByEvictionAPI"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_TERMINATION,
        why="The pod was evicted through the API, as kubectl drain and autoscalers that remove nodes do.",
        url=f"{_DOCS}/scheduling-eviction/api-eviction/",
    ),
    Cause(
        name="kueue-time-exceeded",
        applies=both(
            _evicted_by_kueue,
            lambda failure: bool(failure.disruption and _TIME_EXCEEDED in (failure.disruption.reason or "")),
        ),
        category=StateChangeCategory.TIMEOUT,
        reason=StateChangeReason.EXECUTION_TIMEOUT,
        why="The pod was active for longer than the time that it asks Kueue for.",
        url=f"{_KUEUE}/concepts/workload/#maximum-execution-time",
    ),
    Cause(
        name="evicted-by-kueue",
        applies=_evicted_by_kueue,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_TERMINATION,
        why="Kueue took the pod's quota back, as for a workload of higher priority or from a queue that was "
        "stopped.",
        url=f"{_KUEUE}/concepts/preemption/",
    ),
    Cause(
        name=NODE_GONE,
        applies=_disrupted_by("DeletionByPodGC"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_LOST,
        why="The pod's node does not exist any more or is out of service, so the pod was removed too.",
        url=f"{_DOCS}/workloads/pods/pod-lifecycle/#pod-garbage-collection",
    ),
    Cause(
        name="evicted-by-node-pressure",
        applies=_under_node_pressure,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.RESOURCE_EXHAUSTION,
        why="The node ran short of memory, disk space or process ids, and the kubelet chose this pod to go.",
        url=f"{_DOCS}/scheduling-eviction/node-pressure-eviction/",
    ),
    Cause(
        name="preempted-by-kubelet",
        applies=pod_reason("Preempting"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_TERMINATION,
        why="The kubelet made room for a pod that the cluster itself cannot do without.",
        url="https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/",
    ),
    Cause(
        name="refused-by-node-shutdown",
        applies=_refused_by_shutdown,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The pod came to its node when that was shutting down already.",
        url=_SHUTDOWN,
        launch_only=True,
        node_bound=True,
    ),
    Cause(
        name="node-shutdown",
        # The word has changed: Shutdown in Kubernetes 1.21 and before, Terminated since.
        applies=pod_reason("Terminated", "Shutdown", "NodeShutdown"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_TERMINATION,
        why="The node was shut down, and the kubelet ended its pods in time, as with most spot machines.",
        url=_SHUTDOWN,
    ),
    Cause(
        name="terminated-by-kubelet",
        applies=_disrupted_by("TerminationByKubelet"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_TERMINATION,
        why="The kubelet ended the pod for the node's sake, and the pod does not say for which reason.",
        url=_CONDITIONS,
    ),
    Cause(
        name="disrupted",
        applies=lambda failure: failure.disruption is not None,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_TERMINATION,
        why="The pod was marked as the target of a disruption, for a reason that is not Kubernetes' own.",
        url=_CONDITIONS,
    ),
)
