# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
How pods that exist are made an executor's own.

That is how a large number of tracked pods comes into being in no time, and the one place that knows the
insides of the two executors.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol

from airflow.executors.workloads import ExecuteTask
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import _PodLaunchAttempt
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob

from airflow.providers.cncf.kubernetes_resilience.executors import upstream
from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.workload import StoredWorkload
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef
from benchmarks.pods import NAMESPACE

_RUNNING = PodFacts(PodRef("", "", ""), {}, {}, phase="Running")
"""What was seen of each pod before: one that has not started would be looked for in the database."""


class Held(Protocol):
    """The launches of an executor."""

    def hold(self, workload: ExecuteTask, name: str, uid: str) -> None:
        """Make a pod the current launch of a workload."""

    def messages(self) -> int:
        """Return how many messages about pods its loop has been sent; -1: that is not known."""


class HeldByUpstream:
    """The official executor knows its task instances by their keys, and not its pods."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor

    def hold(self, workload: ExecuteTask, name: str, uid: str) -> None:  # noqa: ARG002 - it has no use for them
        """See :class:`Held`."""
        job = _job(workload)
        self._executor.running.add(job.key)
        self._executor.pod_launch_attempts[job.key] = _PodLaunchAttempt(job=job)

    def messages(self) -> int:
        """See :class:`Held`."""
        return -1


class HeldByOurs:
    """Ours has a registry of launches."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        executor._inbox = self._inbox = _CountingQueue()

    def hold(self, workload: ExecuteTask, name: str, uid: str) -> None:
        """See :class:`Held`."""
        # That is how it comes in, and what is stored of it depends on that.
        self._executor.queue_workload(workload, None)
        upstream.queued_tasks(self._executor).pop(workload.ti.key)
        job = _job(workload)
        launch = Launch(
            key=job.key,
            ti_id=str(workload.ti.id),
            namespace=NAMESPACE,
            name=name,
            number=1,
            workload=StoredWorkload.of(job),
            ref=PodRef(NAMESPACE, name, uid),
            facts=_RUNNING,
        )
        self._executor._registry.hold(launch)
        self._executor.running.add(job.key)

    def messages(self) -> int:
        """See :class:`Held`."""
        return self._inbox.puts


class _CountingQueue(SimpleQueue[Any]):
    puts = 0

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self.puts += 1
        super().put(item, block, timeout)


def held_by(executor: Any) -> Held:
    """Return the way into an executor."""
    make: Callable[[Any], Held] = HeldByOurs if isinstance(executor, KubernetesExecutor) else HeldByUpstream
    return make(executor)


def _job(workload: ExecuteTask) -> KubernetesJob:
    command: Any = [workload]  # the type hint is of Airflow 2
    return KubernetesJob(workload.ti.key, command, None, None, None)
