# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The Node object of a simulated node: registered, kept alive by heartbeats, removed.

.. seealso:: https://kubernetes.io/docs/reference/node/node-status/
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from cluster_lab.apiserver.patches import STRATEGIC_MERGE
from cluster_lab.client import ApiError, JsonObject, KubeClient
from cluster_lab.kubelet.status import timestamp

HEARTBEAT_SECONDS = 10.0
"""The node lifecycle controller gives a node up after 40 s without one."""

_CAPACITY = {"cpu": "32", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}


class Node:
    """One node's entry in the API."""

    def __init__(self, client: KubeClient, name: str, *, address: str, kubelet_port: int) -> None:
        self.name = name
        self.address = address
        self._client = client
        self._port = kubelet_port
        self._registered = False
        self._returning: asyncio.Task[None] | None = None

    async def register(self) -> None:
        """Create the Node object, or take over the one that is there, and report it ready."""
        labels = {
            # Not its name, as on machines that have a domain.
            "kubernetes.io/hostname": f"{self.name}.lab",
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        }
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {},
            "status": self._status(),
        }
        try:
            await self._client.request("POST", "/api/v1/nodes", body=body)
        except ApiError as error:
            if error.status != 409:
                raise
        self._registered = True
        await self._report()

    async def remove(self) -> None:
        """Delete the Node object."""
        if self._returning is not None:
            await self._returning
        self._registered = False
        with contextlib.suppress(ApiError):
            await self._client.request("DELETE", f"/api/v1/nodes/{self.name}")

    @contextlib.asynccontextmanager
    async def removed(self) -> AsyncIterator[None]:
        """Take the Node object away for a while."""
        await self.remove()
        try:
            yield
        finally:
            # Shielded: the end of the pod that this is done for must not leave the node unregistered.
            self._returning = asyncio.create_task(self.register())
            await asyncio.shield(self._returning)

    async def heartbeats(self) -> None:
        """Report the node as ready, for ever."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            if self._registered:
                await self._report()

    async def _report(self) -> None:
        path = f"/api/v1/nodes/{self.name}/status"
        # 404: the object has just been removed.
        with contextlib.suppress(ApiError):
            await self._client.request(
                "PATCH", path, body={"status": self._status()}, content_type=STRATEGIC_MERGE
            )

    def _status(self) -> JsonObject:
        now = timestamp()
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "simulated node",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        return {
            "capacity": _CAPACITY,
            "allocatable": _CAPACITY,
            "conditions": [ready],
            "addresses": [
                {"type": "InternalIP", "address": self.address},
                {"type": "Hostname", "address": self.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "nodeInfo": {"kubeletVersion": "v1.33.0-lab", "osImage": "cluster lab"},
        }
