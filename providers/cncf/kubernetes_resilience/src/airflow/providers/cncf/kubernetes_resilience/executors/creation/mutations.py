# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Applies the changes that retry policies have decided on to the launches of a try, nodes included.

.. seealso::
    https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
    https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#NodeAffinity
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from kubernetes.client import (
    V1Affinity,
    V1Container,
    V1NodeAffinity,
    V1NodeSelector,
    V1NodeSelectorRequirement,
    V1NodeSelectorTerm,
    V1Pod,
    V1PreferredSchedulingTerm,
    V1Toleration,
)
from kubernetes.utils.quantity import parse_quantity

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.pods import NODE_GONE
from airflow_resilience.context import MetadataKey
from airflow_resilience.decision import AvoidNode
from airflow_resilience.ledger_entries import LedgerEntry
from airflow_resilience.mutation import MemoryIncrease, Mutation

_MEBIBYTE: Final = 2**20

NODE_NAME = "metadata.name"
"""The field with the node's name. The label ``kubernetes.io/hostname`` is often another word."""

HIGHEST_WEIGHT = 100
"""Of a preference."""


def mutate(pod: V1Pod, worker: V1Container, mutations: Iterable[Mutation]) -> None:
    """
    Change a pod.

    :param pod: is changed, as its template and its task have it
    :param worker: its container that runs the task
    :param mutations: changes that were decided after each earlier launch, oldest first
    :raises ValueError: if an amount of memory is no quantity of Kubernetes
    """
    spec = pod.spec
    # A pod may limit the memory of all its containers together, which bounds an increase.
    whole = getattr(spec, "resources", None)
    most = (whole.limits or {}).get("memory") if whole else None
    for mutation in mutations:
        if mutation.memory:
            _increase(worker, mutation.memory, most)
        if mutation.node_selector:
            spec.node_selector = {**(spec.node_selector or {}), **mutation.node_selector}
        own = spec.tolerations or []
        new = [item for item in map(_toleration, mutation.tolerations) if item not in own]
        spec.tolerations = [*own, *new] or None
        if mutation.priority_class_name:
            spec.priority_class_name = mutation.priority_class_name
            # The API server sets them by the class, and refuses others.
            spec.priority = spec.preemption_policy = None


def _increase(worker: V1Container, memory: MemoryIncrease, most: str | None) -> None:
    """
    Raise the memory request and the memory limit of a container, as far as the container states them.

    :param most: what the containers of the pod may have together; None if that is not stated
    """
    if worker.resources is None:
        return
    highest = min((memory.limit, most or memory.limit), key=parse_quantity)
    limit = parse_quantity(highest)
    for amounts in (worker.resources.requests, worker.resources.limits):
        # An empty field of a template is None here, which the API server takes for nothing stated.
        stated = parse_quantity((amounts or {}).get("memory") or limit)
        if stated >= limit:
            continue
        raised = min(limit, stated * Decimal(memory.factor))
        mebibytes = math.ceil(raised / _MEBIBYTE)
        amounts["memory"] = f"{mebibytes}Mi" if mebibytes * _MEBIBYTE < limit else highest


def _toleration(stated: Mapping[str, Any]) -> V1Toleration:
    return V1Toleration(
        key=stated.get("key"),
        operator=stated.get("operator"),
        value=stated.get("value"),
        effect=stated.get("effect"),
        toleration_seconds=stated.get("tolerationSeconds"),
    )


def go_elsewhere(pod: V1Pod, last: LedgerEntry | None, suspects: Sequence[str]) -> None:
    """
    Keep a pod away from suspect nodes, and more so from the node on which the previous pod failed.

    The previous node counts only if so decided, and if the node exists.
    """
    if last and last.context.metadata.get(MetadataKey.CAUSE) != NODE_GONE:
        node = last.context.metadata.get(MetadataKey.NODE)
        if node and last.decision.avoid_node is AvoidNode.REQUIRE:
            _require_others(pod, [node])
        elif node and last.decision.avoid_node is AvoidNode.PREFER:
            _prefer_others(pod, [node])
            # Two preferences against one node would weigh more than what the pod prefers itself.
            suspects = [suspect for suspect in suspects if suspect != node]
    _prefer_others(pod, suspects)


def _prefer_others(pod: V1Pod, nodes: Sequence[str]) -> None:
    """
    Have a pod go to a node other than these, if one suits it.

    :param pod: is changed; what it prefers already stays, and its node affinities weigh more
    :param nodes: their names
    """
    if not nodes:
        return
    affinity = _node_affinity(pod)
    preferred = affinity.preferred_during_scheduling_ignored_during_execution or []
    # The pod's own preferences, on-demand nodes for example, take precedence over another node. Pod
    # affinities are ignored: kube-scheduler scores them apart, and no weight compares the two.
    weight = min([HIGHEST_WEIGHT, *(max(1, term.weight - 1) for term in preferred)])
    # A single preference has all names: with several, a node in one preference would satisfy the others.
    others = V1PreferredSchedulingTerm(weight=weight, preference=V1NodeSelectorTerm(match_fields=_not(nodes)))
    affinity.preferred_during_scheduling_ignored_during_execution = [*preferred, others]


def _require_others(pod: V1Pod, nodes: Sequence[str]) -> None:
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
