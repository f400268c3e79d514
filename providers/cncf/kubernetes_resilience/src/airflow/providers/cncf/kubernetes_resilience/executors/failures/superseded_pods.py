# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Settles pods that are not the pod of a current launch.

A superseded launch has another in its place, or none, and its pod is to go: that is a decision, which neither
the pod nor its task instance's row shows. Of other pods this scheduler knows only their manifests, and rows.
A pod's label does not say whose it is: the official executor labels a pod before its adoption is committed,
which may be rolled back. A scheduler that was paused may label a pod after another one has adopted it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto

from airflow.utils.session import create_session
from attrs import define, field

from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import (
    UNKNOWN_VERSION,
    PodDeletion,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import SIDECAR_GRACE
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import try_of
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import Standing, TaskSnapshot
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    LAUNCH_ID_ANNOTATION,
    SCHEDULER_LABEL,
    PodFacts,
)
from airflow.providers.cncf.kubernetes_resilience.pods.messages import ConfirmPod, DeletePod

log = logging.getLogger(__name__)

UNFOLLOWED_INTERVAL = 60.0
"""Seconds between two looks at whose a pod is that nobody follows here."""


class PodUpdate(Enum):
    """Sources of an update about a pod."""

    SEEN = auto()
    """An informer has seen the pod with this scheduler's label."""
    UNSEEN = auto()
    """The pod has left the informer's watch: it is gone, or has another scheduler's label."""
    CREATED = auto()
    """A call has created the pod, or has found it."""
    NOT_DELETED = auto()
    """The pod has started, has ended or has another label, so that its deletion was not carried out."""
    OURS = auto()
    """The pod has another scheduler's label, and the row says that its task instance is this scheduler's."""


class Step(Enum):
    """Steps for a pod."""

    FORGET = auto()
    """The pod is gone, or is left alone."""
    WAIT = auto()
    CONFIRM = auto()
    """The API server is asked whether it exists."""
    FIND = auto()
    """The pod is looked for by the name in its create call: the message may be old, and another scheduler may
    have adopted the pod since."""
    DELETE = auto()
    """The pod is deleted, unless it has started and its launch was not revoked."""
    TAKE_BACK = auto()
    """The pod is followed again, and the launch that replaces it is cancelled."""
    CLEAN_UP = auto()
    """The pod has ended, and is deleted or kept, as configured."""
    ASK_WHOSE = auto()
    """The row is asked whose the pod is: the pod has another scheduler's label, perhaps of a failed
    adoption."""
    ASK_WHO_COUNTS = auto()
    """The row is asked whose the pod is: the worker has ended, and another scheduler may have to count that,
    or the pod has not started, and its launch is not known here."""


def judge_superseded(
    update: PodUpdate, pod: PodFacts, launch: Launch | None, replacement: Launch | None, *, is_labelled: bool
) -> Step:
    """
    Return the step for a pod that is not the pod of a current launch.

    :param launch: the superseded launch whose pod it is; None if it is none's, or is waited for no longer
    :param replacement: the current launch of the same task instance
    :param is_labelled: whether the pod has this scheduler's label
    """
    may_come_back = launch is not None and launch.may_come_back
    may_start = not pod.is_past_starting
    match update:
        case PodUpdate.UNSEEN:
            return Step.CONFIRM if launch and not pod.is_terminal else Step.FORGET
        case PodUpdate.CREATED if not is_labelled:
            return Step.ASK_WHOSE
        case PodUpdate.CREATED if launch and launch.ref:
            return Step.WAIT  # it was found before
        case PodUpdate.CREATED:
            return Step.CLEAN_UP if launch and pod.is_terminal else Step.DELETE
        case PodUpdate.NOT_DELETED if not is_labelled and (may_come_back or (launch is None and may_start)):
            return Step.ASK_WHOSE
        case PodUpdate.NOT_DELETED if may_start and (may_come_back or launch is None):
            return Step.DELETE
        case PodUpdate.OURS if may_start or not may_come_back:
            return Step.DELETE
    return _judge_what_stays(update, pod, launch, replacement)


def _judge_what_stays(
    update: PodUpdate, pod: PodFacts, launch: Launch | None, replacement: Launch | None
) -> Step:
    """Return the step for a pod that nobody deletes now, or whose deletion is under way."""
    has_ended = pod.is_terminal or (pod.lingers and not pod.deletion_timestamp)
    # The decision about a failed create call stands if its pod has ended before it was found.
    if launch and launch.may_come_back and not (launch.ref is None and pod.is_terminal):
        stays = update is not PodUpdate.SEEN or (pod.has_started and not pod.deletion_timestamp)
        if stays and replacement and replacement.gives_way_to(launch):
            return Step.TAKE_BACK
        if update is PodUpdate.OURS or (update is PodUpdate.NOT_DELETED and not has_ended):
            return Step.FORGET
    if launch and pod.is_terminal:
        return Step.CLEAN_UP
    if not pod.deletion_timestamp and (has_ended or (launch is None and pod.may_start)):
        return Step.ASK_WHO_COUNTS
    return Step.FIND if launch and _answers_call(launch, pod) else Step.WAIT


def _answers_call(launch: Launch, pod: PodFacts) -> bool:
    """Return whether a pod has not been seen before, of a create call that has had no answer."""
    return launch.ref is None and launch.deletion is not None and launch.deletion.seen != pod.ref


@define(kw_only=True, eq=False, repr=False, slots=False)
class SupersededPods:
    """
    Carries out what becomes of pods that are not the pod of a current launch. None of this changes a task.

    Pods without a followed launch are kept until rows say whose they are.
    """

    _registry: LaunchRegistry
    _commands: PodCommands
    _deletion: PodDeletion
    _job_id: int | None
    _isolation: Isolation
    _clock: Callable[[], float]
    _unfollowed: dict[str, tuple[PodFacts, float]] = field(factory=dict, init=False)
    """Each with the time of the next look at its row."""
    _created: dict[str, PodFacts] = field(factory=dict, init=False)
    """Pods with another scheduler's label, of launches that this one has released, by UID."""

    def note_update(self, update: PodUpdate, pod: PodFacts) -> Launch | None:
        """Do what follows from an update of a pod; return its launch if that is the current one again."""
        launch = self._registry.find_departing(pod)
        replacement = self._registry.get(launch.key) if launch else None
        is_labelled = pod.labels.get(SCHEDULER_LABEL) == self._commands.own_label
        step = judge_superseded(update, pod, launch, replacement, is_labelled=is_labelled)
        if launch and step is Step.TAKE_BACK:
            log.info("Pod %s of %s has started after all; it is followed again", pod.ref, launch.key)
            self._registry.take_back(launch, pod.ref)
            return launch
        self._carry_out(step, update, pod, launch)
        return None

    def _carry_out(self, step: Step, update: PodUpdate, pod: PodFacts, launch: Launch | None) -> None:
        match step:
            case Step.FORGET:
                self._stop_waiting(update, pod, launch)
                self._forget(pod)
            case Step.WAIT if pod.deletion_timestamp:
                self._deletion.accepted(pod.ref, pod.deletion_grace_seconds)
            case Step.CONFIRM:
                self._commands.send(ConfirmPod(pod.ref))
            case Step.FIND if launch:
                self._deletion.look_again(launch, pod.ref)
            case Step.DELETE:
                self._delete(launch, pod)
            case Step.CLEAN_UP:
                self._stop_waiting(update, pod, launch)
                self._deletion.clean_up(pod)
            case Step.ASK_WHOSE:
                self._created[pod.ref.uid] = pod
            case Step.ASK_WHO_COUNTS:
                self._stop_waiting(update, pod, launch)
                self.note_unfollowed(pod)

    def _stop_waiting(self, update: PodUpdate, pod: PodFacts, launch: Launch | None) -> None:
        if launch and update not in (PodUpdate.SEEN, PodUpdate.UNSEEN):
            self._registry.gone(launch.launch_id)
        else:
            self._deletion.gone(pod.ref.uid)

    def _delete(self, launch: Launch | None, pod: PodFacts) -> None:
        command = DeletePod(pod.ref, UNKNOWN_VERSION, pod.labels.get(SCHEDULER_LABEL))
        if launch is None:
            # Its task instance may be queued again, and run in it.
            self._commands.send(command)
            return
        if not launch.may_come_back:
            command = DeletePod(pod.ref)
        self._registry.found(launch, pod.ref)
        self._deletion.delete(launch, pod, command)

    # ------------------------------------------------------------------ what rows say

    def note_unfollowed(self, pod: PodFacts) -> None:
        """
        Note a pod that has ended, or has not started, with this scheduler's label, and without a launch.

        A sidecar may end after the worker.
        """
        before, due = self._unfollowed.get(pod.ref.uid, (None, 0.0))
        if before is None or before.has_ended is not pod.has_ended:
            due = self._clock() + (SIDECAR_GRACE if pod.lingers else 0.0)
        self._unfollowed[pod.ref.uid] = (pod, due)

    def settle(self) -> list[PodFacts]:
        """
        Delete or keep the pods that nobody needs; return those that are still this scheduler's.

        A pod that has ended is asked about again for as long as another scheduler has its task instance: that
        one may have launched another pod, and know nothing of this one. A pod that has not started is asked
        about until its try is over. Pods with another scheduler's label that are not this one's are left.

        :raises DatabaseAwayError: if the database does not answer; they are asked about again then
        """
        due = [pod for pod, at in self._unfollowed.values() if at <= self._clock()]
        for pod in self._ask(due, self._take_unfollowed, self._forget):
            self._deletion.delete_or_keep(pod)
        return self._ask(list(self._created.values()), self._take_created, self._leave_created)

    def _ask(
        self,
        pods: Sequence[PodFacts],
        take: Callable[[Sequence[PodFacts]], list[PodFacts]],
        give_up: Callable[[PodFacts, Exception], None],
    ) -> list[PodFacts]:
        return self._isolation.batch("superseded", pods, take, name=lambda pod: pod.ref.uid, give_up=give_up)

    def _take_created(self, pods: Sequence[PodFacts]) -> list[PodFacts]:
        with create_session(scoped=False) as session:
            tasks = task_instances.read_snapshots(set(map(try_of, pods)), session=session)
        ours = []
        for pod in pods:
            now = tasks[try_of(pod)].standing(self._job_id)
            if now in (Standing.QUEUED, Standing.RUNNING, Standing.HELD_UP):
                del self._created[pod.ref.uid]
                ours.append(pod)
            else:
                log.info("Pod %s was adopted by another scheduler", pod.ref)
                self._leave_created(pod)
        return ours

    def _forget(self, pod: PodFacts, _: Exception | None = None) -> None:
        self._unfollowed.pop(pod.ref.uid, None)

    def _leave_created(self, pod: PodFacts, _: Exception | None = None) -> None:
        del self._created[pod.ref.uid]
        self._registry.gone(pod.annotations.get(LAUNCH_ID_ANNOTATION, ""), pod.ref.uid)

    def _take_unfollowed(self, pods: Sequence[PodFacts]) -> list[PodFacts]:
        with create_session(scoped=False) as session:
            tasks = task_instances.read_snapshots(set(map(try_of, pods)), session=session)
            over = task_instances.read_over(tasks, session=session)
        unowned = []
        for pod in pods:
            key, _ = tried = try_of(pod)
            # An unstarted pod may run its task yet, or may belong to another deployment.
            is_needed = self._is_elsewhere(pod, tasks[tried]) if pod.has_ended else tried not in over
            if is_needed or self._registry.adopting_of(key):
                self._unfollowed[pod.ref.uid] = (pod, self._clock() + UNFOLLOWED_INTERVAL)
                continue
            self._forget(pod)
            # The pod may have been adopted since.
            if not self._registry.find(pod):
                unowned.append(pod)
        return unowned

    def _is_elsewhere(self, pod: PodFacts, task: TaskSnapshot) -> bool:
        return task.standing(self._job_id) is Standing.ELSEWHERE and not task.has_released(pod)
