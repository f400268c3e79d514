# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Relaunch: one pod dies, in each of several ways, and another one is created by a real scheduler.

"Beyond the loop" is the time from the begin of the first turn after the death to the replacement: what is
before it the scheduler spends on other things, or asleep. An executor that needs a second turn pays for it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from statistics import median

from benchmarks.candidates import Candidate
from benchmarks.cluster import Cluster
from benchmarks.lab import Lab, pause
from benchmarks.observer import Observer
from benchmarks.pods import Json, disrupted, ended, never_started
from benchmarks.scheduler_process import SchedulerProcess
from testbed.waiting import wait_for

PATIENCE = 10.0
"""Seconds after which a replacement is taken for one that does not come; it counts as so much."""


def _drain(cluster: Cluster, pod: str) -> None:
    cluster.report([pod], disrupted(ended("Failed", 143, "Error"), "EvictionByEvictionAPI"))
    cluster.delete([pod])


def _reporting(status: Json) -> Callable[[Cluster, str], None]:
    return lambda cluster, pod: cluster.report([pod], status)


_INIT_FAILURE: Json = {
    "phase": "Failed",
    "initContainerStatuses": [
        {
            "name": "git-sync",
            "image": "git-sync",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": 1, "reason": "Error"}},
        }
    ],
}

WAYS: dict[str, Callable[[Cluster, str], None]] = {
    "start error": _reporting(never_started()),
    "container lost": _reporting(ended("Failed", 137, "ContainerStatusUnknown")),
    "out of memory": _reporting(ended("Failed", 137, "OOMKilled")),
    "evicted": _reporting({"phase": "Failed", "reason": "Evicted", "message": "low on resource: memory"}),
    "drained": _drain,
    "init container": _reporting(_INIT_FAILURE),
    "deleted": lambda cluster, pod: cluster.delete([pod]),
}


def measure_relaunch(lab: Lab, candidate: Candidate, size: int) -> dict[str, float]:
    """
    Measure the time without a pod, for each way to die.

    :param size: how many tasks, at least as many as there are ways
    """
    ways = list(WAYS)
    deaths: list[tuple[str, float, float]] = []
    with (
        lab.round(candidate, size) as round_,
        round_.cluster.observed() as observer,
        round_.scheduler() as scheduler,
    ):
        round_.database.set_state("scheduled")
        round_.database.pause(paused=False)
        pods = observer.pods
        wait_for(f"{size} pods exist", lambda: len(pods) >= size, 60.0 + 2 * size, lambda: len(pods))
        scheduler.wait_until_idle()
        for index in range(size):
            way = ways[index % len(ways)]
            # At any point of the loop.
            pause(random.random())
            deaths.append((way, *_relaunch(round_.cluster, observer, scheduler, index, way)))
    values = {way: median(beyond for name, _, beyond in deaths if name == way) for way in ways}
    return {
        "total": median(total for _, total, _ in deaths),
        "beyond_loop": median(beyond for *_, beyond in deaths),
        "not_replaced": sum(total >= PATIENCE for _, total, _ in deaths) / size,
        **values,
    }


def _relaunch(
    cluster: Cluster, observer: Observer, scheduler: SchedulerProcess, index: int, way: str
) -> tuple[float, float]:
    """Kill a pod; return the seconds until there is another one, all of them and those beyond the loop."""
    (pod,) = observer.of_task(index)
    WAYS[way](cluster, pod.name)
    died = _death(observer, index)
    deadline = time.time() + PATIENCE
    while len(pods := observer.of_task(index)) < 2:
        if time.time() > deadline:
            return PATIENCE, PATIENCE
        pause(0.01)
    created = pods[1].created
    return created - died, created - scheduler.turns().since(died).begin[0]


def _death(observer: Observer, index: int) -> float:
    def times() -> list[float]:
        pod = observer.of_task(index)[0]
        return [at for at in (pod.failed, pod.gone) if at is not None]

    return min(wait_for("the pod is dead", times))
