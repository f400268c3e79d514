# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Every way to lose the pod of a task that runs: it runs again in the same try, and nobody is told of a failure.

Drained nodes, budgets and deferred tasks are in test_each_version.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cluster_lab.apiserver import RequestInfo
from cluster_lab.faults.plan import Fault
from cluster_lab.journal import JournalEvent
from testbed.code_journal import Order
from testbed.records import EXECUTION_FAILURE_EVENT, RUN_AGAIN, Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import LONGEST_WAIT, wait_for

pytestmark = pytest.mark.system

POLICIES = Path(__file__).parent / "dags" / "running" / "policies.yaml"
DEPLOYMENT = {
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": "2",
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_DELAY": "0",
    "AIRFLOW__KUBERNETES_RESILIENCE__RETRY_POLICY_FILE": str(POLICIES),
}


Loss = Callable[[Testbed, str], None]
"""Has the pod of that name lost."""


# ---------------------------------------------------------------------- ways to lose a pod


def by(fault: Fault) -> Loss:
    """Return the loss that the lab's nodes bring about."""
    return lambda testbed, pod: testbed.cluster.lose(pod, fault)


def vanish(testbed: Testbed, pod: str) -> None:
    """Delete a pod at once while the executor does not watch, and sees nothing of it in the next list."""
    testbed.proxy.expire_watch()
    with testbed.proxy.hold(when=is_watch) as held:
        testbed.proxy.cut_watches()
        held.wait_for(1, LONGEST_WAIT)
        testbed.cluster.delete(pod)
        wait_for("it is gone", lambda: pod not in testbed.cluster.names())


def is_watch(info: RequestInfo) -> bool:
    """Whether pods are watched."""
    return (info.verb, info.resource) == ("watch", "pods")


LOSSES: Mapping[str, Loss] = {
    "evicted": lambda testbed, pod: testbed.cluster.evict(pod),
    "preempted": lambda testbed, pod: testbed.cluster.preempt(pod),
    "under_pressure": by(Fault.EVICTED_RUNNING),
    "node_shut_down": by(Fault.NODE_TERMINATED_RUNNING),
    "node_lost": by(Fault.NODE_LOST_RUNNING),
    "force_deleted": lambda testbed, pod: testbed.cluster.delete(pod),
    "vanished": vanish,
    "killed": by(Fault.KILL_RUNNING),
    "out_of_memory": by(Fault.OOM_RUNNING),
}

CAUSES = {
    "evicted": "evicted-by-api",
    "preempted": "preempted-by-scheduler",
    "under_pressure": "evicted-by-node-pressure",
    "node_shut_down": "node-shutdown",
    "node_lost": "node-gone",
    "force_deleted": "deleted",
    "vanished": "vanished",
    "killed": "worker-killed",
    "out_of_memory": "worker-out-of-memory",
}
"""What the ledger says of each: the lab's nodes report what real ones do."""


# ---------------------------------------------------------------------- what becomes of the task


@pytest.mark.parametrize(
    "dag_id",
    [
        "lost",
        *(
            pytest.param(dag_id, marks=pytest.mark.long)
            for dag_id in ("bash", "stubborn", "bash_otherwise", "stubborn_otherwise")
        ),
    ],
)
def test_a_task_whose_pod_is_lost_runs_again(testbed: Testbed, dag_id: str) -> None:
    run = start(testbed, dag_id)
    lose_each(testbed, run)
    expect_run_again(testbed, run)
    if dag_id == "lost":  # Airflow's own workers may end before they are taken away.
        for task, cause in CAUSES.items():
            # What happens while nobody watches has vanished.
            assert run.causes(task, event=EXECUTION_FAILURE_EVENT) in ([cause], ["vanished"])


@pytest.mark.long
@pytest.mark.control_plane
def test_a_task_whose_node_has_a_taint_runs_again(testbed: Testbed) -> None:
    # The embedded API server evicts nothing from a node with a taint.
    run = start(testbed, "tainted")
    (arrival,) = run.events("work", JournalEvent.BOUND)
    testbed.cluster.taint(arrival.node)
    try:
        run.wait_for_times(2, "work")
    finally:
        testbed.cluster.taint(arrival.node, tainted=False)
    expect_run_again(testbed, run)


@pytest.mark.long
def test_the_timeout_of_a_rescheduled_sensor_goes_on(testbed: Testbed) -> None:
    run = start(testbed, "resumed")
    run.wait_for_times(2, "rescheduled")
    testbed.cluster.evict(run.pods("rescheduled")[1])
    # By the third poke it is over; a timeout that began anew would have been good for another one.
    run.wait_for_end("rescheduled")
    run.wait_for_callback("rescheduled")
    assert run.outcome("rescheduled") == Outcome(
        state="failed", pods=3, begun=3, ended=2, launch_failures=0, execution_failures=1, callbacks=1
    )
    assert run.history("rescheduled") == 0


def test_a_process_that_is_killed_alone_is_the_tasks_own_failure(testbed: Testbed) -> None:
    # Airflow itself would notice only the missing heartbeats, after an hour here.
    run = start(testbed, "process_killed")
    (pod,) = run.pods("work")
    testbed.order(pod, Order.DIE)
    run.wait_for_times(2, "work")
    run.release()
    ended = run.wait_for_end("work")
    assert (ended.state, ended.try_number, ended.max_tries) == ("success", 2, 1)
    assert (ended.pods, ended.begun, ended.ended) == (2, 2, 1)
    # Kept like the pod of any failure, although its worker container completed.
    kept, last = run.pods("work")
    wait_for("nobody looks at its pods", lambda: all(map(testbed.cluster.is_done, (kept, last))))
    assert kept in testbed.cluster.names()


def start(testbed: Testbed, dag_id: str) -> Run:
    """Start a run of a DAG, and wait until the user's code of all tasks has begun."""
    run = testbed.trigger(dag_id)
    tasks = wait_for("the run is planned", run.states)
    run.wait_for_code(*(task.task_id for task in tasks))
    return run


def lose_each(testbed: Testbed, run: Run) -> None:
    """Have the newest pod of each task lost, in the way that the task has its name from."""
    for task in run.states():
        LOSSES[task.task_id](testbed, run.pods(task.task_id)[-1])


def expect_run_again(testbed: Testbed, run: Run) -> None:
    """Expect of each task that it has lost one pod, and that it runs again and succeeds as if it had not."""
    tasks = [task.task_id for task in run.states()]
    run.wait_for_times(2, *tasks)
    assert testbed.end(run) == dict.fromkeys(tasks, RUN_AGAIN)
    for task in tasks:
        assert run.steps(task) == ["begun", "begun", "ended"]
        expect_unseen(run, task)


def expect_unseen(run: Run, task: str) -> None:
    """Expect the audit log to know of one lost pod, and nobody else."""
    events = run.audit_log(task)
    lost = events.index(EXECUTION_FAILURE_EVENT)
    assert "running" in events[:lost]
    assert "failed" not in events
    assert [event for event in events[lost:] if event in ("running", "success")] == ["running", "success"]
    assert run.history(task) == 0
