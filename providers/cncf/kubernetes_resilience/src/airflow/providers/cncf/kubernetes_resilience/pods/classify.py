# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Why a pod ended, read from its facts.

.. seealso::
    https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
    https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    ConditionFacts,
    ContainerFacts,
    ContainerState,
    ContainerType,
    PodFacts,
)

DISRUPTION_TARGET = "DisruptionTarget"
"""Condition of a pod that is about to be terminated by a disruption; only status ``True`` says so."""

PROVIDER_FAILED = "ProviderFailed"
"""Pod reason of a virtual kubelet whose provider could not create the pod."""

DELETION_OVERDUE = "DeletionOverdue"
"""Our reason for a pod whose deletion did not happen within its grace period."""

MESSAGE_LIMIT = 500
"""Characters of a message that are kept; some runtimes put a whole stack trace there."""

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

    @property
    def worker_exited_by_itself(self) -> bool:
        """Whether the worker container ended with nobody outside of it having asked for that."""
        container = self.container
        return (
            container is not None
            and container.type is ContainerType.WORKER
            and container.state is ContainerState.TERMINATED
            and self.disruption is None
            and self.facts.reason is None
            and not self.deleted
        )

    def details(self) -> dict[str, Any]:
        """Return what is known, JSON-serialisable, without what is not known."""
        container, facts = self.container, self.facts
        known: dict[str, Any] = {
            "pod": str(facts.ref),
            "node": facts.node,
            "reason": self.reason,
            "phase": facts.phase,
            "pod_reason": facts.reason,
            "pod_message": _cut(facts.message),
        }
        if self.disruption:
            known |= {"condition": self.disruption.type, "condition_reason": self.disruption.reason}
        if container:
            known |= {
                "container": container.name,
                "container_type": container.type,
                "container_reason": container.reason,
                "container_message": _cut(container.message),
                "exit_code": container.exit_code,
                "signal": container.signal,
            }
        return {name: value for name, value in known.items() if value is not None}

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
        if message := _cut((self.container and self.container.message) or self.facts.message):
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
    if facts.phase == "Pending" and (container := _given_up(facts, given_up_reasons)):
        return PodFailure(reason=str(container.reason), facts=facts, container=container, alive=True)
    return None


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
    """Describe a pod that succeeded although its worker never reported that the task had started."""
    return PodFailure(reason="ExitedWithoutStarting", facts=facts, container=facts.worker)


def is_pre_execution_failure(
    state: str | None,
    ti_state: str | None,
    failure_details: PodFailure | None,
    excluded_container_reasons: Collection[str],
) -> bool:
    """
    Say whether a pod failed before the process of its task started.

    Two things make it so: the pod has failed, and the task instance never left ``queued``, which the
    worker changes before any code of the task runs. An excluded reason takes this back where the worker
    container (``base``) exited on its own, because that is most likely a fault of the worker's start-up
    that the next pod would meet as well. The same reason of an init container or a sidecar, or of a worker
    that a disruption or a deletion ended, says nothing of the kind.

    :param state: what became of the pod: ``failed`` or anything else
    :param ti_state: state in the database of the task instance with the pod's own id and try number
    :param failure_details: how the pod failed; None if nothing is known of it
    :param excluded_container_reasons: termination reasons of the worker container that are left to the
        task's own retries (``[kubernetes_executor] pod_launch_failure_excluded_container_reasons``)
    """
    if state != "failed" or ti_state != "queued":
        return False
    if failure_details is None or not failure_details.worker_exited_by_itself:
        return True
    worker = failure_details.container
    return worker is None or worker.reason not in excluded_container_reasons


def _ended(facts: PodFacts, *, gone: bool) -> PodFailure:
    # What was over when it was seen last did not end by being removed afterwards.
    deleted = facts.deletion_timestamp is not None or (gone and not facts.is_terminal)
    disruption = facts.condition(DISRUPTION_TARGET)
    container = _deciding_container(facts)
    reasons = (
        facts.reason,
        disruption and disruption.reason,
        "Deleted" if deleted and not facts.is_terminal else None,
        container and container.reason,
        facts.phase,
    )
    return PodFailure(
        reason=next((reason for reason in reasons if reason), "Unknown"),
        facts=facts,
        container=container,
        disruption=disruption,
        deleted=deleted,
        alive=not gone and not facts.is_terminal,
    )


def _deciding_container(facts: PodFacts) -> ContainerFacts | None:
    """Return the failed container that kept the worker from starting, else the worker, else a sidecar."""
    failed = [container for container in facts.containers if container.failed]
    order: Mapping[ContainerType, int] = {
        ContainerType.INIT: 0,
        ContainerType.WORKER: 1,
        ContainerType.SIDECAR: 2,
    }
    return min(failed, key=lambda container: order[container.type], default=None)


def _given_up(facts: PodFacts, reasons: Collection[str]) -> ContainerFacts | None:
    for container in facts.containers:
        concerns_worker = container.before_worker or container.type is ContainerType.WORKER
        if not concerns_worker or container.state is not ContainerState.WAITING:
            continue
        if container.reason in reasons and _PULL_THROTTLED not in (container.message or ""):
            return container
    return None


def _cut(message: str | None) -> str | None:
    if message is None or len(message) <= MESSAGE_LIMIT:
        return message
    return message[:MESSAGE_LIMIT] + "…"
