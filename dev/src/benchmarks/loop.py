# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Loop: results arrive and pods are deleted, while the scheduler is busy with other things too."""

from __future__ import annotations

from math import ceil

from benchmarks.harness import OURS, UPSTREAM, Lab
from benchmarks.pods import worker_status

SIZES = {UPSTREAM: 2000, OURS: 2000}
PAUSE = 0.1
"""Seconds that a busy scheduler spends on other things between two turns."""


def measure(lab: Lab, candidate: str, size: int) -> dict[str, float]:
    """Measure how long the scheduler's loop waits for an executor that gets results and deletes the pods."""
    status = worker_status()
    status.end_worker(0)
    with (
        lab.round(candidate, size) as round_,
        round_.cluster.observed() as observer,
        round_.executor("success") as executor,
    ):
        round_.cluster.report(round_.hold(executor), status.patch())
        costs = round_.settle(executor, PAUSE, lambda: min(executor.results(), observer.gone()))
    turns = sorted(executor.turns())
    return {
        "longest sync(), ms": turns[-1],
        "p99 of sync(), ms": turns[ceil(len(turns) * 0.99) - 1],
        **costs,
    }
