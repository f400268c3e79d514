# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Finds nodes on which launches fail while others start elsewhere: every launch prefers other nodes.

A scheduler learns that from its own launches, and from the ledger when it starts. Nothing is done to a node,
and none is excluded: a wrong suspicion costs a worse place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf

from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.executors.counters import SUSPECT_NODES
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import Cause
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts
from airflow_resilience.context import MetadataKey
from airflow_resilience.ledger_queries import read_failures

log = logging.getLogger(__name__)

THRESHOLD = 2
"""Task instances whose launches have to fail on a node. A single launch may have caused its failure
itself."""

EVIDENCE_WINDOW = 600.0
"""Seconds within which they have to fail, and another launch has to start elsewhere."""

MOST_NAMES = 10
"""Nodes that a pod is kept away from: the scheduler compares each with each node of the cluster."""

READ_LIMIT = 1_000
"""Rows of the ledger that a scheduler reads when it starts."""


@dataclass(slots=True)
class _Node:
    """The state of a node, learnt from launches. All times are on one monotonic clock, seconds."""

    failures: dict[Hashable, float] = field(default_factory=dict)
    """When the launch of each task instance has failed last on it."""
    started_at: float = -inf
    """Time of the last start on the node, of a launch that has not failed since."""
    started: str | None = None
    """The id of that launch."""


class SuspectNodes:
    """
    Knows which nodes are suspect.

    :param timeout: seconds for which a node is suspect after a launch has failed there; 0 for never
    """

    def __init__(self, timeout: float, *, clock: Callable[[], float]) -> None:
        self._timeout = timeout
        self._clock = clock
        self._nodes: dict[str, _Node] = {}
        """Those on which launches have failed lately."""
        self._starts: dict[str, float] = {}
        """The two nodes on which launches have started last, the last one at the end."""
        self._suspects: dict[str, float] = {}
        """The suspect nodes, each with the time of the last failure of a launch on it, in the order of these
        times."""
        self._is_restored = not timeout

    def names(self) -> Sequence[str]:
        """Return the names of suspect nodes, the latest ones if there are many."""
        return list(self._suspects)[-MOST_NAMES:]

    def is_suspect(self, node: str | None) -> bool:
        """Return whether launches prefer other nodes than that one; None is no node."""
        return node in self._suspects

    def failed(self, launch: Launch, node: str | None, cause: Cause) -> None:
        """
        Note that a launch has failed.

        :param node: name of its node; None if it had none
        """
        if not self._timeout or not cause.node_bound or node is None:
            return
        known = self._nodes.setdefault(node, _Node())
        known.failures[launch.key.primary] = self._clock()
        if known.started == launch.launch_id:
            known.started_at, known.started = -inf, None
        if self._suspects.pop(node, None) is not None:
            self._suspects[node] = self._clock()
        self._judge(node)

    def observed(self, launch: Launch, pod: PodFacts) -> None:
        """Note new facts of a launch's pod, before the launch has these facts."""
        if not self._timeout or pod.node is None or not pod.has_started:
            return
        before = launch.facts
        # New and old facts of an adopted pod are indistinguishable.
        if before.has_started if before else not launch.token_made_at:
            return
        now = self._clock()
        self._starts.pop(pod.node, None)
        self._starts[pod.node] = now
        if len(self._starts) > 2:
            del self._starts[next(iter(self._starts))]
        if known := self._nodes.get(pod.node):
            known.started_at, known.started = now, launch.launch_id
        if self._suspects.pop(pod.node, None) is not None:
            log.info("Node %s is not suspect any more: a launch has started on it", pod.node)
            self._measure()
        for node in self._nodes:
            self._judge(node)

    def tick(self) -> None:
        """
        Forget what is long ago.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer; it is asked again then
        """
        if not self._is_restored:
            self._restore()
        now = self._clock()
        for node, last in list(self._suspects.items()):
            if now - last > self._timeout:
                del self._suspects[node]
                log.info("Node %s is not suspect any more: no launch has failed on it lately", node)
                self._measure()
        for node, known in list(self._nodes.items()):
            if all(now - at > EVIDENCE_WINDOW for at in known.failures.values()):
                del self._nodes[node]

    def _judge(self, node: str) -> None:
        now, known = self._clock(), self._nodes[node]
        known.failures = {key: at for key, at in known.failures.items() if now - at <= EVIDENCE_WINDOW}
        failures = [at for at in known.failures.values() if at > known.started_at]
        if len(failures) < THRESHOLD or not self._starts_elsewhere(node, now):
            return
        is_new = self._suspects.pop(node, None) is None
        self._suspects[node] = max(failures)
        if is_new:
            log.warning(
                "Node %s is suspect: launches of %d task instances have failed on it, and others have started"
                " elsewhere; all launches prefer other nodes until one starts there, for %.0f s at most",
                node,
                len(failures),
                self._timeout,
            )
            self._measure()

    def _starts_elsewhere(self, node: str, now: float) -> bool:
        return any(now - at <= EVIDENCE_WINDOW for other, at in self._starts.items() if other != node)

    def _restore(self) -> None:
        at, now = datetime.now(UTC), self._clock()
        since = at - timedelta(seconds=self._timeout)
        with create_session(scoped=False) as session:
            failures = read_failures(since, at, dag_ids=None, limit=READ_LIMIT, session=session)
        self._is_restored = True
        for failure in sorted(failures.found, key=lambda failure: failure.at):
            node = failure.entry.context.metadata.get(MetadataKey.NODE)
            if failure.entry.node_is_suspect and node:
                self._suspects.pop(node, None)
                self._suspects[node] = now - max(0.0, (at - failure.at).total_seconds())
        for node in self._suspects:
            log.info("Node %s is suspect, as the ledger says", node)
        self._measure()

    def _measure(self) -> None:
        SUSPECT_NODES.set(len(self._suspects), of=self)
