# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Storm: an image registry is away for all pods, and comes back.

What launches cost that are held is measured in the scheduler that had them pending before. The return counts
from the moment at which the one pod that was made to find out runs.
"""

from __future__ import annotations

import time
from statistics import median

from benchmarks.harness import OURS, PATIENCE, AirflowProcess, Lab
from benchmarks.pods import worker_status
from cluster_lab.faults.scenarios import REGISTRY_AWAY

SIZES = {OURS: 1000}
WINDOW = 20.0
"""Seconds in which turns are looked at; the first probe is made meanwhile, which is a turn of them."""
FIRST = 300
"""As many launches as ``launch`` has."""


def measure(lab: Lab, candidate: str, size: int) -> dict[str, float]:
    """Measure what held launches cost beside pending ones, and how fast they are made in the end."""
    away, back = worker_status(), worker_status()
    away.wait("ErrImagePull", REGISTRY_AWAY)
    back.run()
    with lab.round(candidate, size) as round_, round_.cluster.observed() as observer:
        with round_.scheduler() as scheduler:
            round_.launch_all(scheduler, observer)
            pending_turn, pending_memory = _costs(scheduler)
            round_.cluster.report([pod.name for pod in observer.alive()], away.patch())
            scheduler.wait_until("all pods are deleted", lambda: observer.gone() >= size, PATIENCE)
            held_turn, held_memory = _costs(scheduler)
            scheduler.wait_until("a probe is made", lambda: len(observer.alive()) == 1, PATIENCE)
            (probe,) = observer.alive()
            returned = time.time()
            round_.cluster.report([probe.name], back.patch())
            scheduler.wait_until("all are launched", lambda: len(observer.alive()) >= size, PATIENCE)
        created = sorted(pod.created for pod in observer.alive() if pod is not probe)
    return {
        "sync() with all pending, ms": pending_turn,
        "sync() with all held, ms": held_turn,
        "all pending, MB": pending_memory,
        "all held, MB": held_memory,
        "memory, held by pending": held_memory / pending_memory,
        "s from the return to the last of 300": created[:FIRST][-1] - returned,
        "s from the return to the last": created[-1] - returned,
    }


def _costs(scheduler: AirflowProcess) -> tuple[float, float]:
    """Return the median duration of a turn, in milliseconds, and the scheduler's memory, in megabytes."""
    scheduler.wait_for_turns()
    began = time.time()
    time.sleep(WINDOW)
    return median(scheduler.turns(since=began)), scheduler.memory()
