# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Deletes pods that are superseded, and deletes or keeps pods that have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from airflow.providers.cncf.kubernetes.kube_config import KubeConfig

from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import (
    CleanUpPod,
    DeletePod,
    FindCreatedPod,
    MarkPodDone,
    PodCommands,
    StopAndKeepPod,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    DELETION_OVERDUE,
    HEARTBEAT_TIMEOUT,
    PodFailure,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import SCHEDULER_LABEL, PodFacts, PodRef

if TYPE_CHECKING:
    from airflow.models.taskinstancekey import TaskInstanceKey

GRACE_MARGIN = 2.0
"""Seconds that a kubelet may need beyond a pod's grace period."""

DELETION_TIMEOUT = 300.0
"""
Seconds for the API server to accept a deletion. A replacement waits no longer. Otherwise a deletion that is
never permitted, or that a webhook refuses, would block its task for good. The launcher gives up at about that
time too (:data:`...pods.api.call_budget.REFUSALS`). If both pods start then, the execution API lets one of
them run the task.
"""

CREATION_TIMEOUT = 120.0
"""
Seconds after which the pod of a create call exists or never will: a minute until the client gives the call up
(:data:`...pods.api.transport.DEFAULT_REQUEST_TIMEOUT`), and another one until the API server does. Before
that, a pod may be missing because the call is still under way.
"""

UNKNOWN_VERSION = "0"
"""A resourceVersion that no pod has: it is not known at which one a pod had not started. It is read first."""

QUIET_SECONDS = 0.5
"""Seconds without a message about a pod after which pods that have ended are tidied up."""

TIDY_TIMEOUT = 5.0
"""Seconds after which they are tidied up in any case."""

TIDY_BATCH = 500
"""Pods that are tidied up in one turn of the scheduler's loop."""


class PodDeletion:
    """
    Deletes superseded pods, and deletes or keeps pods that have ended.

    A pod that could still start is deleted, by UID. The next launch of its task instance waits until the pod
    is gone, or until its grace period is over, which begins when the API server accepts the deletion, or for
    :data:`DELETION_TIMEOUT`. A pod that was given up on because it did not start is deleted unless it has
    started by then: an overloaded API server may take minutes to delete it, in which its image may be pulled.

    A pod that has ended is deleted or kept, as ``delete_worker_pods`` and ``delete_worker_pods_on_failure``
    say. A kept pod is labelled, so that no executor sees it again. Sidecars that run on in it are stopped:
    they may never notice that the worker has ended. All this waits for a quiet moment, because its worker
    cannot start any more, and the API server has other pods to create.

    :param own_label: value of the label by which this scheduler's pods are selected
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        commands: PodCommands,
        registry: LaunchRegistry,
        kube_config: KubeConfig,
        own_label: str,
        clock: Callable[[], float],
    ) -> None:
        self._commands = commands
        self._registry = registry
        self._config = kube_config
        self._own_label = own_label
        self._clock = clock
        self._untidied: dict[PodRef, tuple[float, bool, bool]] = {}

    def tidy(self, ref: PodRef, *, failed: bool, lingers: bool = False) -> None:
        """
        Delete or keep a pod that has ended, as configured, in a later turn of the scheduler's loop.

        A scheduler that is killed before it has read what was reported of a pod then leaves one behind that
        its successor still sees.

        :param lingers: whether a container of it runs on
        """
        self._untidied.setdefault(ref, (self._clock(), failed, lingers))

    def tick(self, last_message: float) -> None:
        """
        Tidy up the pods that have ended before this turn, if it is quiet or they have waited for long.

        :param last_message: when there was one, on the executor's monotonic clock (seconds)
        """
        now = self._clock()
        is_quiet = now - last_message >= QUIET_SECONDS
        self._tidy_up(now if is_quiet else now - TIDY_TIMEOUT, islice(self._untidied.items(), TIDY_BATCH))

    def finish(self, turn_began: float) -> None:
        """
        Tidy up all pods whose end the scheduler has read.

        :param turn_began: when the last turn did, on the executor's monotonic clock (seconds)
        """
        self._tidy_up(turn_began, self._untidied.items())

    def _tidy_up(self, until: float, pods: Iterable[tuple[PodRef, tuple[float, bool, bool]]]) -> None:
        for ref, (ended, failed, lingers) in list(pods):
            if ended < until:
                del self._untidied[ref]
                self._tidy(ref, failed=failed, lingers=lingers)

    def _tidy(self, ref: PodRef, *, failed: bool, lingers: bool) -> None:
        deletes = self._config.delete_worker_pods_on_failure if failed else True
        if self._config.delete_worker_pods and deletes:
            self._commands.send(CleanUpPod(ref))
        elif lingers:
            self._commands.send(StopAndKeepPod(ref))
        else:
            self._commands.send(MarkPodDone(ref))

    def supersede(self, launch: Launch, failure: PodFailure | None, *, is_anothers: bool = False) -> None:
        """
        Delete or keep the pod of a launch that has ended, and delete that of one that was given up on.

        One that was given up on is left alone if another scheduler has adopted it: that one knows how it is.

        :param failure: how it failed; None if it succeeded
        :param is_anothers: whether its task instance is known to be another scheduler's, so that the launch
            is not followed again
        """
        if launch.ref is None:
            self._delete_if_created(launch, unless_started=True)
        elif failure is None or not failure.alive:
            runs_on = launch.facts is not None and launch.facts.has_done_worker
            lingers = failure.lingers if failure else runs_on
            self.tidy(launch.ref, failed=failure is not None, lingers=lingers)
        elif failure.reason == DELETION_OVERDUE:
            self.revoke(launch)
            self.accepted(launch.ref, 0)
        elif failure.reason == HEARTBEAT_TIMEOUT:
            self.revoke(launch)
        else:
            self.give_up(launch.key, failure.facts, None if is_anothers else launch, unless_adopted=True)

    def give_up(
        self,
        key: TaskInstanceKey,
        pod: PodFacts,
        launch: Launch | None = None,
        *,
        unless_adopted: bool = False,
    ) -> None:
        """
        Delete a pod that does not start, unless it has by then. The next launch of the key waits for it.

        :param pod: what was known of it when that was decided
        :param launch: what it is the pod of, which is followed again if it has started; None to leave it
            alone then
        :param unless_adopted: whether it also stays if it has another scheduler's label by then
        """
        if pod.resource_version is None:
            self._delete(key, pod, DeletePod(pod.ref), launch)
        elif not self._registry.departure(pod.ref.uid):  # else it goes already, maybe whatever it does
            label = self._own_label if unless_adopted else None
            self._delete(key, pod, DeletePod(pod.ref, pod.resource_version, label), launch)

    def revoke(self, launch: Launch) -> None:
        """Delete the pod of a launch, whatever its state."""
        if launch.ref is None:
            self._delete_if_created(launch, unless_started=False)
        else:
            pod = launch.facts or PodFacts(launch.ref, {}, {})
            self._delete(launch.key, pod, DeletePod(launch.ref), launch)

    def revoke_given_up(self, key: TaskInstanceKey) -> None:
        """Delete the pods of a key that were given up on, even if they have started since."""
        for departure in self._registry.departures(key):
            if departure.survivor:
                self.revoke(departure.survivor)

    def delete(self, key: TaskInstanceKey, pod: PodFacts) -> None:
        """Delete a pod that may still run, and have the next launch of the key wait for it."""
        self._delete(key, pod, DeletePod(pod.ref), None)

    def _delete(self, key: TaskInstanceKey, pod: PodFacts, command: DeletePod, launch: Launch | None) -> None:
        self._registry.leave(
            key,
            pod.ref.uid,
            self._clock() + DELETION_TIMEOUT,
            command,
            launch=launch,
            unless_started=command.unless_started_since is not None,
        )
        if pod.deletion_timestamp:
            self.accepted(pod.ref, pod.deletion_grace_seconds)
        self._commands.send(command)

    def accepted(self, ref: PodRef, grace_seconds: float) -> None:
        """
        Note that the API server has accepted the deletion of a pod.

        :param grace_seconds: that the pod is given; they count from now, which is later than they do
        """
        self._registry.leaves_by(ref.uid, self._clock() + grace_seconds + GRACE_MARGIN)

    def _delete_if_created(self, launch: Launch, *, unless_started: bool) -> None:
        """
        Delete the pod of a create call that has had no clear answer, if there is one.

        A call that was not sent yet is called off.

        :param unless_started: whether the pod stays if it has started by the time of its deletion
        """
        if not launch.may_run:
            return
        deadline = self._clock() + CREATION_TIMEOUT
        command = FindCreatedPod(launch.namespace, launch.name, launch.launch_id)
        self._registry.leave(
            launch.key, launch.launch_id, deadline, command, launch=launch, unless_started=unless_started
        )
        self._commands.call_off(launch.launch_id)
        self._commands.send(command)

    def not_created(self, launch_id: str, error: KubernetesApiError) -> None:
        """Note that a create call has failed whose launch was given up meanwhile."""
        departure = self._registry.departure(launch_id)
        if departure is None or departure.command is None:
            return
        if error.leaves_open:
            self._commands.send(departure.command)  # the first look may have been too early
        elif not _was_unclear(departure.launch):  # a call before may have made the pod
            self._registry.left(launch_id)

    def look_again(self, launch_id: str, pod: PodFacts) -> None:
        """
        Look for the pod of a launch that was given up before its creation was known: it has been seen.

        It is not deleted at once. What was seen may be from long ago, and another scheduler may have adopted
        it since.
        """
        departure = self._registry.departure(launch_id)
        if departure and departure.command:
            deadline = self._clock() + DELETION_TIMEOUT
            self._registry.leave(
                departure.key,
                pod.ref.uid,
                deadline,
                departure.command,
                launch=departure.launch,
                unless_started=departure.unless_started,
            )
            self._commands.send(departure.command)

    def created_in_vain(self, launch_id: str, pod: PodFacts, *, is_ours: bool = False) -> None:
        """
        Delete a pod whose launch was given up before its creation was known, however long ago.

        If nobody waits for it any more, its task instance may be queued again, and run in it.

        :param is_ours: whether its task instance is known to be this scheduler's, so that the label of
            another one, from an adoption that has failed, means nothing, until it is yet another one
        """
        departure = self._registry.departure(launch_id) or self._registry.departure(pod.ref.uid)
        label = pod.labels.get(SCHEDULER_LABEL) if is_ours else self._own_label
        command = DeletePod(pod.ref, UNKNOWN_VERSION, label)
        if departure is None:
            self._commands.send(command)
        elif isinstance(departure.command, DeletePod) and not is_ours:
            pass  # it was found before
        elif not departure.unless_started:
            self._registry.left(launch_id)
            self.delete(departure.key, pod)
        elif is_ours and pod.is_past_starting:
            self._registry.left_to_others(launch_id, pod.ref.uid)  # to whoever finds that a task runs in it
        else:
            if departure.launch:
                self._registry.found(departure.launch, pod.ref)
            self._delete(departure.key, pod, command, departure.launch)

    def call_off(self, key: TaskInstanceKey) -> None:
        """
        Release the current launch of a key. If its pod is not known, delete the one that may exist.

        That pod stays if it has started by the time of its deletion: the task may run in it.
        """
        launch = self._registry.release(key)
        if launch and launch.ref is None:
            self._delete_if_created(launch, unless_started=True)


def _was_unclear(launch: Launch | None) -> bool:
    return launch is not None and launch.creation is not None and launch.creation.was_unclear
