# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Memory: of a real scheduler that has nothing to do, that has many pods, and after a burst of events.

What a single tracked pod adds is lost in what the scheduler itself needs to queue many tasks at once, and
does not give back. It is measured in a clean process, with what is free given back before each look, and from
a few pods on: with the first come modules and caches that the thousands after them share.
"""

from __future__ import annotations

from statistics import median

from benchmarks.candidates import Candidate
from benchmarks.executor_process import ExecutorProcess
from benchmarks.lab import Lab, Round, pause
from benchmarks.measure.launch import launch_all
from benchmarks.pods import running, running_again
from benchmarks.processes import proportional_set_size
from benchmarks.scheduler_process import SchedulerProcess

MEGABYTE = 2**20
SETTLING = 10.0
"""Seconds; some turns of the loop, in which children that were forked come to have memory of their own."""

FEW = 10
"""Of so many pods one is among the first."""

LOOP = 0.1
"""Seconds between two turns in the clean process."""


def measure_memory(lab: Lab, candidate: Candidate, size: int) -> dict[str, float]:
    """Measure the memory of a scheduler and its children, and what each pod adds to it."""
    with lab.round(candidate, size) as round_:
        whole = _scheduler(round_)
    with lab.round(candidate, size) as round_:
        return whole | _tracked_pods(round_)


def _scheduler(round_: Round) -> dict[str, float]:
    with round_.cluster.observed() as observer, round_.scheduler() as scheduler:
        empty = _settled(scheduler)
        launch_all(round_, scheduler, observer)
        round_.database.set_state("running", job_id=round_.database.newest_job())
        tracked = _settled(scheduler)
        names = [pod.name for pod in observer.alive()]
        # Two events of each pod, both of which change something.
        for status in (running(), running_again()):
            round_.cluster.report(names, status)
        after = _settled(scheduler)
    return {"empty": empty, "tracked": tracked, "after_burst": after}


def _settled(scheduler: SchedulerProcess) -> float:
    pause(SETTLING)
    return proportional_set_size(scheduler.pid) / MEGABYTE


def _tracked_pods(round_: Round) -> dict[str, float]:
    job_id = round_.database.add_scheduler_job()
    round_.database.set_state("running", job_id)
    few = round_.size // FEW
    with round_.executor(job_id) as executor:
        executor.call("start")
        idle_turn = _turn(executor)
        _track(round_, executor, job_id, slice(few))
        with_few = _trimmed(executor, few)
        _track(round_, executor, job_id, slice(few, round_.size))
        growth = _trimmed(executor, round_.size) - with_few
        return {
            "growth": growth,
            "bytes_per_pod": growth / (round_.size - few),
            "idle_turn": idle_turn,
            "tracked_turn": _turn(executor),
        }


def _track(round_: Round, executor: ExecutorProcess, job_id: int, indices: slice) -> None:
    pods = round_.make_pods(job_id, indices)
    executor.call("hold", pods=[(pod.name, pod.uid) for pod in pods], first=indices.start or 0)
    executor.turn(LOOP)
    round_.cluster.report([pod.name for pod in pods], running())


def _trimmed(executor: ExecutorProcess, pods: int) -> int:
    executor.settle(pods, LOOP)
    executor.call("trim")
    return executor.memory()


def _turn(executor: ExecutorProcess) -> float:
    run = executor.call("run", pause=LOOP / 10, timeout=SETTLING / 5)
    return float(median(run["turns"]))
