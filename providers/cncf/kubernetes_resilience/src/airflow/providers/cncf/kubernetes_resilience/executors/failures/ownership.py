# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Decides whose a launch is if its pod has the label of another scheduler: the task instance's row says it.

A scheduler that adopts a pod labels it before its transaction is committed, and that may be rolled back. A
scheduler that was paused may label a pod after another one has adopted it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import AdoptPod, PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import task_key, ti_id_of
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import (
    Standing,
    TaskInstanceRow,
    standing,
)
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts

log = logging.getLogger(__name__)

STRAY_INTERVAL = 60.0
"""Seconds between two looks at whose a failed pod is."""


class Ownership:
    """
    Keeps the launches whose task instances are still this scheduler's, and releases the others.

    A pod's label is no proof: an adoption that has failed may have put it there.

    :param slots: those of the others are freed
    :param job_id: this scheduler's job
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        registry: LaunchRegistry,
        commands: PodCommands,
        slots: Slots,
        job_id: int | None,
        isolation: Isolation,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._commands = commands
        self._slots = slots
        self._job_id = job_id
        self._isolation = isolation
        self._doubtful: dict[str, tuple[Launch, PodFacts]] = {}
        self._clock = clock
        self._strays: dict[str, tuple[PodFacts, float]] = {}
        """Each with the time of the next look at its row."""
        self._created: dict[str, tuple[str, PodFacts]] = {}
        """Pods of launches that this scheduler has let go of, with their launch ids, by UID."""

    def doubt(self, launch: Launch, pod: PodFacts) -> None:
        """Note a current launch whose pod has the label of another scheduler."""
        self._doubtful[launch.launch_id] = (launch, pod)

    def settle(self) -> list[tuple[Launch, PodFacts]]:
        """
        Keep or release the launches that are in doubt; return those that are kept, and what their pods say.

        :raises DatabaseAwayError: if the database does not answer; they stay in doubt then
        """
        for launch_id, (launch, _) in list(self._doubtful.items()):
            if not self._registry.is_current(launch):
                del self._doubtful[launch_id]
        ours = []
        doubtful = [launch for launch, _ in self._doubtful.values()]
        for launch, owner in self._isolation.batch(
            "own", doubtful, self._read_owners, name=_id, give_up=self._let_go
        ):
            if owner is not None and owner == self._job_id:
                _, pod = self._doubtful.pop(launch.launch_id)
                log.info("Pod %s carries another scheduler's label; %s is still ours", launch.ref, launch.key)
                self._commands.send(AdoptPod(pod.ref))
                ours.append((launch, pod))
            else:
                log.info("Pod %s of %s was adopted by scheduler job %s", launch.ref, launch.key, owner)
                self._let_go(launch)
        return ours

    def doubt_stray(self, pod: PodFacts) -> None:
        """Note a failed pod that has this scheduler's label and is none of its launches."""
        self._strays.setdefault(pod.ref.uid, (pod, self._clock()))

    def forget_stray(self, pod: PodFacts) -> None:
        """Forget a failed pod that is gone, or has another scheduler's label now."""
        self._strays.pop(pod.ref.uid, None)

    def settle_strays(self) -> list[PodFacts]:
        """
        Return the failed pods that are no other scheduler's either. That one counts the failure of its pod.

        A pod is asked about again for as long as another scheduler has its task instance: that one may have
        launched another pod, and know nothing of this one.

        :raises DatabaseAwayError: if the database does not answer; they stay in doubt then
        """
        return self._isolation.batch(
            "own",
            [pod for pod, due in self._strays.values() if due <= self._clock()],
            self._take_forsaken,
            name=lambda pod: pod.ref.uid,
            give_up=lambda pod, _: self.forget_stray(pod),
        )

    def doubt_created(self, launch_id: str, pod: PodFacts) -> None:
        """Note a pod that has another scheduler's label, of a launch that this one has let go of since."""
        self._created[pod.ref.uid] = (launch_id, pod)

    def settle_created(self) -> list[tuple[str, PodFacts]]:
        """
        Return those of these pods, with their launch ids, whose task instances are still this scheduler's.

        The others are left: another scheduler has adopted them.

        :raises DatabaseAwayError: if the database does not answer; they stay in doubt then
        """
        return self._isolation.batch(
            "own",
            list(self._created.values()),
            self._take_created,
            name=lambda item: item[1].ref.uid,
            give_up=self._leave_created,
        )

    def _take_created(self, created: Sequence[tuple[str, PodFacts]]) -> list[tuple[str, PodFacts]]:
        rows = _read_rows([pod for _, pod in created])
        ours = []
        for launch_id, pod in created:
            if self._is_here(pod, rows.get(ti_id_of(pod) or "")):
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

    def _take_forsaken(self, pods: Sequence[PodFacts]) -> list[PodFacts]:
        rows = _read_rows(pods)
        forsaken = []
        for pod in pods:
            if self._is_elsewhere(pod, rows.get(ti_id_of(pod) or "")):
                self._strays[pod.ref.uid] = (pod, self._clock() + STRAY_INTERVAL)
            else:
                self.forget_stray(pod)
                forsaken.append(pod)
        return forsaken

    def _is_elsewhere(self, pod: PodFacts, row: TaskInstanceRow | None) -> bool:
        return self._standing(pod, row) is Standing.ELSEWHERE

    def _is_here(self, pod: PodFacts, row: TaskInstanceRow | None) -> bool:
        return self._standing(pod, row) in (Standing.QUEUED, Standing.RUNNING, Standing.HELD_UP)

    def _standing(self, pod: PodFacts, row: TaskInstanceRow | None) -> Standing:
        key = task_key(pod.annotations)
        return standing(row, try_number=key.try_number if key else 0, job_id=self._job_id)

    def _let_go(self, launch: Launch, _: Exception | None = None) -> None:
        del self._doubtful[launch.launch_id]
        self._registry.release(launch.key)
        self._registry.settled(launch)  # by the other scheduler, also if it has ended here: its pod stays
        self._slots.free(launch.key)

    def _read_owners(self, launches: Sequence[Launch]) -> list[tuple[Launch, int | None]]:
        """Return the scheduler job that has each task instance; None if it is gone."""
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({launch.ti_id for launch in launches}, session=session)
            gone = {launch.key for launch in launches if launch.ti_id not in rows}
            restarting = task_instances.read_restarting(gone, session=session)
        owners = {ti_id: row.queued_by_job_id for ti_id, row in rows.items()}
        return [(launch, owners.get(launch.ti_id, restarting.get(launch.key))) for launch in launches]


def _read_rows(pods: Sequence[PodFacts]) -> dict[str, TaskInstanceRow]:
    """Read the task instances that pods were launched for, by their UUIDs."""
    with create_session(scoped=False) as session:
        return task_instances.read_rows(set(filter(None, map(ti_id_of, pods))), session=session)


def _id(launch: Launch) -> str:
    return launch.launch_id
