# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
What the failure of a pod means, in the words of AIP-97.

Pure and total: every failure gets a context, the same one each time. The table is in :mod:`.causes`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import Cause, find_cause
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.last_words import cut, keep
from airflow_resilience.context import ContextSource, ExecutionContext
from airflow_resilience.retry_policy.evidence import Phase


class Classified(NamedTuple):
    """What a failure means, and the row of the table that says so."""

    context: ExecutionContext
    cause: Cause


def classify(
    failure: PodFailure, *, launch_number: int | None = None, phase: Phase = Phase.LAUNCH
) -> Classified:
    """
    Classify the failure of a worker pod.

    The context's metadata is flat and JSON-serialisable. Keys whose value is not known are left out:

    * ``pod``, ``namespace``, ``uid``, ``node``, ``phase``, ``pod_reason`` and ``pod_message``;
    * ``condition`` and ``condition_reason`` of the condition that disrupted the pod or keeps it from a node;
    * ``container``, ``container_type``, ``container_reason``, ``exit_code`` and ``signal`` of the deciding
      container;
    * ``message`` of that container, else of the condition;
    * ``launch``, and ``cause``: the name of the row.

    Of messages the beginning is kept, :data:`~.last_words.MESSAGE_LIMIT` characters. Of what a container's
    program said at its end, it is the end, :data:`~.last_words.LOG_LIMIT` bytes.

    :param launch_number: 1 for the first launch of a try
    :param phase: how far the task had come
    """
    cause = find_cause(failure, phase)
    known = {
        **_pod(failure),
        **_condition(failure),
        **_container(failure),
        "launch": launch_number,
        "cause": cause.name,
    }
    metadata = {name: value for name, value in known.items() if value is not None}
    return Classified(
        ExecutionContext(cause.category, cause.reason, ContextSource.EXECUTOR, metadata),
        cause,
    )


def _pod(failure: PodFailure) -> dict[str, Any]:
    facts = failure.facts
    return {
        "pod": facts.ref.name,
        "namespace": facts.ref.namespace,
        "uid": facts.ref.uid or None,  # a pod that was never created has none
        "node": facts.node,
        "phase": facts.phase,
        "pod_reason": facts.reason,
        "pod_message": cut(facts.message),
    }


def _condition(failure: PodFailure) -> dict[str, Any]:
    if condition := failure.condition:
        return {
            "condition": condition.type,
            "condition_reason": condition.reason,
            "message": cut(condition.message),
        }
    return {}


def _container(failure: PodFailure) -> dict[str, Any]:
    if (container := failure.container) is None:
        return {}
    known = {
        "container": container.name,
        "container_type": container.type.value,
        "container_reason": container.reason,
        "exit_code": container.exit_code,
        "signal": container.killed_by,
    }
    # If it has no message, the condition's stays.
    return known | ({"message": keep(container)} if container.message else {})
