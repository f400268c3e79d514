# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What the failure of a pod means, in the words of AIP-97.

Pure and total: every failure gets a context, the same one each time. The table is in :mod:`.causes`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import Cause, find_cause
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import HEARTBEAT_TIMEOUT, PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.last_words import cut, keep
from airflow_resilience.context import ContextSource, ExecutionContext, MetadataKey
from airflow_resilience.retry_policy.evidence import Phase


class Classified(NamedTuple):
    """What a failure means, and the row of the table that says so."""

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
    :class:`~airflow_resilience.context.MetadataKey`. What is not known is left out. What the scheduler has
    noticed, by the silence of the worker, has it for its source.

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
