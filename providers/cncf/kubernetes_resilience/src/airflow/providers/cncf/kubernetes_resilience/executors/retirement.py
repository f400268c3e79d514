# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What is done with a pod that is not the current launch of its task instance, or will not be any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow.providers.cncf.kubernetes.kube_config import KubeConfig

from airflow.providers.cncf.kubernetes_resilience.executors.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches import Launch, LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.pods.classify import DELETION_OVERDUE, PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.facts import DEFAULT_GRACE_SECONDS, PodRef

if TYPE_CHECKING:
    from airflow.models.taskinstancekey import TaskInstanceKey

GRACE_MARGIN = 2.0
"""Seconds that a kubelet may need beyond a pod's grace period."""

CREATION_TIMEOUT = 120.0
"""Seconds within which the outcome of a create call is known, its repeated look-ups included."""


class Retirement:
    """
    Takes superseded and finished pods out of the executor's world.

    A pod that could still start is deleted, by UID, and noted as leaving: its task instance's next launch
    waits until it is gone or its grace period is over. A pod that has ended is deleted or kept, as
    ``delete_worker_pods`` and ``delete_worker_pods_on_failure`` say; a kept one is labelled so that neither
    this executor nor another sees it again.

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

    def tidy(self, ref: PodRef, *, failed: bool) -> None:
        """Delete or keep a pod that has ended, as configured."""
        deletes = self._config.delete_worker_pods_on_failure if failed else True
        if self._config.delete_worker_pods and deletes:
            self._commands.delete(ref)
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
            overdue = failure.reason == DELETION_OVERDUE
            self.delete(launch.key, launch.ref, 0.0 if overdue else self._grace(launch))

    def revoke(self, launch: Launch) -> None:
        """Delete the pod of a launch that is not wanted any more, whatever its state."""
        if launch.ref is None:
            self.retire_unknown(launch)
        else:
            self.delete(launch.key, launch.ref, self._grace(launch))

    def delete(self, key: TaskInstanceKey, ref: PodRef, grace_seconds: float) -> None:
        """Delete a pod that may still run, and have the next launch of the key wait for it."""
        self._registry.leave(key, ref.uid, self._clock() + grace_seconds + GRACE_MARGIN)
        self._commands.delete(ref)

    def retire_unknown(self, launch: Launch) -> None:
        """Delete the pod of a create call that has not been answered clearly, if there is one."""
        if not launch.may_exist:
            return
        self._registry.leave(launch.key, launch.launch_id, self._clock() + CREATION_TIMEOUT)
        self._commands.delete_by_name(launch.namespace, launch.name, launch.launch_id)

    def created_in_vain(self, launch_id: str, ref: PodRef, *, certain: bool = False) -> None:
        """
        Delete a pod whose launch was given up before its creation was known, if that is what it is.

        :param certain: whether there is no doubt about that, however long ago the launch was given up
        """
        if (key := self._registry.left(launch_id)) is not None:
            self.delete(key, ref, DEFAULT_GRACE_SECONDS)
        elif certain:
            self._commands.delete(ref)

    def _grace(self, launch: Launch) -> float:
        if launch.facts and launch.facts.deletion_timestamp:
            return float(launch.facts.deletion_grace_seconds)
        configured = self._config.delete_option_kwargs.get("grace_period_seconds")
        if isinstance(configured, int):
            return float(configured)
        return float(launch.facts.grace_seconds if launch.facts else DEFAULT_GRACE_SECONDS)
