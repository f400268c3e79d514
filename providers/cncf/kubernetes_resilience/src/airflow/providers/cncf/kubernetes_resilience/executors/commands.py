# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The scheduler thread's way to the Kubernetes thread, which may have crashed and come back."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from airflow.providers.cncf.kubernetes_resilience.executors.launches import Launch
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodRef
from airflow.providers.cncf.kubernetes_resilience.pods.runtime import KubernetesRuntime
from airflow.providers.cncf.kubernetes_resilience.pods.session import CommandFunction

log = logging.getLogger(__name__)


class PodCommands:
    """
    Asks for something to be done to a pod, and does not wait for it.

    A command that cannot be handed over because the thread is down is kept until it is up again.
    """

    def __init__(self, runtime: KubernetesRuntime) -> None:
        self._runtime = runtime
        self._unsent: list[tuple[str, tuple[Any, ...]]] = []

    def create(self, launch_id: str, body: dict[str, Any]) -> None:
        """Create the pod of a launch; answered by ``PodCreated`` or ``PodNotCreated``."""
        self._send("create", launch_id, body)

    def delete(self, ref: PodRef) -> None:
        """Delete a pod, and no other of its name."""
        self._send("delete", ref)

    def delete_by_name(self, namespace: str, name: str, launch_id: str) -> None:
        """Delete the pod of a launch whose creation has had no clear answer."""
        self._send("delete_by_name", namespace, name, launch_id)

    def mark_done(self, ref: PodRef) -> None:
        """Take a pod that is kept out of the executor's sight."""
        self._send("mark_done", ref)

    def confirm(self, ref: PodRef) -> None:
        """Ask what is true of a pod now; answered by ``PodConfirmed``."""
        self._send("confirm", ref)

    def run(self, function: CommandFunction, *args: Any) -> None:
        """Run something periodic on the Kubernetes thread; left out this time if the thread is down."""
        with suppress(RuntimeError):
            self._runtime.submit(function, *args)

    def revive(self, launches: Iterable[Launch]) -> None:
        """
        Start the thread again if it has crashed, and ask again for what may have been lost with it.

        :param launches: the current launches
        """
        if self._runtime.is_alive:
            return
        log.error("The Kubernetes thread has ended unexpectedly; starting it again")
        try:
            self._runtime.start()
        except Exception:
            # A file with credentials may be replaced at this moment. The scheduler goes on meanwhile.
            log.exception("The Kubernetes thread could not be started; trying again in the next loop")
            return
        unsent, self._unsent = self._unsent, []
        for name, args in unsent:
            if name not in ("create", "confirm"):  # asked for below
                self._send(name, *args)
        for launch in launches:
            if launch.ref:
                # The new informer does not know the pod, and would not notice that it is gone.
                self.confirm(launch.ref)
            elif launch.body:
                self.create(launch.launch_id, launch.body)

    def _send(self, name: str, *args: Any) -> None:
        try:
            self._runtime.submit(getattr(self._runtime.launcher, name), *args)
        except RuntimeError:
            self._unsent.append((name, args))
