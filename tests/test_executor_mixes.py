# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The official executor, LocalExecutor and CeleryExecutor beside ours: each has its own tasks."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from cluster_lab.managed_process import ManagedProcess
from cluster_lab.ports import LOOPBACK, free_port
from testbed.airflow_configuration import RESILIENT_EXECUTOR
from testbed.cluster import EXECUTOR_LABEL, OWNER_LABEL
from testbed.packages import needs
from testbed.records import RECOVERED, UNTOUCHED, Outcome
from testbed.testbed import Testbed
from testbed.waiting import wait_for

REDIS = shutil.which("redis-server")

pytestmark = [
    pytest.mark.system,
    pytest.mark.newest_version,
    pytest.mark.long,
    needs("redis-server", REDIS),
]

BROKER_PORT = free_port()
BROKER = f"redis://{LOOPBACK}:{BROKER_PORT}/0"

OFFICIAL = "official:airflow.providers.cncf.kubernetes.executors.kubernetes_executor.KubernetesExecutor"

DEPLOYMENT = {
    # In test_executors.py ours is the first, which has the tasks that ask for none.
    "AIRFLOW__CORE__EXECUTOR": f"CeleryExecutor,LocalExecutor,{RESILIENT_EXECUTOR},{OFFICIAL}",
    "AIRFLOW__CORE__PARALLELISM": "6",
    "AIRFLOW__CELERY__BROKER_URL": BROKER,
    "AIRFLOW__CELERY__RESULT_BACKEND": BROKER,
    # With one it would send from the scheduler's own process.
    "AIRFLOW__CELERY__SYNC_PARALLELISM": "2",
}

WITHOUT_POD = Outcome(state="success", pods=0, launch_failures=0)


@pytest.fixture(scope="module", autouse=True)
def celery(testbed: Testbed) -> Iterator[None]:
    """A broker, and a worker that takes from it."""
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


def test_tasks_of_the_celery_executor_run_between_pods_that_are_lost(testbed: Testbed) -> None:
    run = testbed.trigger("celery")
    outcomes = testbed.end(run)
    assert len(outcomes) == 12
    assert outcomes == {
        task_id: RECOVERED if task_id.startswith("pod") else WITHOUT_POD for task_id in outcomes
    }
    expect_no_harm(testbed)


def test_beside_the_official_executor_each_has_its_own_tasks(testbed: Testbed) -> None:
    run = testbed.trigger("side_by_side")
    run.wait_for_code("ours_untouched", "ours_lost", "official_untouched")
    assert run.wait_for_end("official_lost") == Outcome(
        state="failed", pods=1, begun=0, ended=0, launch_failures=0
    )
    labels = testbed.cluster.labels(run.run_id)
    job_id = str(testbed.schedulers.alive[0].job_id)
    assert {task: (found[OWNER_LABEL], found.get(EXECUTOR_LABEL)) for task, found in labels.items()} == {
        "ours_untouched": (job_id, "KubernetesExecutor"),
        "ours_lost": (job_id, "KubernetesExecutor"),
        "official_untouched": (job_id, None),
    }
    for task in ("ours_untouched", "official_untouched"):
        wait_for(
            "its log is read from its pod",
            lambda task=task: f"{task} works" in testbed.api.task_log(run.dag_id, run.run_id, task),
        )
    outcomes = testbed.end(run)
    assert outcomes["ours_lost"] == RECOVERED
    assert outcomes["ours_untouched"] == outcomes["official_untouched"] == UNTOUCHED
    expect_no_harm(testbed)


def test_of_a_dead_scheduler_each_executor_adopts_its_own_tasks(testbed: Testbed) -> None:
    run = testbed.trigger("scheduler_dies")
    run.wait_for_code("ours_running", "official_running", "local_running", "celery_running")
    pods = {
        task: run.wait_for_pods(task, 1)[0]
        for task in ("ours_running", "ours_starting", "official_running", "official_starting")
    }
    testbed.schedulers.kill_long_ago(testbed.schedulers.alive[0])
    successor = testbed.schedulers.start()
    testbed.cluster.wait_for_owner(pods.values(), successor.job_id)
    testbed.cluster.delete(pods["ours_starting"])
    testbed.decide(run.wait_for_pods("ours_starting", 2)[1])
    testbed.decide(pods["official_starting"])
    run.wait_for_code("ours_starting", "official_starting")
    run.wait_for_times(2, "local_running")
    assert testbed.end(run) == {
        "ours_running": UNTOUCHED,
        "ours_starting": RECOVERED,
        "official_running": UNTOUCHED,
        "official_starting": UNTOUCHED,
        "celery_running": WITHOUT_POD,
        # Its process has ended with the scheduler, and Airflow resets it.
        "local_running": Outcome(state="success", try_number=2, pods=0, begun=2, launch_failures=0),
    }
    expect_no_harm(testbed)


def expect_no_harm(testbed: Testbed) -> None:
    """Expect that no fork has harmed our thread."""
    log = testbed.schedulers.log()
    assert "crashed" not in log
    assert "forked while the Kubernetes thread is busy" not in log


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
