# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Events: pods have ended while nobody looked, and then the executor starts.

All pods exist, with their final status, before its watch begins, so that it is the executor that is measured
and not how fast the API server takes status changes. The clock starts with the executor, and ends when the
loop has read the last result from the event buffer. The same pods are then read by nobody's logic.

Lost is the same with pods whose nodes were shut down while their tasks ran: to the executor all of them are
lost at one instant. With an infrastructure budget no result comes of that, but another pod for each task.
"""

from __future__ import annotations

import time

from benchmarks.candidates import Candidate
from benchmarks.executor_process import ExecutorProcess
from benchmarks.lab import Lab, Round
from benchmarks.observer import Observer
from benchmarks.pods import Json, failed, shut_down, succeeded
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
                seconds, turns = _report(executor, size)
            used = executor.cpu_seconds() - used
    rate = size / seconds
    return {
        "rate": rate,
        "seconds": seconds,
        "raw_rate": raw.pods_per_second,
        "share_of_raw": rate / raw.pods_per_second,
        "longest_turn": max(turns),
        "cpu": used,
        "cpu_per_event": used / size,
        "bytes_per_pod": raw.bytes_per_pod,
        **values,
    }


def measure_lost(lab: Lab, candidate: Candidate, size: int) -> dict[str, float]:
    """
    Measure how long it takes until running tasks whose nodes are gone are reported, or have another pod.

    :raises RuntimeError: if not all of them are reported
    :raises AssertionError: if not all of them have another pod, where that is what is to come
    """
    with lab.round(candidate, size) as round_, round_.cluster.observed() as observer:
        job_id = round_.database.add_scheduler_job()
        pods = _end_all(round_, job_id, "running", shut_down())
        round_.database.set_hostnames([name for name, _ in pods])
        values: dict[str, float] = {}
        with round_.executor(job_id) as executor:
            executor.call("hold", pods=pods)
            with round_.costs(values):
                if candidate is Candidate.WITH_BUDGET:
                    values["replaced"], turns = _replace(executor, observer, size)
                else:
                    values["reported"], turns = _report(executor, size)
    return {"longest_turn": max(turns), **values}


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
                wait_for(
                    f"{size} pods are deleted",
                    lambda: observer.gone() == size,
                    _patience(size),
                    observer.gone,
                )
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


def _report(executor: ExecutorProcess, size: int) -> tuple[float, list[float]]:
    """Start the executor; return the seconds until the last result was read, and those of each turn."""
    start = executor.call("start")
    run = executor.call("run", pause=PAUSE, results=size, timeout=_patience(size))
    _check(run["results"], size)
    return start + run["seconds"], run["turns"]


def _replace(executor: ExecutorProcess, observer: Observer, size: int) -> tuple[float, list[float]]:
    """Start the executor; return the seconds until the last task had another pod, and those of each turn."""
    began = time.time()
    executor.call("start")
    executor.turn(PAUSE)
    pods = observer.pods
    wait_for(f"{2 * size} pods exist", lambda: len(pods) >= 2 * size, _patience(size), lambda: len(pods))
    turns = executor.halt()["turns"]
    return max(second.created for _, second in map(observer.of_task, range(size))) - began, turns


def _patience(size: int) -> float:
    return MARGIN + size / PODS_PER_SECOND


def _check(found: int, size: int) -> None:
    if found != size:
        raise RuntimeError(f"{found} results of {size} pods")
