# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Launch, with a real scheduler.

The tasks wait in the database, of a DAG that is paused, until the scheduler idles. Then it may have all of
them, and the clock starts when it turns to the executor with the first.
"""

from __future__ import annotations

from benchmarks.harness import OURS, TUNED, UPSTREAM, Lab

SIZES = {UPSTREAM: 60, TUNED: 300, OURS: 300}


def measure(lab: Lab, candidate: str, size: int) -> dict[str, float]:
    """Measure how fast pods come into being."""
    costs: dict[str, float] = {}
    with lab.round(candidate, size) as round_, round_.cluster.observed() as observer:
        with round_.scheduler() as scheduler, round_.costs(costs):
            began = round_.launch_all(scheduler, observer)
        seconds = sorted(pod.created for pod in observer.pods.values())[size - 1] - began
        longest = max(scheduler.turns(since=began))
    return {
        "pods per s": size / seconds,
        "s until the last exists": seconds,
        "longest sync(), ms": longest,
        **costs,
    }
