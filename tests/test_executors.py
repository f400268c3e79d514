# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Other executors beside ours, in one scheduler, which they fork while our thread works."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
import redis

from cluster_lab.managed_process import ManagedProcess
from cluster_lab.ports import LOOPBACK, free_port
from testbed.airflow_configuration import RESILIENT_EXECUTOR
from testbed.records import Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import wait_for

pytestmark = pytest.mark.system

REDIS = shutil.which("redis-server")
BROKER_PORT = free_port()
BROKER = f"redis://{LOOPBACK}:{BROKER_PORT}/0"
LOCAL_WORKERS = 4

DEPLOYMENT = {
    # Ours is started first: LocalExecutor then forks the scheduler after our thread has begun to work.
    "AIRFLOW__CORE__EXECUTOR": f"{RESILIENT_EXECUTOR},LocalExecutor,CeleryExecutor",
    "AIRFLOW__CORE__PARALLELISM": str(LOCAL_WORKERS),
    "AIRFLOW__CELERY__BROKER_URL": BROKER,
    "AIRFLOW__CELERY__RESULT_BACKEND": BROKER,
    # With one it would send from the scheduler's own process.
    "AIRFLOW__CELERY__SYNC_PARALLELISM": "2",
}

POD = Outcome(state="success", pods=2, launch_failures=1)
OTHER = Outcome(state="success", pods=0, launch_failures=0)


def test_tasks_of_the_local_executor_run_between_pods_that_are_lost(testbed: Testbed) -> None:
    run = testbed.trigger("local")
    run.release()
    assert_all_as_they_should_be(testbed, run)
    workers = psutil.Process(testbed.schedulers.alive[0].process.pid).children()
    assert len(workers) == LOCAL_WORKERS
    port = int(testbed.proxy.url.rpartition(":")[2])
    assert [pid for worker in workers for pid in connected_to(worker, port)] == []
    assert connected_to(psutil.Process(testbed.schedulers.alive[0].process.pid), port)


@pytest.mark.long
@pytest.mark.skipif(REDIS is None, reason="needs redis-server")
def test_tasks_of_the_celery_executor_run_between_pods_that_are_lost(testbed: Testbed) -> None:
    with celery(testbed):
        run = testbed.trigger("celery")
        run.release()
        assert_all_as_they_should_be(testbed, run)


def assert_all_as_they_should_be(testbed: Testbed, run: Run) -> None:
    """Wait for the end of all tasks: those of ours lost a pod and ran once, and so did the others."""
    outcomes = run.wait_for_all_to_end()
    assert len(outcomes) == 12
    assert outcomes == {task_id: POD if task_id.startswith("pod") else OTHER for task_id in outcomes}
    wait_for("no pod is left", lambda: not testbed.cluster.unfinished_business(run.run_id))
    log = testbed.schedulers.log()
    assert "crashed" not in log
    assert "forked while the Kubernetes thread is busy" not in log


def connected_to(process: psutil.Process, port: int) -> list[int]:
    """Return the process's id for each connection that it has to a port."""
    connections = process.net_connections("tcp")
    return [process.pid for connection in connections if connection.raddr and connection.raddr.port == port]


@contextmanager
def celery(testbed: Testbed) -> Iterator[None]:
    """Run a broker, and a worker that takes from it."""
    with ExitStack() as stack:
        broker = [str(REDIS), "--bind", LOOPBACK, "--port", str(BROKER_PORT), "--save", ""]
        started(stack, testbed.home, "redis", broker, testbed)
        client = stack.enter_context(redis.Redis.from_url(BROKER))
        wait_for("the broker answers", lambda: answers(client))
        worker = [sys.executable, "-m", "airflow", "celery", "worker", "--skip-serve-logs", "--concurrency=2"]
        started(
            stack, testbed.home, "celery-worker", [*worker, "--without-gossip", "--without-mingle"], testbed
        )
        yield


def started(stack: ExitStack, home: Path, name: str, command: list[str], testbed: Testbed) -> None:
    """Start a program of the deployment; it is stopped with the stack."""
    process = ManagedProcess(name, command, testbed.deployment.environment, home / f"{name}.log")
    process.start()
    stack.callback(process.stop)


def answers(client: redis.Redis) -> bool:
    """Whether the broker has been started."""
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
