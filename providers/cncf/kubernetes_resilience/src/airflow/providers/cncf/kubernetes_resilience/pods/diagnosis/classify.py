# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Classifies the failure of a pod, in the words of AIP-97 and in those of the rules of a policy.

Pure and total: every failure gets a context, the same one each time. The table is in :mod:`.causes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import Cause, find_cause
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    DELETED,
    HEARTBEAT_TIMEOUT,
    OWN_REASONS,
    PodFailure,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.last_words import cut, keep
from airflow.providers.cncf.kubernetes_resilience.pods.facts import ContainerFacts, ContainerState
from airflow_resilience.context import ContextSource, ExecutionContext, MetadataKey
from airflow_resilience.retry_policy.evidence import ConditionEvidence, ContainerEvidence, Evidence, Phase


class Classified(NamedTuple):
    """The meaning of a failure, and the row of the table."""

    context: ExecutionContext
    cause: Cause


def classify(
    failure: PodFailure,
    *,
    launch_number: int | None = None,
    infrastructure_attempt: int | None = None,
    phase: Phase = Phase.LAUNCH,
) -> Classified:
    """
    Classify the failure of a worker pod.

    The context's metadata is flat and JSON-serialisable, by the names of
    :class:`~airflow_resilience.context.MetadataKey`. Unknown facts are omitted. The scheduler is the source
    of a failure that was noticed by the worker's silence.

    Of messages the beginning is kept, :data:`~.last_words.MESSAGE_LIMIT` characters. Of what a container's
    program said at its end, it is the end, :data:`~.last_words.LOG_LIMIT` bytes.

    :param launch_number: 1 for the first launch of a try
    :param infrastructure_attempt: 1 for the first run of a try; None if nothing was running
    :param phase: how far the task had come
    """
    cause = find_cause(failure, phase)
    known = {
        **_pod(failure),
        **_condition(failure),
        **_container(failure),
        MetadataKey.CAUSE: cause.name,
        MetadataKey.LAUNCH: launch_number,
        MetadataKey.INFRASTRUCTURE_ATTEMPT: infrastructure_attempt,
    }
    metadata = {name.value: value for name, value in known.items() if value is not None}
    is_silence = failure.reason == HEARTBEAT_TIMEOUT
    source = ContextSource.SCHEDULER if is_silence else ContextSource.EXECUTOR
    return Classified(ExecutionContext(cause.category, cause.reason, source, metadata), cause)


def make_evidence(failure: PodFailure, classified: Classified, phase: Phase) -> Evidence:
    """
    Collect what the rules of a policy look at.

    :param classified: what the failure means
    :param phase: how far the task had come
    """
    facts, container = failure.facts, failure.container
    return Evidence(
        phase=phase,
        context=classified.context,
        reasons=tuple(dict.fromkeys(_reasons(failure))),
        message=facts.message or (failure.condition.message if failure.condition else None),
        containers=tuple(
            _container_evidence(item) for item in facts.containers if _matters(item) or item is container
        ),
        deciding_container=container.name if container else None,
        conditions=tuple(
            ConditionEvidence(type=item.type, status=item.status, reason=item.reason)
            for item in facts.conditions
        ),
        exited_by_itself=failure.worker_exited_by_itself,
    )


def _pod(failure: PodFailure) -> dict[MetadataKey, Any]:
    facts = failure.facts
    return {
        MetadataKey.POD: facts.ref.name,
        MetadataKey.NAMESPACE: facts.ref.namespace,
        MetadataKey.UID: facts.ref.uid or None,  # a pod that was never created has none
        MetadataKey.NODE: facts.node,
        MetadataKey.PHASE: facts.phase,
        MetadataKey.POD_REASON: facts.reason,
        MetadataKey.POD_MESSAGE: cut(facts.message),
    }


def _condition(failure: PodFailure) -> dict[MetadataKey, Any]:
    if condition := failure.condition:
        return {
            MetadataKey.CONDITION: condition.type,
            MetadataKey.CONDITION_REASON: condition.reason,
            MetadataKey.MESSAGE: cut(condition.message),
        }
    return {}


def _container(failure: PodFailure) -> dict[MetadataKey, Any]:
    if (container := failure.container) is None:
        return {}
    known = {
        MetadataKey.CONTAINER: container.name,
        MetadataKey.CONTAINER_TYPE: container.type.value,
        MetadataKey.CONTAINER_REASON: container.reason,
        MetadataKey.EXIT_CODE: container.exit_code,
        MetadataKey.SIGNAL: container.killed_by,
    }
    # If it has no message, the condition's stays.
    return known | ({MetadataKey.MESSAGE: keep(container)} if container.message else {})


def _reasons(failure: PodFailure) -> Iterator[str]:
    # Not the failure's reason: it may be a container's, and would then match a rule about another container.
    for reason in (
        failure.facts.reason,
        failure.condition.reason if failure.condition else None,
        failure.reason if failure.reason in OWN_REASONS else None,
        DELETED if failure.deleted else None,
    ):
        if reason:
            yield reason


def _matters(container: ContainerFacts) -> bool:
    return container.failed or container.state is ContainerState.WAITING


def _container_evidence(container: ContainerFacts) -> ContainerEvidence:
    return ContainerEvidence(
        name=container.name,
        is_init=container.before_worker,
        exit_code=container.exit_code,
        reason=container.reason,
        message=container.message,
    )
