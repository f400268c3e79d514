# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A kubelet: watches the pods that are bound to its node and runs each of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import aiohttp

from cluster_lab.client import ApiError, JsonObject, KubeClient
from cluster_lab.kubelet.logs import LogDirectory
from cluster_lab.kubelet.node import Node
from cluster_lab.kubelet.pod import Admission, PodRun

log = logging.getLogger(__name__)

RECONNECT_SECONDS = 0.5
_PODS = "/api/v1/pods"


@dataclass(kw_only=True)
class Kubelet:
    """One simulated node at work."""

    node: Node
    client: KubeClient
    admit: Callable[[JsonObject], Admission]
    """Called once for each pod, with its manifest."""
    env: Mapping[str, str]
    """Environment of every worker process, before the container's own."""
    logs: LogDirectory
    _pods: dict[str, PodRun] = field(init=False, default_factory=dict)
    _runs: set[asyncio.Task[None]] = field(init=False, default_factory=set)

    async def run(self) -> None:
        """Work until cancelled; then the processes of all pods are killed."""
        heartbeats = asyncio.create_task(self.node.heartbeats())
        try:
            while True:
                await self._list_and_watch()
        finally:
            tasks = (heartbeats, *self._runs)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _list_and_watch(self) -> None:
        try:
            selector = {"fieldSelector": f"spec.nodeName={self.node.name}"}
            listed = await self.client.request("GET", _PODS, query=selector)
            pods = {item["metadata"]["uid"]: item for item in listed["items"]}
            for uid in self._pods.keys() - pods.keys():
                self._gone(uid)
            for pod in pods.values():
                self._seen(pod)
            start = {"resourceVersion": listed["metadata"]["resourceVersion"]}
            async for event in self.client.watch(_PODS, selector | start):
                self._handle(event)
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            log.warning("Node %s lost its watch: %s", self.node.name, error)
            await asyncio.sleep(RECONNECT_SECONDS)

    def _handle(self, event: JsonObject) -> None:
        pod = event["object"]
        if event["type"] in ("ADDED", "MODIFIED"):
            self._seen(pod)
        elif event["type"] == "DELETED":
            if known := self._pods.get(pod["metadata"]["uid"]):
                known.update(pod)
            self._gone(pod["metadata"]["uid"])
        elif event["type"] == "ERROR":
            # 410: the version is too old. The list that follows repairs it, as it does any other error.
            raise ApiError(pod.get("code", 0), str(pod))

    def _seen(self, pod: JsonObject) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._pods:
            if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                # Of an earlier life of this node; the API server deletes such a pod without the kubelet.
                return
            self._begin(pod)
        self._pods[uid].update(pod)

    def _begin(self, pod: JsonObject) -> None:
        run = PodRun(pod, self)
        self._pods[run.uid] = run
        task = asyncio.create_task(self._live(run))
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)

    async def _live(self, run: PodRun) -> None:
        try:
            await run.run()
        except (ApiError, aiohttp.ClientError, TimeoutError):
            # One pod's trouble must not end the node.
            log.exception("Node %s could not finish pod %s", self.node.name, run)

    def _gone(self, uid: str) -> None:
        if run := self._pods.pop(uid, None):
            run.gone()
