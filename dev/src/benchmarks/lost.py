# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Lost: the nodes of all pods were shut down while their tasks ran.

To the executor all of them are lost at one instant, since they have failed before its watch begins. With an
infrastructure budget no result comes of that, but another pod for each task.
"""

from __future__ import annotations

from benchmarks.events import PAUSE
from benchmarks.harness import OURS, UPSTREAM, WITH_BUDGET, Lab
from benchmarks.pods import worker_status
from cluster_lab.kubelet.status import EXIT_SIGTERM

SIZES = {UPSTREAM: 1000, OURS: 1000, WITH_BUDGET: 1000}


def measure(lab: Lab, candidate: str, size: int) -> dict[str, float]:
    """Measure how long it takes until running tasks are reported, or have another pod."""
    status, message = worker_status(), "Pod was terminated in response to imminent node shutdown."
    status.run()
    status.end_worker(EXIT_SIGTERM)
    status.fail_pod("Terminated", message)
    status.disrupt("TerminationByKubelet", message)
    with (
        lab.round(candidate, size) as round_,
        round_.cluster.observed() as observer,
        round_.executor("running") as executor,
    ):
        # As their workers report it.
        round_.execute("UPDATE task_instance SET hostname = 'benchmark-task-' || map_index")
        round_.cluster.report(round_.hold(executor), status.patch())
        costs = round_.settle(executor, PAUSE, lambda: executor.results() + len(observer.pods) - size)
    if candidate == WITH_BUDGET:
        last = max(second.created for _, second in observer.replaced())
        settled = {"s until the last has another pod": executor.seconds(until=last)}
    else:
        settled = {"s until the last is reported": executor.seconds()}
    return {"longest sync(), ms": max(executor.turns()), **settled, **costs}
