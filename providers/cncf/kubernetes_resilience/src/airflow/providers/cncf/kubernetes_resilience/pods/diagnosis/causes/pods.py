# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Rows about the pod: refused, evicted, deleted, or never scheduled."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.cause import (
    Cause,
    Predicate,
    both,
    pod_reason,
    said,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    CREATION_CONFLICT,
    CREATION_FAILED,
    CREATION_FORBIDDEN,
    CREATION_REFUSED,
    CREATION_UNANSWERED,
    DELETION_OVERDUE,
    HEARTBEAT_TIMEOUT,
    KUEUE_TARGET,
    PROVIDER_FAILED,
    PROVIDER_NOT_FOUND,
    QUOTA_EXCEEDED,
    PodFailure,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import ContainerState
from airflow_resilience.context import StateChangeCategory, StateChangeReason
from airflow_resilience.outages import DependencyKind

_DOCS = "https://kubernetes.io/docs"
_CONCEPTS = f"{_DOCS}/concepts"
_CONDITIONS = f"{_CONCEPTS}/workloads/pods/disruptions/#pod-disruption-conditions"
_KUEUE = "https://kueue.sigs.k8s.io/docs"
_SHUTDOWN = f"{_CONCEPTS}/cluster-administration/node-shutdown/#graceful-node-shutdown"
_KUBELET = f"{_DOCS}/reference/command-line-tools-reference/kubelet/"
_TERMINATION = f"{_CONCEPTS}/workloads/pods/pod-lifecycle/#pod-termination"
_AIRFLOW = "https://airflow.apache.org/docs/apache-airflow/stable"


def _refused(failure: PodFailure) -> bool:
    return failure.reason == CREATION_REFUSED


NODE_GONE = "node-gone"
"""Cause of a pod whose node does not exist any more, or is out of service."""

_TIME_EXCEEDED = "MaximumExecutionTimeExceeded"

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


_OUT_OF = "OutOf"
"""The name of the resource follows: cpu, memory, pods, ephemeral-storage, nvidia.com/gpu."""

REFUSALS = frozenset(
    {
        # pkg/kubelet/lifecycle/predicate.go: names of plugins of the scheduler that the kubelet asks too
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "TaintToleration",
        # pkg/kubelet/lifecycle/predicate.go
        "InitContainerRestartPolicyForbidden",
        "InvalidNodeInfo",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "SupplementalGroupsPolicyNotSupported",
        "UnexpectedAdmissionError",
        "UnexpectedPredicateFailureType",
        "UnknownReason",
        # pkg/kubelet/lifecycle/handlers.go
        "AppArmor",
        "PodFeatureUnsupported",
        "PodLevelResourcesNotSupported",
        # pkg/kubelet/cm/cpumanager, pkg/kubelet/sysctl, pkg/kubelet/cm/topologymanager,
        # pkg/kubelet/volumemanager
        "SMTAlignmentError",
        "SysctlForbidden",
        "TopologyAffinityError",
        "VolumeAttachmentLimitExceeded",
        # https://virtual-kubelet.io/docs/architecture/
        PROVIDER_FAILED,
    }
)
"""Reasons with which a kubelet does not admit a pod, beside those that begin with ``OutOf``."""


def _not_admitted(failure: PodFailure) -> bool:
    reason = failure.facts.reason or ""
    return reason in REFUSALS or reason.startswith(_OUT_OF)


def _on_lost_node(failure: PodFailure) -> bool:
    """Return whether the node's kubelet does not report either."""
    facts = failure.facts
    runs = facts.worker is not None and facts.worker.state is ContainerState.RUNNING
    return failure.reason == HEARTBEAT_TIMEOUT and runs and facts.is_on_silent_node


def _message(failure: PodFailure) -> str | None:
    return condition.message if (condition := failure.facts.unscheduled) else None


def _unscheduled(pattern: str) -> Predicate:
    return said(_message, pattern)


PODS = (
    # No pod ever existed: the create call was refused.
    Cause(
        name="admission-refused",
        applies=lambda failure: failure.reason == CREATION_FORBIDDEN,
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The API server does not let anybody create this pod: it is not valid, or a rule of the cluster "
        "(a webhook, a limit range, a quota smaller than the pod) forbids it.",
        url=f"{_DOCS}/reference/access-authn-authz/admission-controllers/",
    ),
    Cause(
        name="quota-exceeded",
        applies=lambda failure: failure.reason == QUOTA_EXCEEDED,
        reason=StateChangeReason.RESOURCE_EXHAUSTION,
        why="The quota of the namespace was used up by other pods.",
        url=f"{_CONCEPTS}/policy/resource-quotas/",
        dependency=DependencyKind.QUOTA,
    ),
    Cause(
        name="creation-conflict",
        applies=lambda failure: failure.reason == CREATION_CONFLICT,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="Each call that was to create the pod met a change of something else, such as of the used "
        "amounts of a quota.",
        url=f"{_DOCS}/reference/using-api/api-concepts/#resource-versions",
    ),
    Cause(
        name="creation-failed",
        applies=lambda failure: failure.reason == CREATION_FAILED,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="Each call that was to create the pod failed, while other pods were created: the pod is too "
        "large for etcd, or a webhook fails on it.",
        url=f"{_DOCS}/reference/access-authn-authz/extensible-admission-controllers/",
    ),
    Cause(
        name="service-account-missing",
        applies=both(
            _refused,
            # plugin/pkg/admission/serviceaccount/admission.go
            said(
                lambda failure: failure.facts.message,
                r"is forbidden: .*service account .*not found|no api token found for service account",
            ),
        ),
        # The object may still come, as a secret may.
        reason=StateChangeReason.CONFIG_UNAVAILABLE,
        why="The service account that the pod names, or the token of it, is not in the pod's namespace.",
        url=f"{_DOCS}/tasks/configure-pod-container/configure-service-account/",
    ),
    Cause(
        name="api-refused-credentials",
        applies=_refused,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The API server did not accept the executor's credentials, or did not let it create the pod: a "
        "credential has expired, a role binding has changed, or an admission plug-in is not ready.",
        url=f"{_DOCS}/reference/access-authn-authz/authorization/",
    ),
    Cause(
        name="api-unreachable",
        applies=lambda failure: failure.reason == CREATION_UNANSWERED,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The call that was to create the pod got an answer that the API server does not give: of a "
        "proxy, a load balancer or a login page on the way to it.",
        url=f"{_CONCEPTS}/security/controlling-access/",
    ),
    # The pod was disrupted: conditions, and the reasons with which a kubelet terminates pods.
    Cause(
        name="preempted-by-scheduler",
        applies=_disrupted_by("PreemptionByScheduler"),
        reason=StateChangeReason.WORKER_TERMINATION,
        why="The scheduler made room on the node for a pod of higher priority.",
        url=f"{_CONCEPTS}/scheduling-eviction/pod-priority-preemption/#preemption",
    ),
    Cause(
        name="evicted-by-taint",
        applies=_disrupted_by("DeletionByTaintManager"),
        reason=StateChangeReason.WORKER_TERMINATION,
        why="The node got a NoExecute taint that the pod does not tolerate, as when it stopped answering.",
        url=f"{_CONCEPTS}/scheduling-eviction/taint-and-toleration/#taint-based-evictions",
    ),
    Cause(
        name="evicted-by-device-taint",
        applies=_disrupted_by("DeletionByDeviceTaintManager"),
        reason=StateChangeReason.WORKER_TERMINATION,
        why="A device that was allocated to the pod got a NoExecute taint, as when it has failed.",
        url=f"{_CONCEPTS}/scheduling-eviction/dynamic-resource-allocation/#device-taints-and-tolerations",
    ),
    Cause(
        name="evicted-by-api",
        applies=_disrupted_by("EvictionByEvictionAPI"),
        reason=StateChangeReason.WORKER_TERMINATION,
        why="The pod was evicted through the API, as kubectl drain and autoscalers that remove nodes do.",
        url=f"{_CONCEPTS}/scheduling-eviction/api-eviction/",
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
        reason=StateChangeReason.WORKER_TERMINATION,
        why="Kueue took the pod's quota back, as for a workload of higher priority or from a queue that was "
        "stopped.",
        url=f"{_KUEUE}/concepts/preemption/",
    ),
    Cause(
        name=NODE_GONE,
        applies=_disrupted_by("DeletionByPodGC"),
        reason=StateChangeReason.WORKER_LOST,
        why="The pod's node does not exist any more or is out of service, so the pod was removed too.",
        url=f"{_CONCEPTS}/workloads/pods/pod-lifecycle/#pod-garbage-collection",
    ),
    Cause(
        name="evicted-by-node-pressure",
        applies=_under_node_pressure,
        reason=StateChangeReason.RESOURCE_EXHAUSTION,
        why="The node ran short of memory, disk space or process ids, and the kubelet chose this pod to go.",
        url=f"{_CONCEPTS}/scheduling-eviction/node-pressure-eviction/",
    ),
    Cause(
        name="preempted-by-kubelet",
        applies=pod_reason("Preempting"),
        reason=StateChangeReason.WORKER_TERMINATION,
        why="The kubelet made room for a pod that the cluster itself cannot do without.",
        url=f"{_DOCS}/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/",
    ),
    Cause(
        name="refused-by-node-shutdown",
        applies=_refused_by_shutdown,
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
        reason=StateChangeReason.WORKER_TERMINATION,
        why="The node was shut down, and the kubelet ended its pods in time, as with most spot machines.",
        url=_SHUTDOWN,
    ),
    Cause(
        name="terminated-by-kubelet",
        applies=_disrupted_by("TerminationByKubelet"),
        reason=StateChangeReason.WORKER_TERMINATION,
        why="The kubelet ended the pod for the node's sake, and the pod does not say for which reason.",
        url=_CONDITIONS,
    ),
    Cause(
        name="disrupted",
        applies=lambda failure: failure.disruption is not None,
        reason=StateChangeReason.WORKER_TERMINATION,
        why="The pod was marked as the target of a disruption, for a reason that is not Kubernetes' own.",
        url=_CONDITIONS,
    ),
    # The pod's own reason: it was not admitted, or was terminated because of itself.
    Cause(
        name="evicted-over-own-limit",
        applies=pod_reason("Evicted"),
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.RESOURCE_EXHAUSTION,
        why="The pod used more local storage than its own limits allow; the next one most likely will too.",
        url=f"{_CONCEPTS}/storage/ephemeral-storage/",
    ),
    Cause(
        name="node-lost",
        applies=pod_reason("NodeLost"),
        reason=StateChangeReason.WORKER_LOST,
        why="The pod's node stopped answering the control plane.",
        url=f"{_CONCEPTS}/architecture/nodes/#node-controller",
    ),
    Cause(
        name="lost-by-virtual-kubelet",
        applies=pod_reason(PROVIDER_NOT_FOUND),
        reason=StateChangeReason.WORKER_LOST,
        why="The service behind a virtual kubelet does not know the running pod any more.",
        url="https://virtual-kubelet.io/docs/architecture/",
    ),
    Cause(
        name="refused-by-node-affinity",
        applies=pod_reason("NodeAffinity"),
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The node's labels did not suit the pod when its kubelet looked, as after a restart of the node.",
        url=f"{_CONCEPTS}/scheduling-eviction/assign-pod-node/#node-affinity",
        launch_only=True,
        node_bound=True,
    ),
    Cause(
        name="refused-out-of-resources",
        applies=lambda failure: (failure.facts.reason or "").startswith(_OUT_OF),
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The node had less left than the scheduler believed, and its kubelet refused the pod.",
        url=f"{_CONCEPTS}/configuration/manage-resources-containers/#how-pods-with-resource-limits-are-run",
        launch_only=True,
        node_bound=True,
    ),
    Cause(
        name="refused-by-topology-manager",
        applies=pod_reason("TopologyAffinityError"),
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The node could not give the pod processors, memory and devices that are close to each other.",
        url=f"{_DOCS}/tasks/administer-cluster/topology-manager/",
        launch_only=True,
        node_bound=True,
    ),
    Cause(
        name="refused-by-admission-error",
        applies=pod_reason("UnexpectedAdmissionError"),
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The kubelet could not prepare what the pod needs, most often a device that is not healthy.",
        url=f"{_CONCEPTS}/extend-kubernetes/compute-storage-net/device-plugins/",
        launch_only=True,
        node_bound=True,
    ),
    Cause(
        name="active-deadline-exceeded",
        applies=pod_reason("DeadlineExceeded"),
        category=StateChangeCategory.TIMEOUT,
        reason=StateChangeReason.EXECUTION_TIMEOUT,
        why="The pod was active for longer than its activeDeadlineSeconds allow.",
        url=f"{_DOCS}/reference/kubernetes-api/workload-resources/pod-v1/#lifecycle",
    ),
    Cause(
        name="refused-by-virtual-kubelet",
        applies=pod_reason(PROVIDER_FAILED),
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The service behind a virtual kubelet could not create the pod.",
        url="https://virtual-kubelet.io/docs/architecture/",
        launch_only=True,
        node_bound=True,
    ),
    Cause(
        name="refused-by-kubelet",
        applies=_not_admitted,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The node's kubelet did not admit the pod, whose reason says which check it failed; the "
        "scheduler had taken another view of the node.",
        url=_KUBELET,
        launch_only=True,
        node_bound=True,
    ),
    Cause(
        name="not-admitted-again",
        applies=_not_admitted,
        reason=StateChangeReason.WORKER_LOST,
        why="The node's kubelet was restarted under the running worker, looked at all pods of the node anew, "
        "and did not admit this one.",
        url=_KUBELET,
    ),
    # The pod was deleted, not by the executor, and nothing more is known.
    Cause(
        name="deletion-overdue",
        applies=lambda failure: failure.reason == DELETION_OVERDUE,
        reason=StateChangeReason.WORKER_LOST,
        why="The pod's deletion was asked for, and its node did not confirm it within the grace period.",
        url=f"{_DOCS}/tasks/run-application/force-delete-stateful-set-pod/",
    ),
    Cause(
        name="deleted",
        applies=lambda failure: failure.facts.deletion_timestamp is not None,
        # USER_ACTION would be a guess: the deletion of a pod says nothing about the task.
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_TERMINATION,
        why="Somebody other than the executor deleted the pod: a person, an autoscaler, a controller.",
        url=_TERMINATION,
    ),
    Cause(
        name="vanished",
        applies=lambda failure: failure.deleted,
        reason=StateChangeReason.WORKER_LOST,
        why="The pod was there and then was not, and nobody saw its deletion: it was removed by force, or "
        "while the watch was interrupted.",
        url=f"{_TERMINATION}-forced",
    ),
    # Another reason of the pod.
    Cause(
        name="other-pod-reason",
        applies=lambda failure: failure.facts.reason is not None,
        reason=StateChangeReason.UNKNOWN,
        why="The pod has a reason of its own that is not in this table; pods get one from the platform, "
        "and not from their containers.",
        url=f"{_DOCS}/reference/kubernetes-api/workload-resources/pod-v1/#PodStatus",
    ),
    # Workers that were running, and say nothing any more.
    Cause(
        name="node-not-ready",
        applies=_on_lost_node,
        reason=StateChangeReason.WORKER_LOST,
        why="Airflow has not heard of the worker for too long, nor the control plane of the worker's node.",
        url=f"{_CONCEPTS}/architecture/nodes/#node-status",
    ),
    Cause(
        name="heartbeat-timeout",
        applies=lambda failure: failure.reason == HEARTBEAT_TIMEOUT,
        category=StateChangeCategory.TIMEOUT,
        reason=StateChangeReason.WORKER_LOST,
        why="Airflow has not heard of the worker for too long, though its pod runs on a node that is there.",
        url=f"{_AIRFLOW}/core-concepts/tasks.html#task-instance-heartbeat-timeout",
    ),
    # The pod waits for a node.
    Cause(
        name="scheduling-gated",
        applies=lambda failure: failure.facts.is_gated,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="A scheduling gate holds the pod back, as Kueue's does until there is quota for it.",
        url=f"{_CONCEPTS}/scheduling-eviction/pod-scheduling-readiness/",
    ),
    Cause(
        name="unschedulable-volume",
        applies=_unscheduled(r"persistent ?volume|\bvolumes?\b|\bpvc|enough free storage|available disk"),
        reason=StateChangeReason.VOLUME_UNAVAILABLE,
        why="The scheduler waits for a volume: it does not exist, is not bound, or is where no node is free.",
        url=f"{_CONCEPTS}/storage/persistent-volumes/#binding",
    ),
    Cause(
        name="unschedulable-resources",
        applies=_unscheduled(r"\binsufficient\b|too many pods|cannot allocate all claims"),
        reason=StateChangeReason.RESOURCE_EXHAUSTION,
        why="No node has enough left of what the pod asks for.",
        url=f"{_DOCS}/tasks/debug/debug-application/debug-pods/#my-pod-stays-pending",
    ),
    Cause(
        name="scheduler-error",
        applies=lambda failure: (
            failure.facts.unscheduled is not None and failure.facts.unscheduled.reason == "SchedulerError"
        ),
        reason=StateChangeReason.UNKNOWN,
        why="The scheduler met an error while it looked for a node, or while it bound the pod to one.",
        url=f"{_CONCEPTS}/scheduling-eviction/scheduling-framework/",
    ),
    Cause(
        name="unschedulable",
        applies=lambda failure: failure.facts.unscheduled is not None,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The scheduler has no node for the pod: selectors, affinities or taints forbid each.",
        url=f"{_CONCEPTS}/scheduling-eviction/assign-pod-node/",
    ),
)
