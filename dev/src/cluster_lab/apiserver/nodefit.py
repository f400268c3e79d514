# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Whether a pod may go to a node, and how much it would like to.

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from __future__ import annotations

from collections.abc import Iterable

from cluster_lab.apiserver.resources import Manifest
from cluster_lab.apiserver.selectors import Requirement


def reason_against(pod: Manifest, node: Manifest) -> str | None:
    """:returns: why the pod may not go there, in the words of kube-scheduler, or None if it may."""
    conditions = node["status"].get("conditions", [])
    if not any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
        return "node(s) were not ready"
    if node["spec"].get("unschedulable"):
        return "node(s) were unschedulable"
    if not _selected(pod["spec"], node):
        return "node(s) didn't match Pod's node affinity/selector"
    return None


def preference(pod: Manifest, node: Manifest) -> int:
    """:returns: the sum of the weights of the preferred node affinity terms that the node satisfies."""
    terms = _node_affinity(pod["spec"]).get("preferredDuringSchedulingIgnoredDuringExecution", [])
    return sum(term["weight"] for term in terms if _term_matches(term["preference"], node))


def _selected(spec: Manifest, node: Manifest) -> bool:
    labels = node["metadata"].get("labels", {})
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    required = _node_affinity(spec).get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_term_matches(t, node) for t in required["nodeSelectorTerms"])


def _node_affinity(spec: Manifest) -> Manifest:
    affinity: Manifest = spec.get("affinity", {}).get("nodeAffinity", {})
    return affinity


def _term_matches(term: Manifest, node: Manifest) -> bool:
    """All expressions of a term have to hold; a term without any selects nothing."""
    labels = node["metadata"].get("labels", {})
    fields = {"metadata.name": node["metadata"]["name"]}
    by_label, by_field = term.get("matchExpressions", []), term.get("matchFields", [])
    if not by_label and not by_field:
        return False
    return all(r.matches(labels) for r in _requirements(by_label)) and all(
        r.matches(fields) for r in _requirements(by_field)
    )


def _requirements(expressions: Iterable[Manifest]) -> list[Requirement]:
    return [Requirement(e["key"], e["operator"], tuple(e.get("values", ()))) for e in expressions]
