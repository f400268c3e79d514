# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Events: pods have ended while nobody looked, and then the executor starts.

All pods exist, with their final status, before its watch begins: the executor is measured, and not how fast
the API server takes status changes. The clock starts with the executor, and ends when the loop has read the
last result from the event buffer. The same pods are then read by nobody's logic.
"""

from __future__ import annotations

from benchmarks.harness import OURS, UPSTREAM, Lab
from benchmarks.pods import worker_status

SIZES = {UPSTREAM: 10_000, OURS: 10_000}
PAUSE = 0.005
"""Seconds between two turns of the loop: none is waited for."""


def measure(lab: Lab, candidate: str, size: int) -> dict[str, float]:
    """Measure how fast results of pods that have failed at work arrive in the event buffer."""
    status = worker_status()
    status.end_worker(1)
    with lab.round(candidate, size) as round_, round_.executor("running") as executor:
        round_.cluster.report(round_.hold(executor), status.patch())
        raw_rate = round_.cluster.raw_rate()
        costs = round_.settle(executor, PAUSE, executor.results)
        cpu = executor.cpu_seconds() - executor.notes("started")[0]["value"]
    rate = size / executor.seconds()
    return {
        "results per s": rate,
        "pods per s, read and decoded": raw_rate,
        "share of that, %": rate / raw_rate * 100,
        "CPU ms per event": cpu / size * 1000,
        "longest sync(), ms": max(executor.turns()),
        **costs,
    }
