# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Keeping a pod away from the node on which the one before it failed.

Pure: a manifest goes in, another comes out.

.. seealso::
    https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#NodeAffinity
"""

from __future__ import annotations

import copy
from typing import Any

from airflow_resilience.decision import AvoidNode

NODE_NAME = "metadata.name"
"""The field with the node's name. The label ``kubernetes.io/hostname`` is often another word."""

HIGHEST_WEIGHT = 100
"""Of a preference."""


def avoid(manifest: dict[str, Any], node: str | None, how: AvoidNode) -> dict[str, Any]:
    """
    Return a pod manifest whose node affinity also keeps the pod away from a node.

    What the manifest says about affinity stays. Its required terms are alternatives, so that the requirement
    goes into each of them; but not into an empty one, which selects no node as long as it is empty.

    :param manifest: a ``v1.Pod`` as it is sent to the API server; it is not changed
    :param node: name of the node; None if the pod before never had one
    """
    if node is None or how is AvoidNode.NONE:
        return manifest
    manifest = copy.deepcopy(manifest)
    affinity = _member(_member(manifest["spec"], "affinity"), "nodeAffinity")
    elsewhere = {"key": NODE_NAME, "operator": "NotIn", "values": [node]}
    if how is AvoidNode.PREFER:
        preferred = affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", [])
        # What the manifest prefers itself, on-demand nodes for example, is not given up for another node.
        weight = min([HIGHEST_WEIGHT, *(max(1, term["weight"] - 1) for term in preferred)])
        preferred.append({"weight": weight, "preference": {"matchFields": [elsewhere]}})
    else:
        required = _member(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
        terms = required.setdefault("nodeSelectorTerms", [])
        if not terms:
            terms.append({"matchFields": []})
        for term in filter(None, terms):
            term.setdefault("matchFields", []).append(elsewhere)
    return manifest


def _member(parent: dict[str, Any], name: str) -> dict[str, Any]:
    member: dict[str, Any] = parent.setdefault(name, {})
    return member
