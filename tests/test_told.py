# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Whoever is told of a failure is told why: listeners, callbacks, operators, the next run."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster_lab.faults.plan import Fault
from testbed.airflow_version import airflow_version
from testbed.code_journal import Order
from testbed.records import Run
from testbed.testbed import Testbed
from testbed.told import Told, read_told
from testbed.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.each_version]

DEPLOYMENT = {
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(Path(__file__).parent / "plugins"),
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": "2",
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_DELAY": "0",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
}

FORWARDS_SIGTERM = airflow_version() >= (3, 3)

TERMINATED = "INFRASTRUCTURE WORKER_TERMINATION EXECUTOR"
OUT_OF_MEMORY = "APPLICATION RESOURCE_EXHAUSTION EXECUTOR"
OWN = "APPLICATION TASK_ERROR WORKER"
TIMEOUT = "TIMEOUT EXECUTION_TIMEOUT WORKER"
MARKED = "USER_ACTION MANUAL_STATE_CHANGE API"


@pytest.fixture(scope="module")
def run(testbed: Testbed) -> Run:
    """A run whose tasks have all met what they are to meet."""
    run = testbed.trigger("told")
    run.wait_for_code(*(task.task_id for task in run.states()))
    for task in ("evicted", "runs_again", "tried_again", "job_kept"):
        testbed.cluster.evict(pod_of(run, task))
    testbed.cluster.lose(pod_of(run, "out_of_memory"), Fault.OOM_RUNNING)
    testbed.order(pod_of(run, "fails"), Order.FAIL)
    for task in ("marked", "job_cancelled"):
        testbed.api.mark(run.dag_id, run.run_id, task, "failed")
    run.wait_for_times(2, "fails", "runs_again", "tried_again", "job_kept")
    for task in ("evicted", "out_of_memory", "times_out"):
        run.wait_for_end(task)
    return run


def pod_of(run: Run, task: str) -> str:
    return run.wait_for_pods(task, 1)[0]


def runs_of(testbed: Testbed, task: str) -> list[Told]:
    return [item for item in read_told(testbed.home, task) if item.who == "next run"]


def expect_told(testbed: Testbed, task: str, *expected: tuple[str, str]) -> None:
    """Expect that these, and nobody else, are told about a task; the order of processes is left to chance."""

    def told() -> list[tuple[str, str]]:
        return sorted((item.who, item.why) for item in read_told(testbed.home, task))

    wait_for(f"all are told of {task}", lambda: len(told()) >= len(expected), show=told)
    assert told() == sorted(expected)


@pytest.mark.parametrize(("task", "why"), [("evicted", TERMINATED), ("out_of_memory", OUT_OF_MEMORY)])
def test_what_the_executor_knows_is_told_by_the_scheduler_and_the_dag_processor(
    testbed: Testbed, run: Run, task: str, why: str
) -> None:
    expect_told(testbed, task, ("TaskInstance", why), ("callback in the DAG processor", why))


@pytest.mark.parametrize(("task", "why"), [("fails", OWN), ("times_out", TIMEOUT)])
def test_what_the_worker_knows_is_told_there(testbed: Testbed, run: Run, task: str, why: str) -> None:
    expect_told(testbed, task, ("RuntimeTaskInstance", why), ("callback in the worker", why))
    wait_for("it is written down", lambda: "task instance failed" in run.audit_log(task))


def test_the_api_server_tells_of_a_person(testbed: Testbed, run: Run) -> None:
    wait_for("it is told", lambda: read_told(testbed.home, "marked"))
    assert read_told(testbed.home, "marked")[0][::2] == ("TaskInstance", MARKED)
    assert "task instance failed" in run.audit_log("marked")


def test_a_run_in_the_same_try_is_told_and_nobody_hears_of_a_failure(testbed: Testbed, run: Run) -> None:
    expect_told(
        testbed,
        "runs_again",
        ("next run", "unknown"),
        ("relaunched 1", TERMINATED),
        ("next run", TERMINATED),
    )


def test_the_next_try_is_told(testbed: Testbed, run: Run) -> None:
    expect_told(
        testbed,
        "tried_again",
        ("next run", "unknown"),
        ("TaskInstance", TERMINATED),
        ("callback in the DAG processor", TERMINATED),
        ("next run", TERMINATED),
    )


def test_a_remote_job_is_kept_when_the_infrastructure_takes_its_worker(testbed: Testbed, run: Run) -> None:
    wait_for("it has run again", lambda: len(runs_of(testbed, "job_kept")) == 2)
    assert [item.why for item in runs_of(testbed, "job_kept")] == ["unknown", TERMINATED]
    asked = [item.why for item in read_told(testbed.home, "job_kept") if item.who == "on_kill"]
    # Before Airflow 3.3 the worker may end before that.
    assert asked == ["INFRASTRUCTURE WORKER_TERMINATION WORKER"] or (not asked and not FORWARDS_SIGTERM)
    job = int((testbed.home / "job-job_kept").read_text())
    assert Path(f"/proc/{job}").exists()
    (testbed.home / "job-job_kept-may-end").touch()
    assert run.wait_for_end("job_kept").state == "success"
    assert run.steps("job_kept") == ["begun", "begun", "ended"]


def test_a_remote_job_is_cancelled_when_a_person_ends_its_task(testbed: Testbed, run: Run) -> None:
    wait_for(
        "on_kill is told",
        lambda: [item for item in read_told(testbed.home, "job_cancelled") if item.who == "on_kill"],
    )
    (asked,) = (item for item in read_told(testbed.home, "job_cancelled") if item.who == "on_kill")
    assert asked.why == MARKED
    job = int((testbed.home / "job-job_cancelled").read_text())
    wait_for("it is gone", lambda: not Path(f"/proc/{job}").exists())
