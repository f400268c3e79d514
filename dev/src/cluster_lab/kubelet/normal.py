# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The life of a pod to which nothing happens."""

from __future__ import annotations

from cluster_lab.kubelet.pod import PodRun


async def run_normally(run: PodRun) -> None:
    """Pending, Running, then Succeeded or Failed as the worker process ends."""
    await prepare(run)
    if await run.start_worker():
        await run.await_worker()


async def prepare(run: PodRun) -> None:
    """Report the pod as accepted, and its init containers (simulated, they succeed at once) as done."""
    await run.report()
    if run.status.has_init_containers:
        run.status.initialize()
        await run.report()
