# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The API server as the benchmark itself talks to it: directly, many requests at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec

from benchmarks.pods import NAMESPACE, Json
from cluster_lab.client import JSON, STRATEGIC_MERGE, ApiError, KubeClient

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CONCURRENCY = 32
_WATCH_SECONDS = 3600
"""Longer than any measurement."""


class Api:
    """Requests about pods, counted. Used on the event loop of the client."""

    def __init__(self, client: KubeClient) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        """How many there were, by verb and subresource as in the API server's metrics."""
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._client = client

    async def get(self, path: str, **query: str) -> bytes:
        """Return what the API server answers."""
        if path == PODS:
            self.counts["LIST", ""] += 1
        return await self._client.send("GET", path, query=query)

    async def pages(self, limit: int = 500, **query: str) -> AsyncIterator[bytes]:
        """Yield the pages of the list of pods."""
        token = ""
        while True:
            page = await self.get(PODS, limit=str(limit), **query, **({"continue": token} if token else {}))
            yield page
            if not (token := msgspec.json.decode(page, type=_Page).metadata.continue_):
                return

    def watch(self, **query: str) -> AsyncIterator[bytes]:
        """Yield the lines of one watch of the pods until the server ends it."""
        return self._client.lines(PODS, {"timeoutSeconds": _WATCH_SECONDS, **query})

    async def create(self, pod: Json) -> bytes:
        """Create a pod and return it."""
        return await self._change("POST", PODS, "", pod)

    async def report(self, name: str, status: Json) -> None:
        """Say what has become of a pod, as a kubelet does."""
        await self._change("PATCH", f"{PODS}/{name}/status", "status", {"status": status})

    async def delete(self, name: str) -> None:
        """Delete a pod at once, if it is there."""
        try:
            await self._change("DELETE", f"{PODS}/{name}", "", {"gracePeriodSeconds": 0})
        except ApiError as error:
            if error.status != 404:
                raise

    async def _change(self, method: str, path: str, subresource: str, body: Json) -> bytes:
        kind = STRATEGIC_MERGE if method == "PATCH" else JSON
        async with self._slots:
            self.counts[method, subresource] += 1
            return await self._client.send(method, path, body=body, content_type=kind)


class _PageMetadata(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _PageMetadata


async def gather(coroutines: Iterable[Any]) -> list[Any]:
    """Run coroutines at the same time; the API's slots limit how many requests that means."""
    return list(await asyncio.gather(*coroutines))
