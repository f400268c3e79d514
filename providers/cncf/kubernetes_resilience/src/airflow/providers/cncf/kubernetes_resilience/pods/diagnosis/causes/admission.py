# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The pod's own reason: it was not admitted, or was terminated because of itself."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.cause import Cause, pod_reason
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    PROVIDER_FAILED,
    PROVIDER_NOT_FOUND,
    PodFailure,
)
from airflow_resilience.context import StateChangeCategory, StateChangeReason

_DOCS = "https://kubernetes.io/docs"
_KUBELET = f"{_DOCS}/reference/command-line-tools-reference/kubelet/"

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


def _refused(failure: PodFailure) -> bool:
    reason = failure.facts.reason or ""
    return reason in REFUSALS or reason.startswith(_OUT_OF)


ADMISSION = (
    Cause(
        name="evicted-over-own-limit",
        applies=pod_reason("Evicted"),
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.RESOURCE_EXHAUSTION,
        why="The pod used more local storage than its own limits allow; the next one most likely will too.",
        url=f"{_DOCS}/concepts/storage/ephemeral-storage/",
    ),
    Cause(
        name="node-lost",
        applies=pod_reason("NodeLost"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_LOST,
        why="The pod's node stopped answering the control plane.",
        url=f"{_DOCS}/concepts/architecture/nodes/#node-controller",
    ),
    Cause(
        name="lost-by-virtual-kubelet",
        applies=pod_reason(PROVIDER_NOT_FOUND),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_LOST,
        why="The service behind a virtual kubelet does not know the running pod any more.",
        url="https://virtual-kubelet.io/docs/architecture/",
    ),
    Cause(
        name="refused-by-node-affinity",
        applies=pod_reason("NodeAffinity"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The node's labels did not suit the pod when its kubelet looked, as after a restart of the node.",
        url=f"{_DOCS}/concepts/scheduling-eviction/assign-pod-node/#node-affinity",
        launch_only=True,
        node_bound=True,
    ),
    Cause(
        name="refused-out-of-resources",
        applies=lambda failure: (failure.facts.reason or "").startswith(_OUT_OF),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The node had less left than the scheduler believed, and its kubelet refused the pod.",
        url=f"{_DOCS}/concepts/configuration/manage-resources-containers/#how-pods-with-resource-limits-are-run",
        launch_only=True,
        node_bound=True,
    ),
    Cause(
        name="refused-by-topology-manager",
        applies=pod_reason("TopologyAffinityError"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The node could not give the pod processors, memory and devices that are close to each other.",
        url=f"{_DOCS}/tasks/administer-cluster/topology-manager/",
        launch_only=True,
        node_bound=True,
    ),
    Cause(
        name="refused-by-admission-error",
        applies=pod_reason("UnexpectedAdmissionError"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The kubelet could not prepare what the pod needs, most often a device that is not healthy.",
        url=f"{_DOCS}/concepts/extend-kubernetes/compute-storage-net/device-plugins/",
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
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The service behind a virtual kubelet could not create the pod.",
        url="https://virtual-kubelet.io/docs/architecture/",
        launch_only=True,
        node_bound=True,
    ),
    Cause(
        name="refused-by-kubelet",
        applies=_refused,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The node's kubelet did not admit the pod, whose reason says which check it failed; the "
        "scheduler had taken another view of the node.",
        url=_KUBELET,
        launch_only=True,
        node_bound=True,
    ),
    Cause(
        name="not-admitted-again",
        applies=_refused,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_LOST,
        why="The node's kubelet was restarted under the running worker, looked at all pods of the node anew, "
        "and did not admit this one.",
        url=_KUBELET,
    ),
)

OTHER_POD_REASONS = (
    Cause(
        name="other-pod-reason",
        applies=lambda failure: failure.facts.reason is not None,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.UNKNOWN,
        why="The pod has a reason of its own that is not in this table; pods get one from the platform, "
        "and not from their containers.",
        url=f"{_DOCS}/reference/kubernetes-api/workload-resources/pod-v1/#PodStatus",
    ),
)
