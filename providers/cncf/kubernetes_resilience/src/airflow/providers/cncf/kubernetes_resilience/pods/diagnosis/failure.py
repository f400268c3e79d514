# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Whether a pod has failed, and which of its containers decided that.

What it means is said by :mod:`.classify`.

.. seealso::
    https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
    https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from signal import SIGKILL, SIGTERM

from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    ConditionFacts,
    ContainerFacts,
    ContainerState,
    ContainerType,
    PodFacts,
    PodRef,
)

DISRUPTION_TARGET = "DisruptionTarget"
"""Condition of a pod that is about to be terminated by a disruption; only status ``True`` says so."""

PROVIDER_FAILED = "ProviderFailed"
"""Pod reason of a virtual kubelet whose provider could not create the pod."""

DELETED = "Deleted"
"""Our reason for a pod whose deletion is all that is known of its end."""

DELETION_OVERDUE = "DeletionOverdue"
"""Our reason for a pod whose deletion did not happen within its grace period."""

SILENT_EXIT = "ExitedWithoutStarting"
"""Our reason for a pod that succeeded although its worker never reported that the task had started."""

TOKEN_EXPIRED = "TokenExpired"  # noqa: S105 - a reason, and no secret
"""Our reason for a worker that an outage has kept from starting for longer than its token was good for."""

UNSCHEDULABLE = "Unschedulable"
"""Reason of the condition ``PodScheduled`` when the scheduler has looked for a node and found none."""

CREATION_REFUSED = "CreationRefused"
"""Our reason for a pod that never was, because the API server does not let the executor create it."""

CREATION_UNANSWERED = "CreationUnanswered"
"""Our reason for a pod that never was, because something else than the API server answers."""

UNKNOWN = "Unknown"
"""Our reason for a pod of which nothing is known."""

_NEVER = datetime.max.replace(tzinfo=UTC)

MESSAGE_LIMIT = 500
"""Characters of a message that are kept; some runtimes put a whole stack trace there."""

_FROM_OUTSIDE = frozenset({SIGTERM, SIGKILL})
"""Signals that somebody else sends; a process that crashes gets others from the kernel."""

_SAYS_NOTHING = frozenset({"Error", None})
"""Reasons of a container that ended badly with which its runtime says no more than that."""

_PULL_THROTTLED = "pull QPS exceeded"
"""Part of the message of a container whose image the kubelet, which throttles itself, pulls later. Not a
failure, whatever the configured reasons: a new pod would have to wait as well."""


@dataclass(frozen=True, slots=True)
class PodFailure:
    """How a pod ended, or why it was given up on."""

    reason: str
    """One word that names it: the reason of the pod, the condition or the container, else the phase."""
    facts: PodFacts
    container: ContainerFacts | None = None
    """The container whose failure ended the pod, if one did."""
    disruption: ConditionFacts | None = None
    """The ``DisruptionTarget`` condition, if its status is ``True``."""
    deleted: bool = False
    """Whether somebody other than the executor asked for the pod's deletion."""
    alive: bool = False
    """Whether the pod may still start its worker: it was given up on, but not terminated."""

    lingers: bool = False
    """Whether the worker has ended, and will not start again, while another container of the pod runs on."""

    @property
    def condition(self) -> ConditionFacts | None:
        """The condition that says why: of the disruption, or of the scheduler that has no node."""
        return self.disruption or self.facts.unscheduled

    @property
    def worker_exited_by_itself(self) -> bool:
        """
        Whether the worker container ended with nobody outside of it having asked for that.

        A signal is somebody's asking, also if no condition says whose: API servers before 1.26 set none, and
        a node that goes down without its kubelet's knowledge has nobody to set one.
        """
        container = self.container
        return (
            container is not None
            and container.type is ContainerType.WORKER
            and container.state is ContainerState.TERMINATED
            and not _was_signalled(container)
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
        if message := cut((self.container and self.container.message) or self.facts.message):
            yield f"message {message!r}"


def find_failure(
    facts: PodFacts, *, gone: bool = False, given_up_reasons: Collection[str] = ()
) -> PodFailure | None:
    """
    Say how the pod failed; None while it is alive, has succeeded, or is not understood.

    :param facts: the last that is known of the pod
    :param gone: whether the pod object no longer exists
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
    if facts.phase == "Pending" and (container := _given_up(facts, given_up_reasons)):
        return _alive(str(container.reason), facts, container)
    return None


def find_obstacle(facts: PodFacts) -> PodFailure | None:
    """
    Say what keeps a Pending pod from starting, as if it was given up on now; None if it is not Pending.

    For people who ask why a pod hangs. It takes no configuration, and the executor does not act on it.
    """
    if facts.phase != "Pending":
        return None
    container = next((item for item in facts.containers if _is_obstacle(item)), None)
    reason = _first(facts.reason, _reason(facts.unscheduled), _reason(container), facts.phase)
    return _alive(reason, facts, container)


def find_unschedulable(facts: PodFacts) -> PodFailure | None:
    """Describe a pod for which the scheduler has found no node; None if it has not looked for one."""
    if (condition := facts.unscheduled) is None or condition.reason != UNSCHEDULABLE:
        return None
    return _alive(UNSCHEDULABLE, facts, None)


def find_overdue_deletion(facts: PodFacts) -> PodFailure:
    """Describe a pod whose deletion was asked for and did not happen within its grace period."""
    return PodFailure(
        reason=DELETION_OVERDUE,
        facts=facts,
        disruption=facts.condition(DISRUPTION_TARGET),
        deleted=True,
        alive=True,
    )


def find_silent_exit(facts: PodFacts) -> PodFailure:
    """
    Describe a pod whose worker never reported that the task had started, and ended well all the same.

    The pod has succeeded, or another container of it runs on.
    """
    return PodFailure(
        reason=SILENT_EXIT,
        facts=facts,
        container=facts.worker,
        # A worker that is told to go before it has begun may well do so with exit code 0.
        disruption=facts.condition(DISRUPTION_TARGET),
        deleted=facts.deletion_timestamp is not None,
        lingers=facts.has_done_worker,
    )


def find_expired_token(failure: PodFailure) -> PodFailure | None:
    """
    Describe the failure of a pod whose worker's token had expired; None if that cannot be why it ended.

    A worker that may not report its start exits by itself, with no word of the runtime's but ``Error``.
    """
    container = failure.container
    if container is None or container.reason not in _SAYS_NOTHING or container.killed_by is not None:
        return None
    is_own_exit = failure.worker_exited_by_itself and container.failed
    return replace(failure, reason=TOKEN_EXPIRED) if is_own_exit else None


def find_no_pod(namespace: str, name: str, *, refused: bool, message: str) -> PodFailure:
    """
    Describe a pod that could not be created.

    It counts as alive, since the call may have been carried out: if its worker runs, nothing has ended.

    :param refused: whether it was the API server that would not have it
    :param message: what was answered
    """
    facts = PodFacts(PodRef(namespace, name, uid=""), {}, {}, message=message)
    return _alive(CREATION_REFUSED if refused else CREATION_UNANSWERED, facts, None)


def _ended(facts: PodFacts, *, gone: bool) -> PodFailure:
    is_over = facts.is_terminal or facts.has_lost_worker
    # What was over when it was seen last did not end by being removed afterwards.
    deleted = facts.deletion_timestamp is not None or (gone and not is_over)
    disruption = facts.condition(DISRUPTION_TARGET)
    container = _deciding_container(facts)
    deletion = DELETED if deleted and not is_over else None
    return PodFailure(
        reason=_first(facts.reason, _reason(disruption), deletion, _reason(container), facts.phase),
        facts=facts,
        container=container,
        disruption=disruption,
        deleted=deleted,
        alive=not gone and not is_over,
        lingers=not gone and is_over and not facts.is_terminal,
    )


def _alive(reason: str, facts: PodFacts, container: ContainerFacts | None) -> PodFailure:
    return PodFailure(
        reason=reason,
        facts=facts,
        container=container,
        disruption=facts.condition(DISRUPTION_TARGET),
        deleted=facts.deletion_timestamp is not None,
        alive=True,
    )


def _was_signalled(container: ContainerFacts) -> bool:
    return container.killed_by in _FROM_OUTSIDE and container.reason in _SAYS_NOTHING


def _reason(item: ConditionFacts | ContainerFacts | None) -> str | None:
    return item.reason if item else None


def _first(*reasons: str | None) -> str:
    return next((reason for reason in reasons if reason), UNKNOWN)


def _deciding_container(facts: PodFacts) -> ContainerFacts | None:
    """Return the container whose failure ended the pod; of equals the first that ended, then the first."""
    failed = (container for container in facts.containers if container.failed)
    return min(failed, key=lambda item: (_rank(item), item.finished_at or _NEVER), default=None)


def _rank(container: ContainerFacts) -> int:
    """
    Return 0 for a container whose failure decides whatever else has failed, more for others.

    The worker is not started after an init container that failed. A sidecar that fails beside the worker
    ends nothing but itself while the worker runs. A native sidecar is stopped when the worker has ended,
    often with a code of its own, which does not count for the pod.

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
    # The others wait for it; a native sidecar has done its part as soon as it runs.
    return container.type is ContainerType.INIT and container.state is ContainerState.RUNNING


def _given_up(facts: PodFacts, reasons: Collection[str]) -> ContainerFacts | None:
    for container in facts.containers:
        concerns_worker = container.before_worker or container.type is ContainerType.WORKER
        if not concerns_worker or container.state is not ContainerState.WAITING:
            continue
        if container.reason in reasons and _PULL_THROTTLED not in (container.message or ""):
            return container
    return None


def cut(message: str | None) -> str | None:
    """Return as much of a message as is kept: :data:`MESSAGE_LIMIT` characters."""
    if message is None or len(message) <= MESSAGE_LIMIT:
        return message
    return message[:MESSAGE_LIMIT] + "…"
