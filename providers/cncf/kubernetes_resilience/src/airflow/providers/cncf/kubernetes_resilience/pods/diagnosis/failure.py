# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Finds the failure of a pod, and the container that decided.

The meaning of the failure is found by :mod:`.classify`.

.. seealso::
    https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
    https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from signal import SIGKILL

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.last_words import cut, summarise
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    STOP_SIGNALS,
    ConditionFacts,
    ContainerFacts,
    ContainerState,
    ContainerType,
    PodFacts,
    PodRef,
)

DISRUPTION_TARGET = "DisruptionTarget"
"""Condition of a pod that a disruption is about to terminate, if its status is ``True``."""

KUEUE_TARGET = "TerminationTarget"
"""Kueue's own condition of a pod that it is about to delete: the workload was evicted, or its queue stopped.

.. seealso:: https://kueue.sigs.k8s.io/docs/concepts/preemption/
"""

PROVIDER_FAILED = "ProviderFailed"
"""Pod reason of a virtual kubelet whose provider could not create the pod."""

PROVIDER_NOT_FOUND = "NotFound"
"""Pod reason of a virtual kubelet whose provider does not know a running pod any more."""

DELETED = "Deleted"
"""Our reason for a pod that was deleted, if nothing else is known of its end."""

DELETION_OVERDUE = "DeletionOverdue"
"""Our reason for a pod whose deletion did not happen within its grace period."""

SILENT_EXIT = "ExitedWithoutStarting"
"""Our reason for a pod that succeeded without a report of its worker's start."""

UNREPORTED_END = "EndedWithoutReport"
"""Our reason for a pod that succeeded, but whose worker never reported how its task had ended."""

HEARTBEAT_TIMEOUT = "HeartbeatTimeout"
"""Our reason for a worker without a heartbeat for too long."""

TOKEN_EXPIRED = "TokenExpired"  # noqa: S105 - a reason, and no secret
"""Our reason for a worker whose token expired before it could start."""

UNSCHEDULABLE = "Unschedulable"
"""Reason of the condition ``PodScheduled`` when the scheduler has looked for a node and found none."""

CREATION_REFUSED = "CreationRefused"
"""Our reason for a pod that was not created, because the API server refused the executor's credentials."""

CREATION_FORBIDDEN = "CreationForbidden"
"""Our reason for a pod that was not created, since the API server refuses it to every client."""

CREATION_CONFLICT = "CreationConflict"
"""Our reason for a pod that was not created, because something else was being changed each time."""

CREATION_FAILED = "CreationFailed"
"""Our reason for a pod that was not created, because the API server failed each time, for this pod alone."""

QUOTA_EXCEEDED = "QuotaExceeded"
"""Our reason for a pod that was not created, because the namespace's quota was used up."""

PUBLISH_RETRIES_USED = "PublishRetriesUsed"
"""The reason that such a pod has beside, if ``task_publish_max_retries`` is set and used up."""

CREATION_UNANSWERED = "CreationUnanswered"
"""Our reason for a pod that was not created, because the API server did not answer, but something else."""

UNKNOWN = "Unknown"
"""Our reason for a pod if nothing else is known."""

OWN_REASONS = frozenset(
    {
        CREATION_CONFLICT,
        CREATION_FAILED,
        CREATION_FORBIDDEN,
        CREATION_REFUSED,
        CREATION_UNANSWERED,
        DELETED,
        DELETION_OVERDUE,
        HEARTBEAT_TIMEOUT,
        PUBLISH_RETRIES_USED,
        QUOTA_EXCEEDED,
        SILENT_EXIT,
        UNREPORTED_END,
    }
)
"""Our own reasons. Rules may name them like those of Kubernetes."""

_NEVER = datetime.max.replace(tzinfo=UTC)

_FROM_OUTSIDE = STOP_SIGNALS | {SIGKILL}
"""Signals from outside. Others are the kernel's, for a crash, or those of programs in the container."""

_SAYS_NOTHING = frozenset({"Error", None})
"""Reasons of a failed container that say nothing but that it failed."""

_PULL_THROTTLED = "pull QPS exceeded"
"""In the message of a container whose image pull the kubelet throttles. This is no failure, with any
configured reasons: a new pod would wait too."""


@dataclass(frozen=True, slots=True)
class PodFailure:
    """The failure of a pod, or the reason of giving it up."""

    reason: str
    """In one word: the reason of the pod, of the condition or of the container, else the phase."""
    facts: PodFacts
    container: ContainerFacts | None = None
    """The container whose failure ended the pod, if one did."""
    has_vanished: bool = False
    """Whether the pod does not exist any more, and had not ended when it was last seen."""
    alive: bool = False
    """Whether the pod may still start its worker: it was given up, but has not terminated."""

    lingers: bool = False
    """Whether the worker has ended for good while another container of the pod runs on."""

    @property
    def disruption(self) -> ConditionFacts | None:
        """The condition :data:`DISRUPTION_TARGET`, or :data:`KUEUE_TARGET`, if its status is ``True``."""
        return _find_disruption(self.facts)

    @property
    def deleted(self) -> bool:
        """Whether somebody other than the executor asked for the pod's deletion."""
        return self.has_vanished or self.facts.deletion_timestamp is not None

    @property
    def condition(self) -> ConditionFacts | None:
        """The condition that says why: that of the disruption, or that the scheduler has no node."""
        return self.disruption or self.facts.unscheduled

    @property
    def worker_exited_by_itself(self) -> bool:
        """
        Whether the worker container ended without a cause from outside.

        A signal is a cause from outside, even if no condition says whose. API servers before 1.26 set no
        condition, nor does a node that goes down without its kubelet's knowledge. A program that the node
        cannot execute has not run. A runtime that has missed the end cannot know its cause.
        """
        container = self.container
        return (
            container is not None
            and container.type is ContainerType.WORKER
            and container.state is ContainerState.TERMINATED
            and not _was_signalled(container)
            and not container.is_not_executable
            and not container.has_lost_exit_code
            and self.disruption is None
            and self.facts.reason is None
            and not self.deleted
        )

    def __str__(self) -> str:
        """Return pod, node, reason, container and exit code in one line."""
        place = f"on node {self.facts.node}" if self.facts.node else "on no node"
        return f"pod {self.facts.ref} {place}: {', '.join(self._parts())}"

    def _parts(self) -> Iterator[str]:
        yield f"reason {self.reason}"
        if container := self.container:
            yield f"{container.type} container {container.name} {container.state}"
            if container.reason and container.reason != self.reason:
                yield f"container reason {container.reason}"
            if container.exit_code is not None:
                yield f"exit code {container.exit_code}"
        if self.disruption and self.disruption.reason != self.reason:
            yield f"disruption {self.disruption.reason or 'of unknown reason'}"
        if message := (self.container and summarise(self.container)) or cut(self.facts.message):
            yield f"message {message!r}"


def find_failure(
    facts: PodFacts, *, gone: bool = False, given_up_reasons: Collection[str] = ()
) -> PodFailure | None:
    """
    Say how the pod failed; None if it is alive, has succeeded, or is in an unknown phase.

    :param facts: the last reading of the pod
    :param gone: whether the pod no longer exists
    :param given_up_reasons: waiting reasons of a container with which a Pending pod counts as failed
        (``[kubernetes_executor] worker_pod_pending_fatal_container_state_reasons``)
    """
    if facts.phase == "Succeeded":
        return None
    if facts.phase == "Failed" or facts.reason == PROVIDER_FAILED:
        return _ended(facts, gone=gone)
    if gone:
        return _ended(facts, gone=True)
    if facts.phase in ("Pending", "Running") and facts.has_lost_worker:
        return _ended(facts, gone=False)
    if facts.phase == "Pending" and facts.may_start and (container := _given_up(facts, given_up_reasons)):
        return PodFailure(str(container.reason), facts, container, alive=True)
    return None


def find_obstacle(facts: PodFacts) -> PodFailure | None:
    """
    Say what keeps the worker of a pod from starting, as if the pod was given up now.

    None if the pod has ended, or its worker has started.

    The result is for people who ask why a pod hangs, and for a pod that the executor gives up:
    ``pending_timeout`` is over, or Airflow takes its task instance back.
    """
    if facts.phase not in ("Pending", "Running") or not facts.may_start or facts.lingers:
        return None
    container = next((item for item in facts.containers if _is_obstacle(item)), None)
    reason = _first(facts.reason, _reason(facts.unscheduled), _reason(container), facts.phase)
    return PodFailure(reason, facts, container, alive=True)


def find_unschedulable(facts: PodFacts) -> PodFailure | None:
    """Describe a pod for which the scheduler has found no node; None if that is not its state."""
    if (condition := facts.unscheduled) is None or condition.reason != UNSCHEDULABLE:
        return None
    return PodFailure(UNSCHEDULABLE, facts, alive=True)


def find_silent_exit(facts: PodFacts) -> PodFailure:
    """
    Describe a pod whose worker succeeded, but never reported that the task had started.

    The pod has succeeded, or another container of it runs on.
    """
    return PodFailure(SILENT_EXIT, facts, facts.worker, lingers=facts.has_done_worker)


def find_unreported_end(facts: PodFacts) -> PodFailure:
    """
    Describe a pod that has succeeded, and whose worker has not reported how its task had ended.

    The process that runs the task was killed alone, for example, and its supervisor has ended in good order.
    """
    return replace(find_silent_exit(facts), reason=UNREPORTED_END)


def find_expired_token(failure: PodFailure) -> PodFailure | None:
    """
    Describe the failure of a pod whose worker's token had expired; None if it has another cause.

    A worker that is not allowed to report its start exits by itself, with no other reason than ``Error``.
    """
    container = failure.container
    if container is None or container.reason not in _SAYS_NOTHING or container.killed_by is not None:
        return None
    is_own_exit = failure.worker_exited_by_itself and container.failed
    return replace(failure, reason=TOKEN_EXPIRED) if is_own_exit else None


def find_no_pod(
    namespace: str, name: str, reason: str, *, message: str, pod_reason: str | None = None
) -> PodFailure:
    """
    Describe a pod that could not be created.

    The pod counts as alive, because the call may have been carried out. If its worker runs, it has not
    failed.

    :param message: the answer
    :param pod_reason: a reason that it has beside
    """
    facts = PodFacts(PodRef(namespace, name, uid=""), {}, {}, reason=pod_reason, message=message)
    return PodFailure(reason, facts, alive=True)


def _ended(facts: PodFacts, *, gone: bool) -> PodFailure:
    is_over = facts.is_terminal or facts.has_lost_worker
    container, disruption = _deciding_container(facts), _find_disruption(facts)
    deletion = DELETED if not is_over and (gone or facts.deletion_timestamp) else None
    return PodFailure(
        reason=_first(facts.reason, _reason(disruption), deletion, _reason(container), facts.phase),
        facts=facts,
        container=container,
        # The deletion of a pod after its end is not the reason of the end.
        has_vanished=gone and not is_over,
        alive=not gone and not is_over,
        lingers=not gone and is_over and not facts.is_terminal,
    )


def _find_disruption(facts: PodFacts) -> ConditionFacts | None:
    return facts.condition(DISRUPTION_TARGET) or facts.condition(KUEUE_TARGET)


def _was_signalled(container: ContainerFacts) -> bool:
    return container.killed_by in _FROM_OUTSIDE and container.reason in _SAYS_NOTHING


def _reason(item: ConditionFacts | ContainerFacts | None) -> str | None:
    return item.reason if item else None


def _first(*reasons: str | None) -> str:
    return next((reason for reason in reasons if reason), UNKNOWN)


def _deciding_container(facts: PodFacts) -> ContainerFacts | None:
    """Return the container whose failure ended the pod: by rank, then by time, then by position."""
    failed = (container for container in facts.containers if container.failed)
    return min(failed, key=lambda item: (_rank(item), item.finished_at or _NEVER), default=None)


def _rank(container: ContainerFacts) -> int:
    """
    Rank a failed container: the lowest rank decides.

    After an init container has failed, the worker is not started. A sidecar that fails while the worker runs
    ends only itself. A native sidecar is stopped after the worker has ended, often with an exit code of its
    own, which does not count for the pod.

    .. seealso:: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
    """
    if container.type is ContainerType.INIT:
        return 0
    if container.type is ContainerType.WORKER:
        return 1
    return 3 if container.before_worker else 2


def _is_obstacle(container: ContainerFacts) -> bool:
    if container.state is ContainerState.WAITING:
        return True
    # The others wait for its end. For a native sidecar they only wait until it runs.
    return container.type is ContainerType.INIT and container.state is ContainerState.RUNNING


def _given_up(facts: PodFacts, reasons: Collection[str]) -> ContainerFacts | None:
    for container in facts.containers:
        concerns_worker = container.before_worker or container.type is ContainerType.WORKER
        if not concerns_worker or container.state is not ContainerState.WAITING:
            continue
        if container.reason in reasons and _PULL_THROTTLED not in (container.message or ""):
            return container
    return None
