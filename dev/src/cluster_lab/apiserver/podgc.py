# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The pod garbage collector of kube-controller-manager: removes pods that no kubelet will ever finish.

https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-garbage-collection
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from cluster_lab.apiserver.deletion import DeleteOptions
from cluster_lab.apiserver.nodefit import has_taint, is_ready
from cluster_lab.apiserver.pods import TERMINAL
from cluster_lab.apiserver.registry import Registry
from cluster_lab.apiserver.resources import NODES, PODS, Manifest
from cluster_lab.apiserver.store import Record

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_NODE_GONE: Manifest = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByPodGC",
    "message": "PodGC: node no longer exists",
}


@dataclass(frozen=True)
class PodGcSettings:
    """How fast it is. The real one looks every 20 seconds and waits 40."""

    interval: float = 0.5
    """Seconds between two looks."""
    quarantine: float = 1.0
    """Seconds that a node has to be missing before its pods are removed."""


class PodGc:
    """The collector.

    :param clock: monotonic seconds.
    """

    def __init__(self, registry: Registry, settings: PodGcSettings, clock: Callable[[], float]) -> None:
        self._registry = registry
        self._store = registry.store
        self._settings = settings
        self._clock = clock
        self._missing_since: dict[str, float] = {}

    async def run(self) -> None:
        """Collect until cancelled."""
        while True:
            await asyncio.sleep(self._settings.interval)
            self.collect()

    def collect(self) -> None:
        """Look once."""
        pods = self._store.records(PODS)
        nodes = {record.key[1]: record.obj for record in self._store.records(NODES)}
        lost = self._lost_nodes({_node(pod) for pod in pods} - {""} - nodes.keys())
        for pod in pods:
            if _node(pod) in lost:
                self._remove(pod, _NODE_GONE)
            elif "deletionTimestamp" in pod.obj["metadata"] and self._is_abandoned(pod, nodes):
                self._remove(pod, None)

    def _lost_nodes(self, missing: set[str]) -> set[str]:
        now = self._clock()
        self._missing_since = {node: self._missing_since.get(node, now) for node in missing}
        return {n for n, since in self._missing_since.items() if now - since >= self._settings.quarantine}

    @staticmethod
    def _is_abandoned(pod: Record, nodes: dict[str, Manifest]) -> bool:
        if not _node(pod):
            return True
        node = nodes.get(_node(pod))
        return node is not None and not is_ready(node) and has_taint(node, OUT_OF_SERVICE)

    def _remove(self, pod: Record, condition: Manifest | None) -> None:
        if pod.obj["status"]["phase"] not in TERMINAL:
            pod = self._registry.fail_pod(pod, condition)
        namespace, name = pod.key
        self._registry.delete(PODS, namespace, name, DeleteOptions(0, pod.obj["metadata"]["uid"]))


def _node(pod: Record) -> str:
    return str(pod.obj["spec"].get("nodeName", ""))
