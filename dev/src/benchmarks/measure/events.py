# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Events: pods have ended while nobody looked, and then the executor starts.

All pods exist, with their final status, before its watch begins, so that it is the executor that is measured
and not how fast the API server takes status changes. The clock starts with the executor, and ends when the
loop has read the last result from the event buffer. The same pods are then read by nobody's logic.
"""

from __future__ import annotations

from benchmarks.candidates import Candidate
from benchmarks.lab import Lab, Round
from benchmarks.pods import Json, failed, succeeded
from benchmarks.values import percentile
from testbed.waiting import wait_for

PAUSE = 0.005
"""Seconds between two turns of the loop: none is waited for."""

BUSY_PAUSE = 0.1
"""Seconds that a busy scheduler spends on other things between two turns."""

PODS_PER_SECOND = 10.0
"""So slow may a candidate be, before it is given up."""

MARGIN = 30.0


def measure_events(lab: Lab, candidate: Candidate, size: int) -> dict[str, float]:
    """Measure how fast results of pods that have failed at work arrive in the event buffer."""
    with lab.round(candidate, size) as round_:
        job_id = round_.database.add_scheduler_job()
        names = _end_all(round_, job_id, "running", failed())
        raw = round_.cluster.raw_rate()
        values: dict[str, float] = {}
        with round_.executor(job_id) as executor:
            executor.call("hold", pods=names)
            used = executor.cpu_seconds()
            with round_.costs(values):
                start = executor.call("start")
                run = executor.call("run", pause=PAUSE, results=size, timeout=_patience(size))
            used = executor.cpu_seconds() - used
    _check(run["results"], size)
    seconds = start + run["seconds"]
    rate = size / seconds
    return {
        "rate": rate,
        "seconds": seconds,
        "raw_rate": raw.pods_per_second,
        "share_of_raw": rate / raw.pods_per_second,
        "longest_turn": max(run["turns"]),
        "cpu": used,
        "cpu_per_event": used / size,
        "bytes_per_pod": raw.bytes_per_pod,
        **values,
    }


def measure_loop(lab: Lab, candidate: Candidate, size: int) -> dict[str, float]:
    """Measure how long the scheduler's loop waits for an executor that gets results and deletes the pods."""
    with lab.round(candidate, size) as round_:
        job_id = round_.database.add_scheduler_job()
        names = _end_all(round_, job_id, "success", succeeded())
        values: dict[str, float] = {}
        with round_.executor(job_id) as executor, round_.cluster.observed() as observer:
            executor.call("hold", pods=names)
            with round_.costs(values):
                executor.call("start")
                executor.turn(BUSY_PAUSE)
                wait_for("all pods are deleted", lambda: observer.gone() == size, _patience(size))
                run = executor.halt()
    _check(run["results"], size)
    return {
        "longest": max(run["turns"]),
        "p99": percentile(run["turns"], 99),
        "turns": len(run["turns"]),
        **values,
    }


def _end_all(round_: Round, job_id: int, state: str, status: Json) -> list[tuple[str, str]]:
    round_.database.set_state(state, job_id)
    pods = round_.make_pods(job_id)
    round_.cluster.report([pod.name for pod in pods], status)
    return [(pod.name, pod.uid) for pod in pods]


def _patience(size: int) -> float:
    return MARGIN + size / PODS_PER_SECOND


def _check(found: int, size: int) -> None:
    if found != size:
        raise RuntimeError(f"{found} results of {size} pods")
