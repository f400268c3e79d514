# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The informer's store: the pods as they were last seen. It tells which changes matter."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from airflow.providers.cncf.kubernetes_resilience.pods.facts import LABELS, PodFacts
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodObservation

DERIVED_CONDITIONS = frozenset({"Ready", "ContainersReady", "Initialized", "PodReadyToStartContainers"})
"""Conditions that repeat the containers' states, some seconds later. That a pod is not ready
although its containers are is another matter: then its node is not heard of. A change of any other condition
matters, also of a custom one, because a policy may name it."""


class PodStore:
    """The pods of one watched namespace, by UID. A name may be used again, a UID is not."""

    def __init__(self) -> None:
        self._pods: dict[str, PodFacts] = {}

    @property
    def known(self) -> Mapping[str, PodFacts]:
        """The last readings, by UID."""
        return self._pods

    def replace(self, pods: Iterable[PodFacts]) -> list[PodObservation]:
        """Take over a complete list. Return an observation of each pod that is new, changed or gone."""
        present = {facts.ref.uid: facts for facts in pods}
        gone = [known for uid, known in self._pods.items() if uid not in present]
        observations = [self.remove(facts) for facts in gone]
        changed = (self.update(facts) for facts in present.values())
        return observations + [observation for observation in changed if observation is not None]

    def update(self, facts: PodFacts) -> PodObservation | None:
        """Take over one reading. Return an observation; None if nothing that matters has changed."""
        known = self._pods.get(facts.ref.uid)
        self._pods[facts.ref.uid] = facts
        # The known signature is computed again: to store it for each pod would take too much memory.
        is_same = known is not None and _signature(known) == _signature(facts)
        return None if is_same else PodObservation(facts)

    def remove(self, facts: PodFacts) -> PodObservation:
        """Remove a pod."""
        self._pods.pop(facts.ref.uid, None)
        return PodObservation(facts, gone=True)


def _signature(facts: PodFacts) -> Hashable:
    # Without messages and times, which the kubelet changes with every attempt to pull an image.
    return (
        facts.phase,
        facts.reason,
        facts.node,
        facts.deletion_timestamp,
        facts.is_on_silent_node,
        tuple(facts.labels.get(label) for label in LABELS),
        tuple((item.name, item.state, item.reason, item.exit_code) for item in facts.containers),
        tuple(
            (item.type, item.status, item.reason)
            for item in facts.conditions
            if item.type not in DERIVED_CONDITIONS
        ),
    )
