# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The cluster under load: thousands of pods made, reported on and removed, from a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from benchmarks.api import Api, gather
from benchmarks.metrics import parse_requests
from benchmarks.observer import Observer
from benchmarks.pods import Json
from benchmarks.raw import RawRate, read_and_decode
from cluster_lab.client import KubeClient
from cluster_lab.loop_thread import entered_on_loop

T = TypeVar("T")
TIMEOUT = 1800.0
"""Seconds for any one thing; 10,000 requests take a minute on two cores."""


class _Metadata(msgspec.Struct):
    name: str
    uid: str
    labels: dict[str, str] = {}


class _Pod(msgspec.Struct):
    metadata: _Metadata


class _Page(msgspec.Struct):
    items: list[_Pod]


@dataclass(frozen=True)
class PodName:
    """A pod that exists."""

    name: str
    uid: str
    owner: str
    """The scheduler job whose label it has."""


class Cluster:
    """Synchronous calls to one API server. Made by :func:`open_cluster`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, api: Api, *, has_metrics: bool) -> None:
        self.api = api
        self._loop = loop
        self._has_metrics = has_metrics

    def create(self, pods: Iterable[Json]) -> list[PodName]:
        """Create pods and return them in this order."""
        return [_name(data) for data in self._call(gather(map(self.api.create, pods)))]

    def report(self, names: Iterable[str], status: Json) -> None:
        """Have a kubelet say the same of pods, as fast as the API server takes it."""
        self._call(gather(self.api.report(name, status) for name in names))

    def delete(self, names: Iterable[str]) -> None:
        """Delete pods at once."""
        self._call(gather(map(self.api.delete, names)))

    def pods(self) -> list[PodName]:
        """Return all pods."""
        return self._call(self._pods())

    def clear(self) -> None:
        """Delete all pods."""
        self.delete([pod.name for pod in self.pods()])

    def raw_rate(self) -> RawRate:
        """Measure how fast the list of all pods can be read and decoded, and nothing done with it."""
        return self._call(read_and_decode(self.api))

    def requests(self) -> Mapping[tuple[str, str], float]:
        """
        Return how many requests about pods others than the benchmark have made so far.

        By verb and subresource; a watch counts when it ends. Empty if the API server does not tell.
        """
        if not self._has_metrics:
            return {}
        total = parse_requests(self._call(self.api.get("/metrics")).decode())
        return {kind: count - self.api.counts[kind] for kind, count in total.items()}

    @contextmanager
    def observed(self) -> Iterator[Observer]:
        """Watch the pods for as long as the block lasts."""
        observer = Observer()
        version = self._call(observer.start(self.api))
        watching = asyncio.run_coroutine_threadsafe(observer.run(self.api, version), self._loop)
        try:
            yield observer
        finally:
            watching.cancel()

    async def _pods(self) -> list[PodName]:
        decode = msgspec.json.Decoder(_Page).decode
        pods = [pod.metadata async for page in self.api.pages() for pod in decode(page).items]
        return [_pod_name(pod) for pod in pods]

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT)


def _name(data: bytes) -> PodName:
    return _pod_name(msgspec.json.decode(data, type=_Pod).metadata)


def _pod_name(metadata: _Metadata) -> PodName:
    return PodName(metadata.name, metadata.uid, metadata.labels.get("airflow-worker", ""))


@contextmanager
def open_cluster(kubeconfig: Path, *, has_metrics: bool) -> Iterator[Cluster]:
    """Connect to the API server of a kubeconfig."""
    with entered_on_loop("cluster-load", lambda: KubeClient(kubeconfig)) as (loop, client):
        yield Cluster(loop, Api(client), has_metrics=has_metrics)
