# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The known words of Kubernetes for pods that fail, and their classes in the table of causes.

The words are for warnings only: runtimes, virtual kubelets and controllers may have words of their own.
"""

from __future__ import annotations

from typing import Final

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.pods import REFUSALS
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    KUEUE_TARGET,
    OWN_REASONS,
    PROVIDER_NOT_FOUND,
)
from airflow_resilience.retry_policy.lint import Vocabulary

_OF_DISRUPTIONS = (
    # https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
    "PreemptionByScheduler",
    "DeletionByTaintManager",
    "EvictionByEvictionAPI",
    "DeletionByPodGC",
    "TerminationByKubelet",
    # pkg/controller/devicetainteviction
    "DeletionByDeviceTaintManager",
)
_OF_KUEUE = (
    # Kueue: pkg/controller/jobframework/interface.go, and before 0.10
    "NoMatchingWorkload",
    "NotAdmitted",
    "StoppedByKueue",
    "WorkloadDeleted",
    "WorkloadEvicted",
)
_OF_SCHEDULING = (
    # The reasons of PodScheduled: staging/src/k8s.io/api/core/v1/types.go
    "Unschedulable",
    "SchedulingGated",
    "SchedulerError",
)
_OF_OTHER_CONDITIONS = (
    # pkg/kubelet/status/generate.go, and types.go for pods that are resized
    "ContainersNotReady",
    "ContainersNotInitialized",
    "PodCompleted",
    "PodFailed",
    "ReadinessGatesNotReady",
    "UnknownContainerStatuses",
    "Deferred",
    "Infeasible",
)
_OF_PODS = (
    # https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
    "Evicted",
    # pkg/kubelet/preemption
    "Preempting",
    # https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/, and 1.21 and before
    "Terminated",
    "NodeShutdown",
    "Shutdown",
    # pkg/controller/nodelifecycle, before 1.26
    "NodeLost",
    # https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#lifecycle
    "DeadlineExceeded",
    # https://virtual-kubelet.io/docs/architecture/; also of the pod's containers
    PROVIDER_NOT_FOUND,
)
_OF_WAITING_CONTAINERS = (
    # pkg/kubelet/kubelet_pods.go
    "ContainerCreating",
    "PodInitializing",
    # pkg/kubelet/container/sync_result.go
    "CrashLoopBackOff",
    "ConfigPodSandboxError",
    "CreatePodSandboxError",
    "KillContainerError",
    "KillPodSandboxError",
    "RemoveContainerError",
    "ResizePodInPlaceError",
    "RunContainerError",
    # pkg/kubelet/images/types.go, and staging/src/k8s.io/cri-api/pkg/errors
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RegistryUnavailable",
    "SignatureValidationFailed",
    # pkg/kubelet/kuberuntime/kuberuntime_container.go
    "CreateContainerConfigError",
    "CreateContainerError",
    "PostStartHookError",
    "PreCreateHookError",
    "PreStartHookError",
)
_OF_TERMINATED_CONTAINERS = (
    # The words of the runtimes, and of the kubelet where the runtime has none:
    # https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-state-terminated
    "Completed",
    "Error",
    "OOMKilled",
    "StartError",
    "Unknown",
    # Docker
    "ContainerCannotRun",
    # CRI-O: server/container_status.go
    "seccomp killed",
    # pkg/kubelet/container/runtime.go
    "ContainerStatusUnknown",
)

VOCABULARY: Final = Vocabulary(
    reasons=frozenset(
        {
            *_OF_DISRUPTIONS,
            *_OF_KUEUE,
            *_OF_SCHEDULING,
            *_OF_PODS,
            *REFUSALS,
            *_OF_WAITING_CONTAINERS,
            *_OF_TERMINATED_CONTAINERS,
            *OWN_REASONS,
        }
    ),
    # The name of the resource follows: pkg/kubelet/lifecycle/predicate.go. Kueue's own word for why it has
    # evicted a workload follows: apis/kueue/v1beta1/workload_types.go
    reason_prefixes=("OutOf", "WorkloadEvictedDueTo"),
    words_of_others={
        # Of Armada: https://github.com/armadaproject/armada/issues/4683
        "Preempted": "PreemptionByScheduler",
        # A word of people; the kubelet's word for a node without memory is OutOfmemory.
        "OutOfMemory": "OOMKilled",
    },
    # https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions
    condition_types=frozenset(
        {
            "AllContainersRestarting",
            "ContainersReady",
            "DisruptionTarget",
            "Initialized",
            "PodReadyToStartContainers",
            "PodResizeInProgress",
            "PodResizePending",
            "PodScheduled",
            "Ready",
            KUEUE_TARGET,
        }
    ),
    condition_reasons=frozenset({*_OF_DISRUPTIONS, *_OF_KUEUE, *_OF_SCHEDULING, *_OF_OTHER_CONDITIONS}),
    categories=frozenset(cause.category for cause in TABLE),
    classified_reasons=frozenset(cause.reason for cause in TABLE),
)
