# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Drain, with a real scheduler: all pods fail at one instant."""

from __future__ import annotations

import random
import time
from statistics import median

from benchmarks.harness import OURS, PATIENCE, TUNED, UPSTREAM, Lab
from benchmarks.pods import worker_status

SIZES = {UPSTREAM: 60, TUNED: 300, OURS: 300}


def measure(lab: Lab, candidate: str, size: int) -> dict[str, float]:
    """Measure how long each task is without a pod."""
    costs: dict[str, float] = {}
    status = worker_status()
    status.end_worker(128, "StartError")
    with lab.round(candidate, size) as round_, round_.cluster.observed() as observer:
        with round_.scheduler() as scheduler:
            round_.launch_all(scheduler, observer)
            scheduler.wait_for_turns()
            # At any point of the loop.
            time.sleep(random.random())
            with round_.costs(costs):
                round_.cluster.report([pod.name for pod in observer.alive()], status.patch())
                scheduler.wait_until(
                    "all pods are replaced", lambda: len(observer.pods) >= 2 * size, PATIENCE
                )
        waits = []
        for first, second in observer.replaced():
            assert first.failed
            waits.append(second.created - first.failed)
    return {"p50 until replaced, s": median(waits), "longest, s": max(waits), **costs}
