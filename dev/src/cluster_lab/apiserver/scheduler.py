# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A scheduler: gives each Pending pod that has no node to a node that it fits, and spreads.

It knows no resources, no topology, no preemption: the lab's nodes are processes of one machine.

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from __future__ import annotations

import logging
from collections import Counter

from cluster_lab.apiserver.pods import TERMINAL
from cluster_lab.apiserver.registry import Registry
from cluster_lab.apiserver.resources import NODES, PODS, Manifest
from cluster_lab.apiserver.selectors import Requirement
from cluster_lab.apiserver.store import Record

_log = logging.getLogger(__name__)

NAME = "default-scheduler"


def _is_waiting(pod: Manifest) -> bool:
    spec, metadata = pod["spec"], pod["metadata"]
    return (
        not spec.get("nodeName")
        and spec["schedulerName"] == NAME
        and "deletionTimestamp" not in metadata
        and pod["status"]["phase"] not in TERMINAL
    )


class Scheduler:
    """Looks at all pods whenever a pod or node has changed: there are hundreds, not thousands."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    async def run(self) -> None:
        """Schedule until cancelled."""
        with self._store.followed(self._store.revision) as follower:
            while True:
                follower.take()
                self._place_all()
                await follower.wake.wait()

    def _place_all(self) -> None:
        pods = self._store.records(PODS)
        nodes = [record.obj for record in self._store.records(NODES)]
        load = Counter(
            pod.obj["spec"].get("nodeName") for pod in pods if pod.obj["status"]["phase"] not in TERMINAL
        )
        for pod in pods:
            if not _is_waiting(pod.obj):
                continue
            try:
                self._place(pod, nodes, load)
            except (KeyError, TypeError, AttributeError):
                # A real API server refuses such a pod; here it must not end the scheduling of the others.
                _log.exception(
                    "pod %s/%s cannot be scheduled: its affinity is malformed, or by label", *pod.key
                )

    def _place(self, pod: Record, nodes: list[Manifest], load: Counter[str]) -> None:
        ranks = {n["metadata"]["name"]: -_preference(pod.obj, n) for n in nodes if _fits(pod.obj, n)}
        if not ranks:
            self._report(pod, len(nodes))
            return
        best = min(ranks, key=lambda name: (ranks[name], load[name], name))
        self._registry.bind(*pod.key, {"target": {"kind": "Node", "name": best}})
        load[best] += 1

    def _report(self, pod: Record, nodes: int) -> None:
        message = f"0/{nodes} nodes are available."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        self._registry.set_pod_condition(pod, condition)


def _fits(pod: Manifest, node: Manifest) -> bool:
    conditions = node["status"].get("conditions", [])
    is_ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return is_ready and not node["spec"].get("unschedulable") and _selected(pod["spec"], node)


def _preference(pod: Manifest, node: Manifest) -> int:
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
    fields = {"metadata.name": node["metadata"]["name"]}
    found = [Requirement(e["key"], e["operator"], tuple(e["values"])) for e in term["matchFields"]]
    return all(requirement.matches(fields) for requirement in found)
