# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Launch and drain, with a real scheduler.

The tasks wait in the database, of a DAG that is paused, until the scheduler idles. Then it may have all of
them, and the clock starts when it turns to the executor with the first.
"""

from __future__ import annotations

import random
from statistics import median

from benchmarks.candidates import Candidate
from benchmarks.lab import Lab, Round, pause
from benchmarks.observer import Observer
from benchmarks.pods import never_started
from benchmarks.scheduler_process import SchedulerProcess
from testbed.waiting import wait_for

PODS_PER_SECOND = 0.5
"""So slow may a candidate be, before it is given up."""

MARGIN = 60.0


def measure_launch(lab: Lab, candidate: Candidate, size: int) -> dict[str, float]:
    """Measure how fast pods come into being."""
    values: dict[str, float] = {}
    with lab.round(candidate, size) as round_, round_.cluster.observed() as observer:
        with round_.scheduler() as scheduler, round_.costs(values):
            began = launch_all(round_, scheduler, observer)
        created = sorted(pod.created for pod in observer.pods.values())
        turns = scheduler.turns().since(began)
    seconds = created[size - 1] - began
    return {"rate": size / seconds, "seconds": seconds, "longest_turn": max(turns.durations), **values}


def measure_drain(lab: Lab, candidate: Candidate, size: int) -> dict[str, float]:
    """Measure how long each task is without a pod after all pods have failed at one instant."""
    values: dict[str, float] = {}
    with lab.round(candidate, size) as round_, round_.cluster.observed() as observer:
        with round_.scheduler() as scheduler:
            launch_all(round_, scheduler, observer)
            scheduler.wait_until_idle()
            # At any point of the loop.
            pause(random.random())
            with round_.costs(values):
                round_.cluster.report([pod.name for pod in observer.alive()], never_started())
                _wait_for_pods(observer, 2 * size, size)
        waits = [_wait(observer, index) for index in range(size)]
    return {"p50": median(waits), "max": max(waits), **values}


def launch_all(round_: Round, scheduler: SchedulerProcess, observer: Observer) -> float:
    """Let the scheduler launch all tasks; return when the executor was given them, once all pods exist."""
    round_.database.set_state("scheduled")
    scheduler.wait_until_idle()
    round_.database.pause(paused=False)
    _wait_for_pods(observer, round_.size, round_.size)
    return scheduler.turns().work[0]


def _wait_for_pods(observer: Observer, count: int, size: int) -> None:
    timeout = MARGIN + size / PODS_PER_SECOND
    wait_for(f"{count} pods exist", lambda: len(observer.pods) >= count, timeout, lambda: len(observer.pods))


def _wait(observer: Observer, map_index: int) -> float:
    first, second = observer.of_task(map_index)[:2]
    assert first.failed is not None
    return second.created - first.failed
