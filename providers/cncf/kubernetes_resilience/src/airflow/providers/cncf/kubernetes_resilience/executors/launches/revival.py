# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What is asked for again after the Kubernetes thread has crashed."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import ConfirmPod, PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import LaunchState, NextAttempt
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry


def revive(commands: PodCommands, registry: LaunchRegistry) -> None:
    """Start the Kubernetes thread again if it has crashed, and ask again for what was lost with it."""
    if not commands.revive():
        return
    commands.send_again(registry.pending_deletions())
    for launch in (*registry, *registry.in_state(LaunchState.DEPARTING)):
        launch.calls = 0  # nobody will answer them
        if launch.creation and launch.creation.next_attempt is None:
            launch.creation.was_unclear = True
            launch.creation.next_attempt = NextAttempt(0.0)
        elif launch.ref and registry.is_current(launch):
            # The new informer does not know the pod, and would not notice that it is gone.
            commands.send(ConfirmPod(launch.ref))
