# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What is seen of the pods, by whom and when: the eyes of the benchmark, a watch of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import msgspec

from benchmarks.api import PODS, Api


class _Metadata(msgspec.Struct):
    name: str = ""
    uid: str = ""
    annotations: dict[str, str] = {}
    resourceVersion: str = ""  # noqa: N815 - the field of the API


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: str
    object: _Pod


class _List(msgspec.Struct):
    metadata: _Metadata


_event = msgspec.json.Decoder(_Event).decode
_list = msgspec.json.Decoder(_List).decode


@dataclass(slots=True)
class Sighting:
    """A pod, and when something was seen of it; seconds since the epoch."""

    name: str
    uid: str
    map_index: int
    created: float
    failed: float | None = None
    gone: float | None = None


@dataclass
class Observer:
    """Watches all pods. Filled on the event loop; to be read from any thread."""

    pods: dict[str, Sighting] = field(default_factory=dict)
    """By UID, in the order in which they came into being."""

    async def start(self, api: Api) -> str:
        """Return the version of the cluster's state now, for :meth:`run`."""
        return _list(await api.get(PODS, limit="1")).metadata.resourceVersion

    async def run(self, api: Api, version: str) -> None:
        """Watch until cancelled."""
        while True:
            async for line in api.watch(resourceVersion=version, allowWatchBookmarks="true"):
                version = self._take(line) or version

    def _take(self, line: bytes) -> str:
        event, now = _event(line), time.time()
        metadata = event.object.metadata
        if event.type in ("BOOKMARK", "ERROR"):
            return metadata.resourceVersion
        seen = self.pods.get(metadata.uid)
        if seen is None:
            index = int(metadata.annotations.get("map_index", -1))
            seen = self.pods[metadata.uid] = Sighting(metadata.name, metadata.uid, index, now)
        if event.type == "DELETED":
            seen.gone = now
        elif event.object.status.phase == "Failed" and seen.failed is None:
            seen.failed = now
        return metadata.resourceVersion

    def alive(self) -> list[Sighting]:
        """Return the pods that are there and have not failed."""
        return [pod for pod in tuple(self.pods.values()) if pod.gone is None and pod.failed is None]

    def gone(self) -> int:
        """Return how many pods have been deleted."""
        return sum(pod.gone is not None for pod in tuple(self.pods.values()))

    def of_task(self, map_index: int) -> list[Sighting]:
        """Return the pods of a task instance, the oldest first."""
        return [pod for pod in tuple(self.pods.values()) if pod.map_index == map_index]
