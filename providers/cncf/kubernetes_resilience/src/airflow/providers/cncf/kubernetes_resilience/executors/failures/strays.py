# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Asks the rows of task instances whose the pods are that no current launch has.

A pod's label does not say it: the official executor labels a pod before its adoption is committed, which may
be rolled back. A scheduler that was paused may label a pod after another one has adopted it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import SIDECAR_GRACE
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import Try, task_key, try_of
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import Standing, TaskSnapshot
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts

log = logging.getLogger(__name__)

STRAY_INTERVAL = 60.0
"""Seconds between two looks at whose a pod is that nobody follows here."""


class Strays:
    """Keeps pods whose launch is not known here, or not followed any more, until rows say whose they are."""

    def __init__(
        self,
        *,
        registry: LaunchRegistry,
        job_id: int | None,
        isolation: Isolation,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._job_id = job_id
        self._isolation = isolation
        self._clock = clock
        self._unfollowed: dict[str, tuple[PodFacts, float]] = {}
        """Each with the time of the next look at its row."""
        self._created: dict[str, tuple[str, PodFacts]] = {}
        """Pods of launches that this scheduler has let go of, with their launch ids, by UID."""

    def note_unfollowed(self, pod: PodFacts) -> None:
        """
        Note a pod that has ended, or has not started, with this scheduler's label, and without a launch.

        A sidecar may end after the worker.
        """
        before, due = self._unfollowed.get(pod.ref.uid, (None, 0.0))
        if before is None or before.has_ended is not pod.has_ended:
            due = self._clock() + (SIDECAR_GRACE if pod.lingers else 0.0)
        self._unfollowed[pod.ref.uid] = (pod, due)

    def forget(self, pod: PodFacts) -> None:
        """Forget a pod that is gone, or has another scheduler's label now."""
        self._unfollowed.pop(pod.ref.uid, None)

    def settle_unfollowed(self) -> list[PodFacts]:
        """
        Return those of these pods that nobody needs.

        A pod that has ended is asked about again for as long as another scheduler has its task instance: that
        one may have launched another pod, and know nothing of this one. A pod that has not started is asked
        about until its try is over.

        :raises DatabaseAwayError: if the database does not answer; they are asked about again then
        """
        return self._isolation.batch(
            "strays",
            [pod for pod, due in self._unfollowed.values() if due <= self._clock()],
            self._take_unfollowed,
            name=lambda pod: pod.ref.uid,
            give_up=lambda pod, _: self.forget(pod),
        )

    def note_created(self, launch_id: str, pod: PodFacts) -> None:
        """Note a pod that has another scheduler's label, of a launch that this one has let go of since."""
        self._created[pod.ref.uid] = (launch_id, pod)

    def settle_created(self) -> list[tuple[str, PodFacts]]:
        """
        Return those of these pods, with their launch ids, whose task instances are still this scheduler's.

        The others are left: another scheduler has adopted them.

        :raises DatabaseAwayError: if the database does not answer; they are asked about again then
        """
        return self._isolation.batch(
            "strays",
            list(self._created.values()),
            self._take_created,
            name=lambda item: item[1].ref.uid,
            give_up=self._leave_created,
        )

    def _take_created(self, created: Sequence[tuple[str, PodFacts]]) -> list[tuple[str, PodFacts]]:
        with create_session(scoped=False) as session:
            tasks = task_instances.read_snapshots({try_of(pod) for _, pod in created}, session=session)
        ours = []
        for launch_id, pod in created:
            if self._standing(pod, tasks) in (Standing.QUEUED, Standing.RUNNING, Standing.HELD_UP):
                del self._created[pod.ref.uid]
                ours.append((launch_id, pod))
            else:
                log.info("Pod %s was adopted by another scheduler", pod.ref)
                self._leave_created((launch_id, pod))
        return ours

    def _leave_created(self, item: tuple[str, PodFacts], _: Exception | None = None) -> None:
        launch_id, pod = item
        del self._created[pod.ref.uid]
        self._registry.left(launch_id, pod.ref.uid)

    def _take_unfollowed(self, pods: Sequence[PodFacts]) -> list[PodFacts]:
        with create_session(scoped=False) as session:
            tasks = task_instances.read_snapshots(set(map(try_of, pods)), session=session)
            over = task_instances.read_over(tasks, session=session)
        unowned = []
        for pod in pods:
            # One that has not started may run its task yet, or may be that of another deployment.
            is_needed = self._is_elsewhere(pod, tasks) if pod.has_ended else try_of(pod) not in over
            if is_needed or self._registry.adopting_of(task_key(pod.annotations)):
                self._unfollowed[pod.ref.uid] = (pod, self._clock() + STRAY_INTERVAL)
                continue
            self.forget(pod)
            # It may have been adopted since.
            if not self._registry.find(pod):
                unowned.append(pod)
        return unowned

    def _is_elsewhere(self, pod: PodFacts, tasks: Mapping[Try, TaskSnapshot]) -> bool:
        has_gone_on = pod.has_succeeded and tasks[try_of(pod)].has_released(task_key(pod.annotations))
        return self._standing(pod, tasks) is Standing.ELSEWHERE and not has_gone_on

    def _standing(self, pod: PodFacts, tasks: Mapping[Try, TaskSnapshot]) -> Standing:
        return tasks[try_of(pod)].standing(task_key(pod.annotations), job_id=self._job_id)
