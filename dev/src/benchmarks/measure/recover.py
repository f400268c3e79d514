# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Recover: a scheduler has died whose pods run, and the next one takes them over."""

from __future__ import annotations

import time

from benchmarks.candidates import Candidate
from benchmarks.lab import Lab
from benchmarks.pods import running


def measure_recover(lab: Lab, candidate: Candidate, size: int) -> dict[str, float]:
    """
    Measure how long it takes until every pod has the new scheduler's label, and is held by its executor.

    :raises RuntimeError: if one does not, or is not
    """
    values: dict[str, float] = {}
    with lab.round(candidate, size) as round_:
        dead = round_.database.add_scheduler_job(alive=False)
        round_.database.set_state("running", dead)
        names = [pod.name for pod in round_.make_pods(dead)]
        began = time.perf_counter()
        round_.cluster.report(names, running())
        patches = time.perf_counter() - began
        job_id = round_.database.add_scheduler_job()
        with round_.executor(job_id) as executor:
            executor.call("start")
            with round_.costs(values):
                adoption = executor.call("adopt")
        adopted = sum(pod.owner == str(job_id) for pod in round_.cluster.pods())
    if (adopted, adoption["held"]) != (size, size):
        raise RuntimeError(f"of {size} pods {adopted} were adopted, {adoption['held']} are held")
    return {"seconds": adoption["seconds"], "blocked": adoption["call"], "patches": patches, **values}
