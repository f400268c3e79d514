# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The scheduler thread's way to the Kubernetes thread, which may have crashed and come back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Command, Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodRef
from airflow.providers.cncf.kubernetes_resilience.pods.thread.runtime import KubernetesRuntime
from airflow.providers.cncf.kubernetes_resilience.pods.thread.session import CommandFunction

log = logging.getLogger(__name__)


class PodCommands:
    """
    Asks for something to be done to a pod, and does not wait for it.

    A command that cannot be handed over because the thread is down is kept until it is up again.
    """

    def __init__(self, runtime: KubernetesRuntime) -> None:
        self._runtime = runtime
        self._unsent: list[Command] = []
        self._is_down = False

    def create(self, launch_id: str, body: dict[str, Any]) -> None:
        """Create the pod of a launch; answered by ``PodCreated`` or ``PodNotCreated``."""
        self.send(("create", (launch_id, body)))

    def call_off(self, launch_id: str) -> None:
        """Do not create the pod of a launch, if that was not sent yet; answered by ``PodNotCreated`` then."""
        with suppress(RuntimeError):  # if the thread is down, all calls are over
            self._runtime.submit(self._runtime.launcher.call_off, launch_id)

    def delete(self, ref: PodRef) -> None:
        """Delete a pod, and no other of its name."""
        self.send(("delete", (ref,)))

    def clean_up(self, ref: PodRef) -> None:
        """Delete a pod that has ended."""
        self.send(("clean_up", (ref,)))

    def mark_done(self, ref: PodRef) -> None:
        """Take a pod that is kept out of the executor's sight."""
        self.send(("mark_done", (ref,)))

    def stop_and_keep(self, ref: PodRef) -> None:
        """Stop what runs in a pod that is kept, and take it out of the executor's sight."""
        self.send(("stop_and_keep", (ref,)))

    def confirm(self, ref: PodRef) -> None:
        """Ask what is true of a pod now; answered by ``PodConfirmed``."""
        self.send(("confirm", (ref,)))

    def adopt(self, ref: PodRef, labels: Mapping[str, str]) -> None:
        """Put a scheduler's labels on a pod."""
        self.send(("adopt", (ref, labels)))

    def run(self, function: CommandFunction, *args: Any) -> None:
        """Run something periodic on the Kubernetes thread; left out this time if the thread is down."""
        with suppress(RuntimeError):
            self._runtime.submit(function, *args)

    def revive(self, registry: LaunchRegistry, create: Callable[[Launch], None]) -> None:
        """
        Start the thread again if it has crashed, and ask again for what was lost with it.

        It does not wait until the thread has connected to the API server: what is to be asked for is then
        asked for in a later call.

        :param create: asks for the creation of a launch's pod
        """
        if not self._runtime.is_alive:
            self._start()
        if self._is_down and self._runtime.is_alive:
            self._is_down = False
            self._ask_again(registry, create)

    def _start(self) -> None:
        if not self._is_down:
            log.error("The Kubernetes thread has ended unexpectedly; starting it again")
        self._is_down = True
        try:
            self._runtime.start(wait=False)
        except Exception:
            # A file with credentials may be replaced at this moment. The scheduler goes on meanwhile.
            log.exception("The Kubernetes thread could not be started; trying again in the next loop")

    def _ask_again(self, registry: LaunchRegistry, create: Callable[[Launch], None]) -> None:
        # Finished pods that were to be deleted or labelled are not asked about: the new informer shows them.
        unsent, self._unsent = self._unsent, []
        kept = [command for command in unsent if command[0] not in ("create", "confirm")]  # they are below
        for command in dict.fromkeys([*kept, *registry.pending_deletions()]):
            self.send(command)
        for launch in registry:
            launch.calls = 0  # nobody will answer them
            if launch.ref:
                # The new informer does not know the pod, and would not notice that it is gone.
                self.confirm(launch.ref)
            elif launch.body:
                create(launch)

    def send(self, command: Command) -> None:
        """Have a command carried out, which is written down in a form that can be repeated."""
        name, args = command
        try:
            self._runtime.submit(getattr(self._runtime.launcher, name), *args)
        except RuntimeError:
            self._unsent.append(command)
