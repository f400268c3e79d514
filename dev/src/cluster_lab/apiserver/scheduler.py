# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A scheduler: gives each Pending pod that has no node to a node that it fits, and spreads.

It knows no resources, no topology, no preemption: the lab's nodes are processes of one machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from cluster_lab.apiserver.nodefit import preference, reason_against
from cluster_lab.apiserver.pods import TERMINAL
from cluster_lab.apiserver.registry import Registry
from cluster_lab.apiserver.resources import NODES, PODS, Manifest
from cluster_lab.apiserver.store import Change, Key, Record

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
    """Follows pods and nodes; each pass costs as much as what changed, not as much as the cluster has."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._wake = asyncio.Event()
        self._pods = self._store.logs[PODS].follow(self._store.revision, self._wake)
        self._nodes = self._store.logs[NODES].follow(self._store.revision, self._wake)
        self._load: Counter[str] = Counter()
        """Pods per node that have not ended, for spreading."""
        self._unplaced: dict[Key, None] = {}
        """Pods without a node, oldest first."""

    async def run(self) -> None:
        """Schedule until cancelled.

        :raises LogOverrunError: it fell behind by more changes than the store keeps.
        """
        for record in self._store.records(PODS):
            self._note(record, +1)
        self._place(list(self._unplaced))
        try:
            while True:
                await self._wake.wait()
                fresh = self._catch_up()
                self._place(list(self._unplaced) if self._nodes.take() else fresh)
        finally:
            self._pods.close()
            self._nodes.close()

    def _catch_up(self) -> list[Key]:
        """:returns: the pods without a node that have been created since the last time."""
        return [key for change in self._pods.take() if (key := self._apply(change))]

    def _apply(self, change: Change) -> Key | None:
        """:returns: the pod's key if the pod is new to the scheduler."""
        if change.previous is not None:
            self._note(change.previous, -1)
        if change.type != "DELETED":
            self._note(change.record, +1)
        key = change.record.key
        return key if change.previous is None and key in self._unplaced else None

    def _note(self, record: Record, sign: int) -> None:
        spec, phase = record.obj["spec"], record.obj["status"]["phase"]
        if spec.get("nodeName"):
            self._load[spec["nodeName"]] += 0 if phase in TERMINAL else sign
        elif sign < 0:
            self._unplaced.pop(record.key, None)
        elif _is_waiting(record.obj):
            self._unplaced[record.key] = None

    def _place(self, keys: list[Key]) -> None:
        if not keys:
            return
        nodes = [record.obj for record in self._store.records(NODES)]
        for key in keys:
            pod = self._store.get(PODS, key)
            if pod is None or not _is_waiting(pod.obj):
                continue
            try:
                self._place_one(pod, nodes)
            except (KeyError, TypeError, AttributeError):
                # A real API server refuses such a pod; here it must not end the scheduling of the others.
                _log.exception("pod %s/%s cannot be scheduled: its affinity is malformed", *key)

    def _place_one(self, pod: Record, nodes: list[Manifest]) -> None:
        objections = {node["metadata"]["name"]: reason_against(pod.obj, node) for node in nodes}
        fitting = [node for node in nodes if objections[node["metadata"]["name"]] is None]
        if not fitting:
            self._report(pod, Counter(why for why in objections.values() if why))
            return
        best = min(fitting, key=lambda node: self._rank(pod.obj, node))
        target = {"kind": "Node", "name": best["metadata"]["name"]}
        self._registry.bind(*pod.key, {"target": target})
        # The load has to be known before the next pod is placed, or one pass gives all pods to one node.
        self._catch_up()

    def _rank(self, pod: Manifest, node: Manifest) -> tuple[int, int, str]:
        name = node["metadata"]["name"]
        return -preference(pod, node), self._load[name], name

    def _report(self, pod: Record, reasons: Counter[str]) -> None:
        total = sum(reasons.values())
        listed = ", ".join(f"{count} {why}" for why, count in sorted(reasons.items()))
        none_fits = f"0/{total} nodes are available: {listed}."
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": none_fits if total else "no nodes available to schedule pods",
        }
        self._registry.set_pod_condition(pod, condition)
