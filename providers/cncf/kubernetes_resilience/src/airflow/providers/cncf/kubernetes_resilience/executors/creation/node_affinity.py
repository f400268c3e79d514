# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Keeping a pod away from nodes on which others have failed.

.. seealso::
    https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#NodeAffinity
"""

from __future__ import annotations

from collections.abc import Sequence

from kubernetes.client import (
    V1Affinity,
    V1NodeAffinity,
    V1NodeSelector,
    V1NodeSelectorRequirement,
    V1NodeSelectorTerm,
    V1Pod,
    V1PreferredSchedulingTerm,
)

NODE_NAME = "metadata.name"
"""The field with the node's name. The label ``kubernetes.io/hostname`` is often another word."""

HIGHEST_WEIGHT = 100
"""Of a preference."""


def prefer_others(pod: V1Pod, nodes: Sequence[str]) -> None:
    """
    Have a pod go to a node other than these, if one suits it.

    :param pod: is changed; what it prefers already stays, and its node affinities weigh more
    :param nodes: their names
    """
    if not nodes:
        return
    affinity = _node_affinity(pod)
    preferred = affinity.preferred_during_scheduling_ignored_during_execution or []
    # What the pod prefers itself, on-demand nodes for example, is not given up for another node. Its pod
    # affinities are not looked at: kube-scheduler scores them apart, and no weight compares the two.
    weight = min([HIGHEST_WEIGHT, *(max(1, term.weight - 1) for term in preferred)])
    # One preference with all names: of several, a node that is in one of them would satisfy the others.
    others = V1PreferredSchedulingTerm(weight=weight, preference=V1NodeSelectorTerm(match_fields=_not(nodes)))
    affinity.preferred_during_scheduling_ignored_during_execution = [*preferred, others]


def require_others(pod: V1Pod, nodes: Sequence[str]) -> None:
    """
    Have a pod wait rather than go to one of these nodes.

    Its required terms are alternatives, so that the requirement goes into each of them; but not into an empty
    one, which selects no node as long as it is empty.

    :param pod: is changed; what it says about affinity stays
    :param nodes: their names
    """
    affinity = _node_affinity(pod)
    required = affinity.required_during_scheduling_ignored_during_execution or V1NodeSelector(
        node_selector_terms=[]
    )
    affinity.required_during_scheduling_ignored_during_execution = required
    if not required.node_selector_terms:
        required.node_selector_terms = [V1NodeSelectorTerm(match_fields=_not(nodes))]
        return
    for term in required.node_selector_terms:
        if term.match_expressions or term.match_fields:
            term.match_fields = [*(term.match_fields or ()), *_not(nodes)]


def _not(nodes: Sequence[str]) -> list[V1NodeSelectorRequirement]:
    """Return the requirements for other nodes: for this field, each takes exactly one value."""
    return [V1NodeSelectorRequirement(key=NODE_NAME, operator="NotIn", values=[node]) for node in nodes]


def _node_affinity(pod: V1Pod) -> V1NodeAffinity:
    affinity = pod.spec.affinity = pod.spec.affinity or V1Affinity()
    affinity.node_affinity = affinity.node_affinity or V1NodeAffinity()
    return affinity.node_affinity
