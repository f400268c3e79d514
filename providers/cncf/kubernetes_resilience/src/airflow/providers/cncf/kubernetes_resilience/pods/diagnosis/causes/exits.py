# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A container ended without a cause from outside of the pod."""

from __future__ import annotations

from signal import SIGKILL

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.beginnings import BEGINNINGS
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.cause import (
    Cause,
    Predicate,
    both,
    container_failed,
    container_reason,
    either,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    SILENT_EXIT,
    TOKEN_EXPIRED,
    PodFailure,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import STOP_SIGNALS, ContainerType
from airflow_resilience.context import StateChangeCategory, StateChangeReason

_DOCS = "https://kubernetes.io/docs"
_FAILURE = f"{_DOCS}/tasks/debug/debug-application/determine-reason-pod-failure/"
_SIDECARS = f"{_DOCS}/concepts/workloads/pods/sidecar-containers/"
_TERMINATION = f"{_DOCS}/concepts/workloads/pods/pod-lifecycle/#pod-termination"

_WORKER_FAILED = container_failed(ContainerType.WORKER)


def _killed_by(*signals: int) -> Predicate:
    return lambda failure: failure.container is not None and failure.container.killed_by in signals


def _killed(failure: PodFailure) -> bool:
    return failure.container is not None and failure.container.killed_by is not None


def _without_exit_code(failure: PodFailure) -> bool:
    return failure.container is not None and failure.container.has_lost_exit_code


def _worker_never_started(failure: PodFailure) -> bool:
    worker = failure.facts.worker
    return worker is None or not worker.started


EXITS = (
    Cause(
        name="container-status-unknown",
        # The kubelet's word, and containerd's for a container whose process it does not find any more:
        # internal/cri/server; and CRI-O's exit code without a word: server/container_status.go
        applies=either(container_reason("ContainerStatusUnknown", "Unknown"), _without_exit_code),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_LOST,
        why="The node lost track of the container, as after a crash or a restart of it or of its runtime.",
        url=f"{_DOCS}/concepts/workloads/pods/pod-lifecycle/#container-states",
        node_bound=True,
    ),
    Cause(
        name="container-deadline-exceeded",
        applies=container_reason("DeadlineExceeded"),
        category=StateChangeCategory.TIMEOUT,
        reason=StateChangeReason.EXECUTION_TIMEOUT,
        why="The container was ended because a limit of time was over.",
        url=f"{_DOCS}/reference/kubernetes-api/workload-resources/pod-v1/#lifecycle",
    ),
    Cause(
        name="init-container-failed",
        applies=container_failed(ContainerType.INIT),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.START_ERROR,
        why="An init container failed, so the worker was never started; its log says why.",
        url=f"{_DOCS}/concepts/workloads/pods/init-containers/#detailed-behavior",
    ),
    Cause(
        name="sidecar-failed-before-worker",
        applies=both(container_failed(ContainerType.SIDECAR), _worker_never_started),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.START_ERROR,
        why="A sidecar failed before the worker had been started.",
        url=_SIDECARS,
    ),
    Cause(
        name="sidecar-failed",
        applies=container_failed(ContainerType.SIDECAR),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.UNKNOWN,
        why="The pod failed for a sidecar; the worker beside it did not.",
        url=_SIDECARS,
    ),
    Cause(
        name="worker-forbidden-system-call",
        # CRI-O: server/container_status.go
        applies=both(_WORKER_FAILED, container_reason("seccomp killed")),
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.UNKNOWN,
        why="The worker made a system call that the pod's seccomp profile forbids.",
        url=f"{_DOCS}/tutorials/security/seccomp/",
    ),
    Cause(
        name="worker-terminated",
        applies=both(_WORKER_FAILED, _killed_by(*STOP_SIGNALS)),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_TERMINATION,
        why="The worker was told to go (SIGTERM, or the stop signal of its image), and neither the pod nor a "
        "condition says by whom; a node that goes down without its kubelet's knowledge looks like that.",
        url=_TERMINATION,
    ),
    Cause(
        name="worker-killed",
        applies=both(_WORKER_FAILED, _killed_by(SIGKILL)),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.WORKER_LOST,
        why="The worker was killed (SIGKILL) from outside, and nobody says by whom; "
        "a node that is out of memory looks like that.",
        url=_TERMINATION,
    ),
    Cause(
        name="worker-crashed",
        applies=both(_WORKER_FAILED, _killed),
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.UNKNOWN,
        why="The worker's process ended by a signal that the platform does not send: it crashed, as by a "
        "segmentation fault, or a program in its container sent one, such as SIGUSR2.",
        url=_FAILURE,
    ),
    Cause(
        name="worker-token-expired",
        applies=lambda failure: failure.reason == TOKEN_EXPIRED,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.START_ERROR,
        why="The worker could not report that the task starts: its pod had taken longer to start than its "
        "token was good for.",
        url=f"{_DOCS}/concepts/workloads/pods/pod-lifecycle/#pod-phase",
    ),
    *BEGINNINGS,
    Cause(
        name="worker-failed",
        applies=_WORKER_FAILED,
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.UNKNOWN,
        why="The worker's process ended by itself, and not well; its log says why.",
        url=_FAILURE,
    ),
    Cause(
        name="exited-without-starting",
        applies=lambda failure: failure.reason == SILENT_EXIT,
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.START_ERROR,
        why="The worker ended well without ever reporting that the task had started; "
        "an image whose entry point does not run what it is given does that.",
        url=f"{_DOCS}/tasks/inject-data-application/define-command-argument-container/",
    ),
)
