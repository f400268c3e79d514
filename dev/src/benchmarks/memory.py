# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Memory: of a real scheduler that has nothing to do, that has many pods, and after a burst of events.

What a single tracked pod adds is lost in what the scheduler itself needs to queue many tasks at once, and
does not give back. It is measured in a clean process, with what is free given back before each look, and from
a few pods on: with the first come modules and caches that the thousands after them share.
"""

from __future__ import annotations

import time
from statistics import median

from benchmarks.harness import MEGABYTE, OURS, PATIENCE, TUNED, AirflowProcess, Lab, Round
from benchmarks.pods import pod_name, worker_status
from cluster_lab.client import JsonObject

SIZES = {TUNED: 5000, OURS: 5000}

SETTLING = 10.0
"""Seconds; some turns of the loop, in which children that were forked come to have memory of their own."""
FEW = 10
"""Of so many pods one is among the first."""
TURNS = 100
"""Of so many the median is taken."""
PAUSE = 0.01
"""Seconds between two turns in the clean process."""


def measure(lab: Lab, candidate: str, size: int) -> dict[str, float]:
    """Measure the memory of a scheduler and its children, and what each pod adds to it."""
    with lab.round(candidate, size) as round_:
        whole = _scheduler(round_)
    with lab.round(candidate, size) as round_:
        return whole | _tracked_pods(round_)


def _scheduler(round_: Round) -> dict[str, float]:
    with round_.cluster.observed() as observer, round_.scheduler() as scheduler:
        empty = _settled(scheduler)
        round_.launch_all(scheduler, observer)
        (job_id,) = round_.execute("SELECT max(id) FROM job WHERE job_type = 'SchedulerJob'")
        round_.set_state("running", job_id)
        tracked = _settled(scheduler)
        names = [pod.name for pod in observer.alive()]
        # Two events of each pod, both of which change something.
        for status in (_running(), {"conditions": [{"type": "example.com/checked", "status": "True"}]}):
            round_.cluster.report(names, status)
        burst = _settled(scheduler)
    return {"empty, MB": empty, "all pods tracked, MB": tracked, "after the burst, MB": burst}


def _settled(scheduler: AirflowProcess) -> float:
    time.sleep(SETTLING)
    return scheduler.memory()


def _tracked_pods(round_: Round) -> dict[str, float]:
    few = round_.size // FEW
    with round_.executor("running") as executor:
        executor.tell("start", PAUSE)
        idle_turn = _turn(executor)
        with_few = _track(round_, executor, slice(few))
        growth = _track(round_, executor, slice(few, round_.size)) - with_few
        values = {
            "growth per pod, bytes": growth * MEGABYTE / (round_.size - few),
            "sync() with no pods, ms": idle_turn,
            "sync() with all, ms": _turn(executor),
        }
        # What an executor costs that watches nothing is no result.
        failed = worker_status()
        failed.end_worker(1)
        round_.cluster.report([pod_name(0)], failed.patch())
        executor.wait_until("it has seen what becomes of a pod", lambda: executor.results() == 1, PATIENCE)
    return values


def _track(round_: Round, executor: AirflowProcess, indices: slice) -> float:
    """Have the executor track pods whose workers run, and return its memory."""
    executor.tell("turn", None)
    names = round_.hold(executor, indices)
    executor.tell("turn", PAUSE)
    round_.cluster.report(names, _running())
    time.sleep(SETTLING)
    executor.tell("trim")
    return executor.memory()


def _turn(executor: AirflowProcess) -> float:
    executor.wait_for_turns(TURNS)
    return median(executor.turns()[-TURNS:])


def _running() -> JsonObject:
    status = worker_status()
    status.run()
    return status.patch()
