# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Storm: an image registry is away for all pods, and comes back.

What launches cost that are held is measured in the scheduler that had them pending before. The return counts
from the moment at which the one pod that was made to find out runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from benchmarks.candidates import Candidate
from benchmarks.lab import Lab, pause
from benchmarks.measure.launch import PODS_PER_SECOND, launch_all
from benchmarks.measure.memory import MEGABYTE
from benchmarks.pods import image_not_pulled, running
from benchmarks.processes import proportional_set_size
from benchmarks.scheduler_process import SchedulerProcess
from testbed.waiting import wait_for

WINDOW = 20.0
"""Seconds in which turns are looked at; the first probe is made meanwhile, which is a turn of them."""

FIRST = 300
"""As many launches as ``launch`` has."""

MARGIN = 120.0


def measure_storm(lab: Lab, candidate: Candidate, size: int) -> dict[str, float]:
    """Measure what held launches cost beside pending ones, and how fast they are made in the end."""
    with lab.round(candidate, size) as round_, round_.cluster.observed() as observer:
        with round_.scheduler() as scheduler:
            launch_all(round_, scheduler, observer)
            pending = _costs(scheduler)
            round_.cluster.report([pod.name for pod in observer.alive()], image_not_pulled())
            _wait_until("deleted", observer.gone, size)
            held = _costs(scheduler)
            wait_for("a probe is made", lambda: len(observer.alive()) == 1, MARGIN)
            (probe,) = observer.alive()
            back = time.time()
            round_.cluster.report([probe.name], running())
            _wait_until("launched", lambda: len(observer.alive()), size)
        created = sorted(pod.created for pod in observer.alive() if pod is not probe)
    return {
        "pending_turn": pending[0],
        "held_turn": held[0],
        "pending_memory": pending[1],
        "held_memory": held[1],
        "memory_ratio": held[1] / pending[1],
        "first": created[min(FIRST, len(created)) - 1] - back,
        "seconds": created[-1] - back,
    }


def _costs(scheduler: SchedulerProcess) -> tuple[float, float]:
    """Return the median duration of a turn, in seconds, and the scheduler's memory, in megabytes."""
    scheduler.wait_until_idle()
    began = time.time()
    pause(WINDOW)
    return median(scheduler.turns().since(began).durations), proportional_set_size(scheduler.pid) / MEGABYTE


def _wait_until(what: str, count: Callable[[], int], size: int) -> None:
    wait_for(f"all pods are {what}", lambda: count() >= size, MARGIN + size / PODS_PER_SECOND, count)
