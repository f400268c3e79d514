# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Emits the changes of the pods of one namespace.

The informer lists, then watches from the list's resource version, and relists after a lost watch. Each list
is compared with the store: the pods as they were last seen. So a relist emits nothing for pods that did not
change.

.. seealso:: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import aclosing

from airflow.providers.cncf.kubernetes_resilience.pods.api.client import PodClient, WatchEvent
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    KubernetesApiError,
    ResourceExpiredError,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.retries import (
    UNANSWERED,
    Answer,
    answer_of,
    retry_delay,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.timing import REAL, Timing
from airflow.providers.cncf.kubernetes_resilience.pods.api.transport import Json
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    LABELS,
    MalformedPodError,
    PodFacts,
    read_pod,
)
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodObservation
from airflow_resilience.backoff import Backoff

logger = logging.getLogger(__name__)

DERIVED_CONDITIONS = frozenset({"Ready", "ContainersReady", "Initialized", "PodReadyToStartContainers"})
"""Conditions that repeat the containers' states, some seconds later. That a pod is not ready
although its containers are is another matter: then its node is not heard of. A change of any other condition
matters, also of a custom one, because a policy may name it."""

INACTIVITY_TIMEOUT = 150.0
"""Seconds of silence after which a watch counts as dead: its connection broke without a FIN or RST (a NAT
entry expired, a node was lost). The API server is asked to end each watch earlier, after 0.4 to 0.8 of this
time at random. So a quiet but healthy watch never counts as dead, even without bookmarks. To resume it costs
one request and no list."""

RECONNECT = Backoff(initial=0.5, maximum=30.0)
"""The first reconnect is almost immediate. A long outage costs one request every 15 seconds on average."""

LONG_WATCH = 20.0
"""Seconds. A watch that lasted so long has worked, even if it had no events."""

SHORT_WATCH = 1.0
"""Seconds. If a watch ends cleanly before this and without an event, a proxy does not let it through. To
resume it at once would be a busy loop."""


class PodStore:
    """The pods of one watched namespace, by UID. A name may be used again, a UID is not."""

    def __init__(self) -> None:
        self._pods: dict[str, PodFacts] = {}

    @property
    def known(self) -> Mapping[str, PodFacts]:
        """The last readings, by UID."""
        return self._pods

    def replace(self, pods: Iterable[PodFacts]) -> list[PodObservation]:
        """Take over a complete list. Return an observation of each pod that is new, changed or gone."""
        present = {facts.ref.uid: facts for facts in pods}
        gone = [known for uid, known in self._pods.items() if uid not in present]
        observations = [self.remove(facts) for facts in gone]
        changed = (self.update(facts) for facts in present.values())
        return observations + [observation for observation in changed if observation is not None]

    def update(self, facts: PodFacts) -> PodObservation | None:
        """Take over one reading. Return an observation; None if nothing that matters has changed."""
        known = self._pods.get(facts.ref.uid)
        self._pods[facts.ref.uid] = facts
        # The known signature is computed again: to store it for each pod would take too much memory.
        is_same = known is not None and _signature(known) == _signature(facts)
        return None if is_same else PodObservation(facts)

    def remove(self, facts: PodFacts) -> PodObservation:
        """Remove a pod."""
        self._pods.pop(facts.ref.uid, None)
        return PodObservation(facts, gone=True)


def _signature(facts: PodFacts) -> Hashable:
    # Without messages and times, which the kubelet changes with every attempt to pull an image.
    return (
        facts.phase,
        facts.reason,
        facts.node,
        facts.deletion_timestamp,
        facts.is_on_silent_node,
        tuple(facts.labels.get(label) for label in LABELS),
        tuple((item.name, item.state, item.reason, item.exit_code) for item in facts.containers),
        tuple(
            (item.type, item.status, item.reason)
            for item in facts.conditions
            if item.type not in DERIVED_CONDITIONS
        ),
    )


class Reconnects:
    """
    Failures of one connection that is made again and again.

    Logs one warning at the loss of the connection, one more for each other status or reason, and one line at
    its return. A line for each attempt would bury the rest of the log just when it is needed.

    :param subject: the subject of the log lines
    """

    def __init__(self, subject: str, timing: Timing) -> None:
        self._subject = subject
        self._timing = timing
        self._attempts = 0
        self._began = 0.0
        self._failure: tuple[int | None, str] | None = None

    def failed(self, error: KubernetesApiError) -> float:
        """Record a failure and return the seconds to wait before the next attempt."""
        self._attempts += 1
        # A refusal names the permission that is missing. Other messages may be different each time.
        failure = (error.status, error.message if answer_of(error) is Answer.REFUSED else "")
        new = self._attempts == 1 or failure != self._failure
        # An expired resource version is no fault: it asks for a relist.
        level = logging.INFO if isinstance(error, ResourceExpiredError) else logging.WARNING
        self._failure = failure
        if self._attempts == 1:
            self._began = self._timing.clock()
        delay = retry_delay(error, RECONNECT, self._attempts, self._timing.random)
        logger.log(
            level if new else logging.DEBUG,
            "%s: attempt %d failed, next in %.1f s: %s",
            self._subject,
            self._attempts,
            delay,
            error,
        )
        return delay

    def over(self) -> None:
        """Record that the connection works."""
        if self._attempts:
            seconds = self._timing.clock() - self._began
            logger.info("%s: back after %d attempts, %.1f s", self._subject, self._attempts, seconds)
        self._attempts = 0


class Informer:
    """
    A list and watch of one namespace that is kept running.

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
        timing: Timing = REAL,
    ) -> None:
        self.namespace = namespace
        self.synced = threading.Event()
        """Set for good once the first list has been emitted. Any thread may wait for it."""
        self.is_away = False
        """Whether the last list got no answer from the API server. Any thread may read it. A broken watch
        does not count: a proxy may cut each of them."""
        self._client = client
        self._label_selector = label_selector
        self._emit = emit
        self._inactivity_timeout = inactivity_timeout
        self._timing = timing
        self._reconnects = Reconnects(f"Watching pods in {namespace or 'all namespaces'}", timing)
        self._store = PodStore()
        self._malformed: set[str] = set()

    async def run(self) -> None:
        """List and watch until cancelled. Failures of the API are waited out."""
        while True:
            try:
                await self._list_then_watch()
            except KubernetesApiError as error:
                await self._timing.sleep(self._reconnects.failed(error))

    async def _list_then_watch(self) -> None:
        """List once, then watch for as long as each watch can resume where the last one ended."""
        try:
            listing = await self._client.list_pods(
                self.namespace, label_selector=self._label_selector, read=self._read
            )
        except KubernetesApiError as error:
            self.is_away = answer_of(error) in UNANSWERED
            raise
        self.is_away = False
        for observation in self._store.replace(listing.items):
            self._emit(observation)
        self.synced.set()
        version = listing.resource_version
        while True:
            version = await self._watch(version)

    async def _watch(self, version: str) -> str:
        """Follow one watch until the server ends it. Return the version to resume from."""
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
                    self._reconnects.over()
                    self._take(event)
                    version = _version(event) or version
        finally:
            # However the watch ended, it worked until then. Some proxies cut quiet connections.
            if self._timing.clock() - opened >= LONG_WATCH:
                self._reconnects.over()
        if not heard and self._timing.clock() - opened < SHORT_WATCH:
            raise ConnectionFailedError("the watch ended as soon as it began")
        return version

    def _take(self, event: WatchEvent) -> None:
        if event.type == "BOOKMARK" or (facts := self._read(event.object)) is None:
            return
        if event.type == "DELETED":
            # Also sent if the labels do not match any more. The object is then the last one that matched.
            self._emit(self._store.remove(facts))
        elif (observation := self._store.update(facts)) is not None:
            self._emit(observation)

    def _read(self, manifest: Json) -> PodFacts | None:
        try:
            return read_pod(manifest, self._store.known)
        except MalformedPodError as error:
            if (text := str(error)) not in self._malformed:
                self._malformed.add(text)
                logger.warning("Ignoring an object in the list of pods: %s", error)
            return None


def _version(event: WatchEvent) -> str | None:
    metadata = event.object.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else None
