# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Deletes pods that are superseded, and deletes or keeps pods that have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from airflow.providers.cncf.kubernetes.kube_config import KubeConfig
from attrs import define, field

from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Deletion, Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    DELETION_OVERDUE,
    HEARTBEAT_TIMEOUT,
    PodFailure,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import SCHEDULER_LABEL, PodFacts, PodRef
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    CleanUpPod,
    Command,
    DeletePod,
    FindCreatedPod,
    MarkPodDone,
    StopAndKeepPod,
)

if TYPE_CHECKING:
    from airflow.models.taskinstancekey import TaskInstanceKey

GRACE_MARGIN = 2.0
"""Seconds that a kubelet may need beyond a pod's grace period."""

DELETION_TIMEOUT = 300.0
"""
Seconds for an API server that answers to accept a deletion. A replacement waits no longer. Otherwise a
deletion that is never permitted, or that a webhook refuses, would block its task for good. The launcher gives
up at about that time too (:data:`...pods.api.call_budget.REFUSALS`). If both pods start then, the execution
API lets one of them run the task.
"""

CREATION_TIMEOUT = 120.0
"""
Seconds after which the pod of a create call exists or never will: a minute until the client gives the call up
(:data:`...pods.api.transport.DEFAULT_REQUEST_TIMEOUT`), and another one until the API server does. Before
that, a pod may be missing because the call is still under way.
"""

UNKNOWN_VERSION = "0"
"""A resourceVersion that no pod has, for a pod without a known unstarted version: the pod is read first."""

QUIET_SECONDS = 0.5
"""Seconds without a message about a pod after which pods that have ended are cleaned up."""

CLEAN_UP_TIMEOUT = 5.0
"""Seconds after which they are cleaned up in any case."""

CLEAN_UP_BATCH = 500
"""Pods that are cleaned up in one turn of the scheduler's loop."""


@define(kw_only=True, eq=False, repr=False, slots=False)
class PodDeletion:
    """
    Deletes superseded pods, and deletes or keeps pods that have ended.

    A pod that could still start is deleted, by UID. The next launch of its task instance waits for the end of
    the pod, at most for its grace period from the acceptance of the deletion on, or for
    :data:`DELETION_TIMEOUT` without an acceptance. A pod that was given up before its start is deleted unless
    it has started by then: an overloaded API server may take minutes to delete it, and its image may be
    pulled meanwhile.

    A pod that has ended is deleted or kept, as ``delete_worker_pods`` and ``delete_worker_pods_on_failure``
    say. A kept pod is labelled, so that no executor sees it again. Sidecars that run on in it are stopped:
    they may never notice that the worker has ended. All this waits for a quiet moment, because its worker
    cannot start any more, and the API server has other pods to create.
    """

    _commands: PodCommands
    _registry: LaunchRegistry
    _kube_config: KubeConfig
    _clock: Callable[[], float]
    _ended: dict[PodRef, tuple[float, Command]] = field(factory=dict, init=False)

    def clean_up(self, pod: PodFacts, *, failed: bool = False) -> None:
        """
        Delete or keep a pod whose worker has ended, as configured, in a later turn of the scheduler's loop.

        So the successor of a scheduler that is killed before it has read the messages about a pod still sees
        the pod.

        :param failed: whether the launch has failed, though the pod does not show the failure
        """
        failed = failed or pod.phase == "Failed" or pod.has_lost_worker
        command: Command = StopAndKeepPod(pod.ref) if pod.lingers else MarkPodDone(pod.ref)
        if self._kube_config.delete_worker_pods and (
            not failed or self._kube_config.delete_worker_pods_on_failure
        ):
            command = CleanUpPod(pod.ref)
        self._ended.setdefault(pod.ref, (self._clock(), command))

    def delete_or_keep(self, pod: PodFacts) -> None:
        """Delete or keep a pod that no task needs. An unstarted pod is deleted if still unstarted then."""
        if pod.has_ended:
            self.clean_up(pod)
        else:
            version = pod.resource_version or UNKNOWN_VERSION
            self._commands.send(DeletePod(pod.ref, version, pod.labels.get(SCHEDULER_LABEL)))

    def tick(self, last_message: float) -> None:
        """
        Clean up the pods that have ended before this turn, if it is quiet or they have waited for long.

        :param last_message: time of the last message, on the executor's monotonic clock (seconds)
        """
        now = self._clock()
        is_quiet = now - last_message >= QUIET_SECONDS
        until = now if is_quiet else now - CLEAN_UP_TIMEOUT
        self._clean_up_ended(until, islice(self._ended.items(), CLEAN_UP_BATCH))

    def finish(self, turn_began: float) -> None:
        """
        Clean up all pods whose end the scheduler has read.

        :param turn_began: start of the last turn, on the executor's monotonic clock (seconds)
        """
        self._clean_up_ended(turn_began, self._ended.items())

    def _clean_up_ended(self, until: float, pods: Iterable[tuple[PodRef, tuple[float, Command]]]) -> None:
        for ref, (ended, command) in list(pods):
            if ended < until:
                del self._ended[ref]
                self._commands.send(command)

    def supersede(self, launch: Launch, failure: PodFailure | None) -> None:
        """
        Delete or keep the pod of an ended launch, and delete the pod of one that was given up.

        A given-up pod that another scheduler has adopted is not touched: that scheduler follows the pod.

        :param failure: how it failed; None if it succeeded
        """
        if launch.is_gone:
            return
        if launch.ref is None:
            self._delete_if_created(launch, unless_started=True)
        elif failure is None or not failure.alive:
            self.clean_up(launch.facts or PodFacts(launch.ref, {}, {}), failed=failure is not None)
        elif failure.reason == DELETION_OVERDUE:
            self.revoke(launch)
            self.accepted(launch.ref, 0)
        elif failure.reason == HEARTBEAT_TIMEOUT:
            self.revoke(launch)
        else:
            self.give_up(launch, failure.facts, unless_adopted=True)

    def give_up(self, launch: Launch, pod: PodFacts, *, unless_adopted: bool = False) -> None:
        """
        Delete a pod unless it has started by then. The next launch of the key waits for the deletion.

        :param pod: the facts of the pod at the time of the decision
        :param unless_adopted: whether it also stays if it has another scheduler's label by then
        """
        before = self._registry.find_departing(pod)
        was_revoked = before is not None and before.ref is None and not before.may_come_back
        if pod.resource_version is None or was_revoked:
            self.delete(launch, pod, DeletePod(pod.ref))
        elif before is None or before.ref is None:  # else its deletion is requested, maybe unconditionally
            label = self._commands.own_label if unless_adopted else None
            self.delete(launch, pod, DeletePod(pod.ref, pod.resource_version, label))

    def revoke(self, launch: Launch) -> None:
        """Delete the pod of a launch, whatever its state."""
        if launch.ref is None:
            self._delete_if_created(launch, unless_started=False)
        else:
            self.delete(launch, launch.facts or PodFacts(launch.ref, {}, {}), DeletePod(launch.ref))

    def revoke_given_up(self, key: TaskInstanceKey) -> None:
        """Delete the given-up pods of a key, started ones too."""
        for launch in self._registry.departing_of(key):
            if launch.may_come_back:
                self.revoke(launch)

    def delete(self, launch: Launch, pod: PodFacts, command: DeletePod) -> None:
        """Delete the pod of a launch. The next launch of the key waits for it."""
        deadline = self._clock() + DELETION_TIMEOUT
        is_conditional = command.unless_started_since is not None
        self._registry.supersede(launch, Deletion(deadline, command, unless_started=is_conditional))
        if pod.deletion_timestamp:
            self.accepted(pod.ref, pod.deletion_grace_seconds)
        self._commands.send(command)

    def accepted(self, ref: PodRef, grace_seconds: float) -> None:
        """
        Note that the API server has accepted the deletion of a launch's known pod.

        :param grace_seconds: the pod's grace period, counted from now; the API server's count began earlier
        """
        launch = self._registry.departing(ref.uid)
        if launch and launch.ref and launch.deletion:
            launch.deletion.accept(self._clock() + grace_seconds + GRACE_MARGIN)

    def _delete_if_created(self, launch: Launch, *, unless_started: bool) -> None:
        """
        Delete the pod of a create call that has had no clear answer, if there is one.

        A call that was not sent yet is cancelled.

        :param unless_started: whether the pod stays if it has started by the time of its deletion
        """
        if not launch.may_run:
            return
        command = FindCreatedPod(launch.namespace, launch.name, launch.launch_id)
        deletion = Deletion(self._clock() + CREATION_TIMEOUT, command, unless_started=unless_started)
        if before := launch.deletion:
            deadline = max(before.deadline, deletion.deadline)
            deletion = replace(before, unless_started=unless_started, deadline=deadline)
        self._registry.supersede(launch, deletion)
        self._commands.cancel(launch.launch_id)
        self._commands.send(command)

    def not_created(self, launch_id: str, error: KubernetesApiError) -> None:
        """Note that a create call has failed whose launch was given up meanwhile."""
        launch = self._registry.departing(launch_id)
        if launch is None or launch.creation is None or launch.deletion is None:
            return
        if error.leaves_open and launch.deletion.command:
            self._commands.send(launch.deletion.command)  # the first look may have been too early
        elif not (launch.creation.was_unclear or launch.deletion.seen):  # else there is or was a pod
            self._registry.gone(launch_id)

    def look_again(self, launch: Launch, seen: PodRef) -> None:
        """Look for the seen pod of a launch that was given up before its creation was known."""
        if (deletion := launch.deletion) and deletion.command:
            deadline = self._clock() + DELETION_TIMEOUT
            self._registry.supersede(launch, replace(deletion, deadline=deadline, seen=seen))
            self._commands.send(deletion.command)

    def gone(self, uid: str) -> None:
        """Note that a pod is gone. A create call that has had no answer may make another one."""
        launch = self._registry.departing(uid)
        if launch and launch.ref is None and (deletion := launch.deletion):
            deletion.limit(self._clock() + CREATION_TIMEOUT)
            self._registry.supersede(launch, replace(deletion, seen=None))
        else:
            self._registry.gone(uid)

    def prune(self) -> None:
        """
        Forget the pods that are waited for no longer.

        While the API server is away, the outcome of a create call without an answer is unknown. A pod without
        an accepted deletion may still start.
        """
        now = self._clock()
        if self._commands.is_away:
            self._registry.postpone(now + CREATION_TIMEOUT)
        self._registry.prune(now)

    def cancel(self, key: TaskInstanceKey) -> None:
        """
        Release the current launch of a key. If its pod is not known, delete the one that may exist.

        A pod that has started by the time of its deletion remains: the task may run in it.
        """
        launch = self._registry.release(key)
        if launch and launch.ref is None:
            self._delete_if_created(launch, unless_started=True)
