# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a look for the pods of orphaned task instances has found."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from airflow.models.taskinstancekey import TaskInstanceKey

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.plan import AdoptionPlan
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.orphan import Orphan
from airflow.providers.cncf.kubernetes_resilience.executors.masking import mask_secrets
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef


@dataclass(frozen=True, slots=True)
class FoundPods:
    """The pods of orphaned task instances, or of some of them."""

    orphans: Mapping[TaskInstanceKey, Orphan]
    plan: AdoptionPlan
    is_partial: bool = False
    """Whether a namespace could not be listed, in which a task instance without a pod may have one."""
    is_late: bool = False
    """Whether the first look has failed: the API server was away, which may have kept pods from starting."""
    listed: Mapping[TaskInstanceKey, PodRef] = field(default_factory=dict)
    """The pods that were the current launches when they were listed. These are relabelled."""
    relabelled: Mapping[TaskInstanceKey, bool] = field(default_factory=dict)
    """Whether the current launch carries this scheduler's label now; if not, it is gone, or could not be
    changed. Without those that were not tried yet."""

    def is_labelled(self, key: TaskInstanceKey, pod: PodFacts) -> bool:
        """Whether a pod carries this scheduler's label now."""
        return pod.ref == self.listed.get(key) and self.relabelled.get(key, False)

    def answered(self, waiting: Mapping[TaskInstanceKey, Orphan]) -> dict[TaskInstanceKey, Orphan]:
        """Return the orphans that still wait, without those whose pod is not relabelled, or not listed."""
        unclear = self.listed.keys() - self.relabelled.keys()
        if self.is_partial:
            unclear |= self.orphans.keys() - self.plan.current.keys()
        return {
            key: orphan
            for key, orphan in self.orphans.items()
            if waiting.get(key) is orphan and key not in unclear
        }

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
        adopted_from=orphan.job_id,
        has_siblings=has_siblings,
    )
