# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The cluster under load: pods are made, reported on, observed and removed, from a thread of its own."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from anyio.from_thread import BlockingPortal

from cluster_lab.apiserver.patches import STRATEGIC_MERGE
from cluster_lab.client import ApiError, JsonObject, KubeClient
from testbed.cluster import PODS, Cluster

CONCURRENCY = 32
"""Requests at the same time."""
PAGE_SIZE = 500
"""Pods to a page, as many as our executor asks for."""
_REQUESTS = re.compile(r'^apiserver_request_total\{(?:.*,)?resource="pods".*\} (\S+)$', re.MULTILINE)


@dataclass(slots=True)
class Sighting:
    """A pod, and when something was seen of it; seconds since the epoch."""

    name: str
    map_index: int
    created: float
    failed: float | None = None
    gone: float | None = None


@dataclass
class Observer:
    """The eyes of the benchmark, a watch of its own. Filled on the event loop, read from any thread."""

    pods: dict[str, Sighting] = field(default_factory=dict)
    """Sightings by UID, in the order of creation."""

    def take(self, kind: str, pod: JsonObject) -> None:
        """Note an event of the watch."""
        now, metadata = time.time(), pod["metadata"]
        seen = self.pods.get(metadata["uid"])
        if seen is None:
            index = int(metadata["annotations"]["map_index"])
            seen = self.pods[metadata["uid"]] = Sighting(metadata["name"], index, now)
        if kind == "DELETED":
            seen.gone = now
        elif pod["status"]["phase"] == "Failed" and seen.failed is None:
            seen.failed = now

    def alive(self) -> list[Sighting]:
        """Return the pods that are there and have not failed."""
        return [pod for pod in tuple(self.pods.values()) if pod.gone is None and pod.failed is None]

    def gone(self) -> int:
        """Return how many pods have been deleted."""
        return sum(pod.gone is not None for pod in tuple(self.pods.values()))

    def replaced(self) -> list[tuple[Sighting, Sighting]]:
        """Return the first pod of each task, and the second."""
        by_task: dict[int, list[Sighting]] = defaultdict(list)
        for pod in tuple(self.pods.values()):
            by_task[pod.map_index].append(pod)
        return [(first, second) for first, second, *_ in by_task.values()]


class CrowdedCluster(Cluster):
    """What the benchmarks do to many pods at once, and see of them."""

    def __init__(self, portal: BlockingPortal, client: KubeClient) -> None:
        super().__init__(portal, client)
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._sent = 0

    def create(self, pods: Iterable[JsonObject]) -> list[str]:
        """Create pods and return their UIDs."""
        answers = self._all(self._change("POST", PODS, body=pod) for pod in pods)
        return [msgspec.json.decode(answer)["metadata"]["uid"] for answer in answers]

    def report(self, names: Iterable[str], status: JsonObject) -> None:
        """Have a kubelet say the same of pods, as fast as the API server takes it."""
        options = {"body": {"status": status}, "content_type": STRATEGIC_MERGE}
        self._all(self._change("PATCH", f"{PODS}/{name}/status", **options) for name in names)

    def clear(self) -> None:
        """Delete all pods at once."""
        self._all(map(self._delete, self.names()))

    def raw_rate(self) -> float:
        """
        Read and decode the list of all pods, as our executor does, with no logic at all.

        :return: pods per second, the best of three since the API server has just been busy
        """
        return max(self._wait_for(self._read_all()) for _ in range(3))

    def requests(self) -> float | None:
        """Return how many requests about pods others have made; None: the API server does not tell."""
        try:
            metrics = self._wait_for(self._client.send("GET", "/metrics")).decode()
        except ApiError:
            return None
        return sum(map(float, _REQUESTS.findall(metrics))) - self._sent

    @contextmanager
    def observed(self) -> Iterator[Observer]:
        """Watch the pods for as long as the block lasts."""
        observer = Observer()
        watching = self._portal.start_task_soon(self._watch, observer, self.version())
        try:
            yield observer
        finally:
            watching.cancel()

    async def _watch(self, observer: Observer, version: str) -> None:
        # Longer than any measurement.
        query = {"timeoutSeconds": "3600", "allowWatchBookmarks": "true", "resourceVersion": version}
        async for event in self._client.watch(PODS, query):
            if event["type"] != "BOOKMARK":
                observer.take(event["type"], event["object"])

    async def _read_all(self) -> float:
        began, pods, token = time.perf_counter(), 0, ""
        while pods == 0 or token:
            page = await self._client.send("GET", PODS, query={"limit": PAGE_SIZE, "continue": token})
            found = msgspec.json.decode(page)
            pods += len(found["items"])
            token = found["metadata"].get("continue", "")
        return pods / (time.perf_counter() - began)

    async def _delete(self, name: str) -> None:
        async with self._slots:
            await self._delete_if_there(name, {"gracePeriodSeconds": 0})

    async def _change(self, method: str, path: str, **options: Any) -> bytes:
        async with self._slots:
            self._sent += 1
            return await self._client.send(method, path, **options)

    def _all(self, coroutines: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
        async def gather() -> list[Any]:
            return list(await asyncio.gather(*coroutines))

        return self._wait_for(gather())
