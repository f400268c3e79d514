# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Commands from the scheduler's thread to the Kubernetes thread, which may crash and start again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from airflow.providers.cncf.kubernetes_resilience.pods.facts import SCHEDULER_LABEL
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    AdoptPod,
    CleanUpPod,
    Command,
    ConfirmPod,
    CreatePod,
    DeletePod,
    FindCreatedPod,
    MarkPodDone,
    StopAndKeepPod,
)
from airflow.providers.cncf.kubernetes_resilience.pods.thread.runtime import KubernetesRuntime
from airflow.providers.cncf.kubernetes_resilience.pods.thread.session import CommandFunction

log = logging.getLogger(__name__)


class PodCommands:
    """
    Sends commands to the Kubernetes thread, and does not wait for them.

    A command that cannot be handed over to a crashed thread is kept until the thread is up again.

    :param own_labels: by which the pods of this scheduler and executor are selected
    """

    def __init__(self, runtime: KubernetesRuntime, own_labels: Mapping[str, str]) -> None:
        self._runtime = runtime
        self._own_labels = own_labels
        self.own_label = own_labels[SCHEDULER_LABEL]
        """Value of the label by which this scheduler's pods are selected."""
        self._unsent: list[Command] = []
        self._is_down = False

    @property
    def is_away(self) -> bool:
        """Whether the API server does not answer."""
        return self._runtime.is_away

    def send(self, command: Command) -> None:
        """Have a command carried out."""
        try:
            self._submit(command)
        except RuntimeError:
            self._unsent.append(command)

    def _submit(self, command: Command) -> None:
        submit, launcher = self._runtime.submit, self._runtime.launcher
        match command:
            case CreatePod(launch_id, body):
                submit(launcher.create, launch_id, body)
            case DeletePod(ref):
                submit(launcher.delete, ref, *command.conditions)
            case FindCreatedPod(namespace, name, launch_id):
                submit(launcher.look_for, namespace, name, launch_id)
            case CleanUpPod(ref):
                submit(launcher.clean_up, ref)
            case MarkPodDone(ref):
                submit(launcher.mark_done, ref)
            case StopAndKeepPod(ref):
                submit(launcher.stop_and_keep, ref)
            case ConfirmPod(ref):
                submit(launcher.confirm, ref)
            case AdoptPod(ref):
                submit(launcher.adopt, ref, self._own_labels)

    def cancel(self, launch_id: str) -> None:
        """Do not create the pod of a launch, if that was not sent yet; answered by ``PodNotCreated`` then."""
        with suppress(RuntimeError):  # if the thread is down, all calls are over
            self._runtime.submit(self._runtime.launcher.cancel, launch_id)

    def run(self, function: CommandFunction, *args: Any) -> None:
        """Run something periodic on the Kubernetes thread; skipped this time if the thread is down."""
        with suppress(RuntimeError):
            self._runtime.submit(function, *args)

    def revive(self) -> bool:
        """
        Start the thread again if it has crashed; return whether it is up again since the last call.

        This call does not wait for the thread's connection to the API server. Commands that were under way at
        the crash are lost, and have to be sent again, with :meth:`send_again`.
        """
        if not self._runtime.is_alive:
            self._start()
        if not self._is_down or not self._runtime.is_alive:
            return False
        self._is_down = False
        return True

    def send_again(self, commands: Iterable[Command]) -> None:
        """
        Have commands carried out that were lost with the thread, and those that it could not be given.

        :param commands: deletions that are not known to be carried out
        """
        # Finished pods that were to be deleted or labelled are not asked about: the new informer shows them.
        # Creations and confirmations are asked for again for each launch.
        unsent, self._unsent = self._unsent, []
        kept = [command for command in unsent if not isinstance(command, CreatePod | ConfirmPod)]
        for command in dict.fromkeys([*kept, *commands]):
            self.send(command)

    def _start(self) -> None:
        if not self._is_down:
            log.error("The Kubernetes thread has ended unexpectedly; starting it again")
        self._is_down = True
        try:
            self._runtime.start(wait=False)
        except Exception:
            # A file with credentials may be replaced at this moment. The scheduler goes on meanwhile.
            log.exception("The Kubernetes thread could not be started; trying again in the next loop")
