# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Idle: pods run, and nothing happens to them; then nothing happens but that the connections break once."""

from __future__ import annotations

from benchmarks.candidates import Candidate
from benchmarks.executor_process import ExecutorProcess
from benchmarks.lab import Lab, Round, pause
from benchmarks.pods import running

WINDOW = 60.0
"""Seconds that are measured. The official executor's watch breaks twice in them, by itself."""

QUICK_WINDOW = 10.0
FEW = 1000
"""With fewer pods, a quick look is meant."""

LOOP = 1.0
"""Seconds between two turns of a scheduler that has nothing to do."""


def measure_idle(lab: Lab, candidate: Candidate, size: int) -> dict[str, float]:
    """Measure the processor time of an executor whose pods run, in seconds per minute."""
    window = WINDOW if size >= FEW else QUICK_WINDOW
    with lab.round(candidate, size) as round_:
        job_id = round_.database.add_scheduler_job()
        round_.database.set_state("running", job_id)
        pods = round_.make_pods(job_id)
        round_.cluster.report([pod.name for pod in pods], running())
        with round_.executor(job_id) as executor:
            executor.call("hold", pods=[(pod.name, pod.uid) for pod in pods])
            executor.call("start")
            executor.settle(size, LOOP)
            return _quiet(executor, round_, window) | _reconnect(executor, round_, window)


def _quiet(executor: ExecutorProcess, round_: Round, window: float) -> dict[str, float]:
    used, passed, events = executor.cpu_seconds(), round_.relay.bytes, executor.events()
    run = executor.call("run", pause=LOOP, timeout=window)
    return {
        "quiet": (executor.cpu_seconds() - used) * 60 / window,
        "quiet_megabytes": (round_.relay.bytes - passed) / 1e6 * 60 / window,
        "quiet_events": executor.events() - events,
        "turn": sum(run["turns"]) / len(run["turns"]),
    }


def _reconnect(executor: ExecutorProcess, round_: Round, window: float) -> dict[str, float]:
    used, events = executor.cpu_seconds(), executor.events()
    executor.turn(LOOP)
    pause(window / 2)
    round_.relay.cut()
    pause(window / 2)
    executor.halt()
    return {
        "reconnect": (executor.cpu_seconds() - used) * 60 / window,
        "reconnect_events": executor.events() - events,
    }
