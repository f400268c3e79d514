# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A pod's failure as the rules of a policy see it."""

from __future__ import annotations

from collections.abc import Iterator

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.classify import Classified
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    DELETED,
    OWN_REASONS,
    PodFailure,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import ContainerFacts, ContainerState
from airflow_resilience.retry_policy.evidence import ConditionEvidence, ContainerEvidence, Evidence, Phase


def make_evidence(failure: PodFailure, classified: Classified, phase: Phase) -> Evidence:
    """
    Collect what the rules of a policy look at.

    :param classified: what the failure means, from :func:`.classify.classify`
    :param phase: how far the task had come
    """
    facts, container = failure.facts, failure.container
    return Evidence(
        phase=phase,
        context=classified.context,
        reasons=tuple(dict.fromkeys(_reasons(failure))),
        message=facts.message or (failure.condition.message if failure.condition else None),
        containers=tuple(
            _container(item) for item in facts.containers if _matters(item) or item is container
        ),
        deciding_container=container.name if container else None,
        conditions=tuple(
            ConditionEvidence(type=item.type, status=item.status, reason=item.reason)
            for item in facts.conditions
        ),
        exited_by_itself=failure.worker_exited_by_itself,
    )


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


def _container(container: ContainerFacts) -> ContainerEvidence:
    return ContainerEvidence(
        name=container.name,
        is_init=container.before_worker,
        exit_code=container.exit_code,
        reason=container.reason,
        message=container.message,
    )
