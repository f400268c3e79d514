# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""LocalExecutor beside ours, in one scheduler, which it forks while our thread works."""

from __future__ import annotations

import psutil
import pytest

from testbed.airflow_configuration import RESILIENT_EXECUTOR
from testbed.records import RECOVERED, Outcome
from testbed.testbed import Testbed

pytestmark = [
    pytest.mark.system,
    pytest.mark.each_version,
    pytest.mark.newest_version,
    pytest.mark.long,
]

LOCAL_WORKERS = 4

DEPLOYMENT = {
    # Ours is started first: LocalExecutor then forks the scheduler after our thread has begun to work.
    "AIRFLOW__CORE__EXECUTOR": f"{RESILIENT_EXECUTOR},LocalExecutor",
    "AIRFLOW__CORE__PARALLELISM": str(LOCAL_WORKERS),
}

OTHER = Outcome(state="success", pods=0, launch_failures=0)


def test_tasks_of_the_local_executor_run_between_pods_that_are_lost(testbed: Testbed) -> None:
    run = testbed.trigger("local")
    outcomes = testbed.end(run)
    assert len(outcomes) == 12
    assert outcomes == {task_id: RECOVERED if task_id.startswith("pod") else OTHER for task_id in outcomes}
    log = testbed.schedulers.log()
    assert "crashed" not in log
    assert "forked while the Kubernetes thread is busy" not in log
    workers = psutil.Process(testbed.schedulers.alive[0].process.pid).children()
    assert len(workers) == LOCAL_WORKERS
    port = int(testbed.proxy.url.rpartition(":")[2])
    assert [pid for worker in workers for pid in connected_to(worker, port)] == []
    assert connected_to(psutil.Process(testbed.schedulers.alive[0].process.pid), port)


def connected_to(process: psutil.Process, port: int) -> list[int]:
    """Return the process's id for each connection that it has to a port."""
    connections = process.net_connections("tcp")
    return [process.pid for connection in connections if connection.raddr and connection.raddr.port == port]
