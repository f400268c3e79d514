# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What is done with a pod that is not the current launch of its task instance, or will not be any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from airflow.providers.cncf.kubernetes.kube_config import KubeConfig

from airflow.providers.cncf.kubernetes_resilience.executors.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches import Launch, LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.pods.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef
from airflow.providers.cncf.kubernetes_resilience.pods.failure import DELETION_OVERDUE, PodFailure

if TYPE_CHECKING:
    from airflow.models.taskinstancekey import TaskInstanceKey

GRACE_MARGIN = 2.0
"""Seconds that a kubelet may need beyond a pod's grace period."""

DELETION_TIMEOUT = 300.0
"""
Seconds for the API server to accept a deletion. A replacement does not wait longer: a deletion that is never
permitted (or that a webhook refuses) would else block its task for good, and nothing but the replacement can
finish it. The launcher gives up at about that time too (:data:`..pods.calls.REFUSALS`). Of two pods that both
start then, the execution API lets one run the task.
"""

CREATION_TIMEOUT = 120.0
"""
Seconds after which the pod of a create call is there, or will not come any more: a minute until we give the
call up (:data:`..pods.transport.DEFAULT_REQUEST_TIMEOUT`), and another one until the API server does. Before,
"there is no such pod" may be true only because the call is still under way.
"""


QUIET_SECONDS = 0.5
"""Seconds without a message about a pod after which pods that have ended are tidied up."""

TIDY_TIMEOUT = 5.0
"""Seconds after which they are in any case."""

TIDY_BATCH = 500
"""As many of them in one turn of the scheduler's loop."""


class Retirement:
    """
    Takes superseded and finished pods out of the executor's world.

    A pod that could still start is deleted, by UID, and noted as leaving: its task instance's next launch
    waits until it is gone, or until the grace period is over that begins when the API server accepts the
    deletion, or for :data:`DELETION_TIMEOUT`. A pod that has ended is deleted or kept, as
    ``delete_worker_pods`` and ``delete_worker_pods_on_failure`` say; a kept one is labelled so that neither
    this executor nor another sees it again. That is done when there is nothing better to do: it cannot start
    any more, and the API server has other pods to create and to tell about.

    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        commands: PodCommands,
        registry: LaunchRegistry,
        kube_config: KubeConfig,
        clock: Callable[[], float],
    ) -> None:
        self._commands = commands
        self._registry = registry
        self._config = kube_config
        self._clock = clock
        self._untidied: dict[PodRef, tuple[float, bool]] = {}

    def tidy(self, ref: PodRef, *, failed: bool) -> None:
        """
        Delete or keep a pod that has ended, as configured, in a later turn of the scheduler's loop.

        A scheduler that is killed before it has read what was reported of a pod then leaves one behind that
        its successor still sees.
        """
        self._untidied.setdefault(ref, (self._clock(), failed))

    def tick(self, last_message: float) -> None:
        """
        Tidy up after the pods that have ended before this turn, if it is quiet or they have waited for long.

        :param last_message: when there was one, on the executor's monotonic clock (seconds)
        """
        now = self._clock()
        is_quiet = now - last_message >= QUIET_SECONDS
        self._tidy_up(now if is_quiet else now - TIDY_TIMEOUT, islice(self._untidied.items(), TIDY_BATCH))

    def finish(self, turn_began: float) -> None:
        """
        Tidy up after all pods whose end the scheduler has read.

        :param turn_began: when the last turn did, on the executor's monotonic clock (seconds)
        """
        self._tidy_up(turn_began, self._untidied.items())

    def _tidy_up(self, until: float, pods: Iterable[tuple[PodRef, tuple[float, bool]]]) -> None:
        for ref, (ended, failed) in list(pods):
            if ended < until:
                del self._untidied[ref]
                self._tidy(ref, failed=failed)

    def _tidy(self, ref: PodRef, *, failed: bool) -> None:
        deletes = self._config.delete_worker_pods_on_failure if failed else True
        if self._config.delete_worker_pods and deletes:
            self._commands.clean_up(ref)
        else:
            self._commands.mark_done(ref)

    def supersede(self, launch: Launch, failure: PodFailure | None) -> None:
        """
        Retire the pod of a launch that has ended or was given up on.

        :param failure: how it failed; None if it succeeded
        """
        if launch.ref is None:
            self.retire_unknown(launch)
        elif failure is None or not failure.alive:
            self.tidy(launch.ref, failed=failure is not None)
        else:
            self.revoke(launch)
            if failure.reason == DELETION_OVERDUE:
                self.accepted(launch.ref, 0)

    def revoke(self, launch: Launch) -> None:
        """Delete the pod of a launch that is not wanted any more, whatever its state."""
        if launch.ref is None:
            self.retire_unknown(launch)
        else:
            self.delete(launch.key, launch.facts or PodFacts(launch.ref, {}, {}))

    def delete(self, key: TaskInstanceKey, pod: PodFacts) -> None:
        """Delete a pod that may still run, and have the next launch of the key wait for it."""
        command = ("delete", (pod.ref,))
        self._registry.leave(key, pod.ref.uid, self._clock() + DELETION_TIMEOUT, command)
        if pod.deletion_timestamp:
            self.accepted(pod.ref, pod.deletion_grace_seconds)
        self._commands.send(command)

    def accepted(self, ref: PodRef, grace_seconds: float) -> None:
        """
        Note that the API server has accepted the deletion of a pod.

        :param grace_seconds: that the pod is given; they count from now, which is later than they do
        """
        self._registry.leaves_by(ref.uid, self._clock() + grace_seconds + GRACE_MARGIN)

    def retire_unknown(self, launch: Launch) -> None:
        """Delete the pod of a create call that has not been answered clearly, if there is one."""
        if not launch.may_exist:
            return
        command = ("look_for", (launch.namespace, launch.name, launch.launch_id))
        self._registry.leave(launch.key, launch.launch_id, self._clock() + CREATION_TIMEOUT, command)
        self._commands.send(command)

    def not_created(self, launch_id: str, error: KubernetesApiError) -> None:
        """Note that a create call has failed whose launch was given up meanwhile."""
        if not error.leaves_open:
            self._registry.left(launch_id)
        elif command := self._registry.deletion_of(launch_id):
            self._commands.send(command)  # the first look may have been too early

    def created_in_vain(self, launch_id: str, pod: PodFacts, *, certain: bool = False) -> None:
        """
        Delete a pod whose launch was given up before its creation was known, if that is what it is.

        :param certain: whether there is no doubt about that, however long ago the launch was given up
        """
        if (key := self._registry.left(launch_id)) is not None:
            self.delete(key, pod)
        elif certain:
            self._commands.delete(pod.ref)
