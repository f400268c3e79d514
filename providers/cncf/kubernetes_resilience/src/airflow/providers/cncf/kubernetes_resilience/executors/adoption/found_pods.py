# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a look for the pods of orphaned task instances has found."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.plan import AdoptionPlan
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.orphan import Orphan
from airflow.providers.cncf.kubernetes_resilience.executors.masking import mask_secrets
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts


@dataclass(frozen=True, slots=True)
class FoundPods:
    """The pods of orphaned task instances, or of some of them."""

    orphans: Mapping[TaskInstanceKey, Orphan]
    plan: AdoptionPlan
    is_partial: bool = False
    """Whether a namespace could not be listed, in which a task instance without a pod may have one."""
    is_late: bool = False
    """Whether the first look has failed: the API server was away, which may have kept pods from starting."""

    def answered(self, waiting: Mapping[TaskInstanceKey, Orphan]) -> dict[TaskInstanceKey, Orphan]:
        """Return the orphans that still wait, without those that may have a pod which is not listed."""
        return {
            key: orphan
            for key, orphan in self.orphans.items()
            if waiting.get(key) is orphan and (key in self.plan.current or not self.is_partial)
        }

    def lost(self) -> list[Orphan]:
        """Return the orphans that were running, and of which no pod can be one in which they run."""
        return [
            orphan
            for key, orphan in self.answered(self.orphans).items()
            if key not in self.plan.current
            if orphan.state != TaskInstanceState.QUEUED
            if not {None, orphan.pod_id} & self.plan.odd
        ]

    def superseded_of(self, keys: Container[TaskInstanceKey]) -> list[tuple[TaskInstanceKey, PodFacts]]:
        """Return the pods that are not the current launches of these task instances."""
        return [(key, pod) for key, pod in self.plan.superseded if key in keys]


def launch_of(orphan: Orphan, pod: PodFacts, *, has_siblings: bool) -> Launch:
    """
    Return what a pod that was found is the launch of.

    :param has_siblings: whether the task instance may have other pods too
    """
    return Launch(
        key=orphan.key,
        ti_id=orphan.pod_id,
        namespace=pod.ref.namespace,
        name=pod.ref.name,
        number=pod.launch_number,
        ref=pod.ref,
        facts=mask_secrets(pod),
        has_siblings=has_siblings,
    )
