# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The API server as the benchmark itself talks to it: directly, many requests at once."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

from benchmarks.pods import NAMESPACE, Json

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CONCURRENCY = 32
MERGE = "application/strategic-merge-patch+json"
_FOREVER = aiohttp.ClientTimeout(total=None)
_CHUNK = 256 * 1024


class Api:
    """
    Requests, counted. Made and used on one event loop.

    :param kubeconfig: with a token
    """

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.counts: Counter[tuple[str, str]] = Counter()
        """How many there were, by verb and subresource as in the API server's metrics."""
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._session = aiohttp.ClientSession(
            base_url=cluster["server"],
            headers={"Authorization": f"Bearer {user['token']}"},
            connector=aiohttp.TCPConnector(ssl=_tls(cluster), limit=CONCURRENCY + 4),
            timeout=_FOREVER,
            read_bufsize=_CHUNK,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def get(self, path: str, **query: str) -> bytes:
        """Return what the API server answers."""
        if path == PODS:
            self.counts["LIST", ""] += 1
        async with self._session.get(path, params=query) as answer:
            answer.raise_for_status()
            return await answer.read()

    async def pages(self, limit: int = 500, **query: str) -> AsyncIterator[bytes]:
        """Yield the pages of the list of pods."""
        token = ""
        while True:
            page = await self.get(PODS, limit=str(limit), **query, **({"continue": token} if token else {}))
            yield page
            if not (token := msgspec.json.decode(page, type=_Page).metadata.continue_):
                return

    async def watch(self, **query: str) -> AsyncIterator[bytes]:
        """Yield the lines of one watch of the pods until the server ends it."""
        rest = b""
        async with self._session.get(PODS, params={"watch": "true", **query}) as answer:
            answer.raise_for_status()
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line

    async def create(self, pod: Json) -> bytes:
        """Create a pod and return it."""
        return await self._change("POST", PODS, "", pod)

    async def report(self, name: str, status: Json) -> None:
        """Say what has become of a pod, as a kubelet does."""
        await self._change("PATCH", f"{PODS}/{name}/status", "status", {"status": status})

    async def delete(self, name: str) -> None:
        """Delete a pod at once, if it is there."""
        await self._change("DELETE", f"{PODS}/{name}", "", {"gracePeriodSeconds": 0}, allowed=404)

    async def _change(
        self, method: str, path: str, subresource: str, body: Mapping[str, Any], allowed: int = 200
    ) -> bytes:
        kind = MERGE if method == "PATCH" else "application/json"
        async with self._slots:
            self.counts[method, subresource] += 1
            async with self._session.request(
                method, path, data=msgspec.json.encode(body), headers={"Content-Type": kind}
            ) as answer:
                data = await answer.read()
                if answer.status >= 300 and answer.status != allowed:
                    raise RuntimeError(f"{method} {path}: HTTP {answer.status}: {data[:300]!r}")
                return data


class _PageMetadata(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _PageMetadata


def _tls(cluster: Mapping[str, str]) -> ssl.SSLContext | bool:
    data = cluster.get("certificate-authority-data")
    return ssl.create_default_context(cadata=base64.b64decode(data).decode()) if data else True


async def gather(coroutines: Iterable[Any]) -> list[Any]:
    """Run coroutines at the same time; the API's slots limit how many requests that means."""
    return list(await asyncio.gather(*coroutines))
