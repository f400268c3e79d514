# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Tells the executor what changes about the pods of one namespace.

It lists, then watches from where the list ended, and lists again when the watch cannot be continued. Each
list is compared with what is known, so that a reconnect produces nothing for pods that did not change.

.. seealso:: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import aclosing

from airflow.providers.cncf.kubernetes_resilience.pods.api.client import PodClient, WatchEvent
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    KubernetesApiError,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.outage import Outage
from airflow.providers.cncf.kubernetes_resilience.pods.api.timing import REAL, Timing
from airflow.providers.cncf.kubernetes_resilience.pods.api.transport import Json
from airflow.providers.cncf.kubernetes_resilience.pods.facts import MalformedPodError, PodFacts, read_pod
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodObservation
from airflow.providers.cncf.kubernetes_resilience.pods.thread.store import PodStore
from airflow_resilience.backoff import Backoff

logger = logging.getLogger(__name__)

INACTIVITY_TIMEOUT = 150.0
"""Seconds of silence after which a watch counts as dead: the connection is gone without a word (a NAT entry
dropped, a node lost). The API server is asked to end each watch before that, after 0.4 to 0.8 of it at
random, so that a quiet but healthy one is never taken for dead, whether or not it sends bookmarks; going on
from there costs one request and no list."""

RECONNECT = Backoff(initial=0.5, maximum=30.0)
"""The first reconnect is almost at once; a long outage costs one request every 15 seconds on average."""

LONG_WATCH = 20.0
"""Seconds. A watch that lasted so long had not failed, even if nothing was to be said in it."""

SHORT_WATCH = 1.0
"""Seconds. A watch that ends cleanly sooner than this without a single event is a proxy that does not let it
through; going on at once would be a busy loop."""


class Informer:
    """
    One list and watch, kept going.

    :param namespace: None for all
    :param emit: takes each observation; must not block
    :param inactivity_timeout: see :data:`INACTIVITY_TIMEOUT`
    """

    def __init__(
        self,
        client: PodClient,
        *,
        namespace: str | None,
        label_selector: str,
        emit: Callable[[PodObservation], None],
        inactivity_timeout: float = INACTIVITY_TIMEOUT,
        backoff: Backoff = RECONNECT,
        timing: Timing = REAL,
    ) -> None:
        self.namespace = namespace
        self.synced = threading.Event()
        """Set for good once the first list has been emitted. Any thread may wait for it."""
        self.is_away = False
        """Whether the API server did not answer when pods were listed last. Any thread may read it. That a
        watch breaks says nothing: a proxy may cut each of them."""
        self._client = client
        self._label_selector = label_selector
        self._emit = emit
        self._inactivity_timeout = inactivity_timeout
        self._timing = timing
        self._outage = Outage(f"Watching pods in {namespace or 'all namespaces'}", backoff, timing)
        self._view = PodStore()
        self._malformed: set[str] = set()

    async def run(self) -> None:
        """Keep the executor informed, for ever. Failures of the API are waited out."""
        while True:
            try:
                await self._list_then_watch()
            except KubernetesApiError as error:
                await self._timing.sleep(self._outage.failed(error))

    async def _list_then_watch(self) -> None:
        """List once, then watch for as long as one watch can go on from where the last one ended."""
        try:
            listing = await self._client.list_pods(
                self.namespace, label_selector=self._label_selector, read=self._read
            )
        except KubernetesApiError as error:
            self.is_away = error.transient
            raise
        self.is_away = False
        for observation in self._view.replace(listing.items):
            self._emit(observation)
        self.synced.set()
        version = listing.resource_version
        while True:
            version = await self._watch(version)

    async def _watch(self, version: str) -> str:
        """Follow one connection until the server ends it, and return the version to go on from."""
        opened, heard = self._timing.clock(), False
        events = self._client.watch_pods(
            self.namespace,
            label_selector=self._label_selector,
            resource_version=version,
            timeout_seconds=int(self._inactivity_timeout * (0.4 + 0.4 * self._timing.random())),
            inactivity_timeout=self._inactivity_timeout,
        )
        try:
            async with aclosing(events):
                async for event in events:
                    heard = True
                    self._outage.over()
                    self._take(event)
                    version = _version(event) or version
        finally:
            # However it ended, quietly or by a proxy that cuts what is quiet: it worked until then.
            if self._timing.clock() - opened >= LONG_WATCH:
                self._outage.over()
        if not heard and self._timing.clock() - opened < SHORT_WATCH:
            raise ConnectionFailedError("the watch ended as soon as it began")
        return version

    def _take(self, event: WatchEvent) -> None:
        if event.type == "BOOKMARK" or (facts := self._read(event.object)) is None:
            return
        if event.type == "DELETED":
            # Also sent when the labels stop matching; the object is then the last one that did.
            self._emit(self._view.remove(facts))
        elif (observation := self._view.update(facts)) is not None:
            self._emit(observation)

    def _read(self, manifest: Json) -> PodFacts | None:
        try:
            return read_pod(manifest)
        except MalformedPodError as error:
            if (text := str(error)) not in self._malformed:
                self._malformed.add(text)
                logger.warning("Ignoring an object in the list of pods: %s", error)
            return None


def _version(event: WatchEvent) -> str | None:
    metadata = event.object.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else None
