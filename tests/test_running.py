# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Every way to lose the pod of a task that runs: it runs again in the same try, and nobody is told of a failure.

One Airflow serves all of it at once. The DAGs are started in groups, and the first pods of a group are lost
together, when the user's code of all its tasks has begun: two cores start no more than eight of Airflow's
workers at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cluster_lab.apiserver import RequestInfo
from cluster_lab.faults.plan import Fault
from cluster_lab.journal import JournalEvent
from testbed.code_journal import Order
from testbed.records import EXECUTION_FAILURE_EVENT, Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import LONGEST_WAIT, wait_for

pytestmark = pytest.mark.system

POLICIES = Path(__file__).parent / "dags" / "running" / "policies.yaml"
DEPLOYMENT = {
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": "2",
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_DELAY": "0",
    "AIRFLOW__KUBERNETES_RESILIENCE__RETRY_POLICY_FILE": str(POLICIES),
}

RUN_AGAIN = Outcome(state="success", pods=2, begun=2, launch_failures=0, execution_failures=1)

Loss = Callable[[Testbed, str], None]
"""Has the pod of that name lost."""


# ---------------------------------------------------------------------- ways to lose a pod


def by(fault: Fault) -> Loss:
    """Return the loss that the lab's nodes bring about."""
    return lambda testbed, pod: testbed.cluster.lose(pod, fault)


def vanish(testbed: Testbed, pod: str) -> None:
    """Delete a pod at once while the executor does not watch, and sees nothing of it in the next list."""
    testbed.proxy.expire_watches(1)
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


def lose_each(testbed: Testbed, *runs: Run) -> None:
    """Have the newest pod of each task lost, in the way that the task has its name from."""
    for run in runs:
        for task in run.states():
            LOSSES[task.task_id](testbed, run.pods(task.task_id)[-1])


# ---------------------------------------------------------------------- all that is lost once


@pytest.fixture(scope="module")
def runs(testbed: Testbed) -> dict[str, Run]:
    """A run of each DAG that is not for a long test; what is to be lost first has been."""
    runs = start_on_nodes(testbed)
    nodes = tuple(runs)
    start(testbed, runs, "lost")
    lose_nodes(testbed, runs)
    lose_each(testbed, runs["lost"])
    wait_for_second_code(runs, "lost", *nodes)

    start(testbed, runs, *OPERATORS)
    lose_each(testbed, *(runs[dag_id] for dag_id in OPERATORS))
    wait_for_second_code(runs, *OPERATORS)

    start(testbed, runs, "unprotected", "failed_before", "process_killed", "resumed")
    testbed.cluster.lose(pod_of(runs["unprotected"], "work"), Fault.KILL_RUNNING)
    testbed.order(pod_of(runs["failed_before"], "work"), Order.FAIL)
    testbed.order(pod_of(runs["process_killed"], "work"), Order.DIE)
    # These are in their second pod, or come to it.
    lose_second(testbed, runs["resumed"], "deferred", "rescheduled")
    lose_second(testbed, runs["failed_before"], "work")

    start(testbed, runs, "cut_off", "graceful", "lost_five_times")
    for task in ("succeeds", "fails", "goes_on"):
        testbed.cluster.lose(pod_of(runs["cut_off"], task), Fault.PARTITION_RUNNING)
    return runs


def start(testbed: Testbed, runs: dict[str, Run], *dag_ids: str) -> None:
    """Start a run of each DAG, and wait until the user's code of all tasks has begun."""
    started = {dag_id: testbed.trigger(dag_id) for dag_id in dag_ids}
    for run in started.values():
        wait_for_all_code(run)
    runs |= started


def wait_for_second_code(runs: Mapping[str, Run], *dag_ids: str) -> None:
    """Wait until the user's code of all tasks has begun twice."""
    for dag_id in dag_ids:
        runs[dag_id].wait_for_times(2, *(task.task_id for task in runs[dag_id].states()))


def start_on_nodes(testbed: Testbed) -> dict[str, Run]:
    """Start what is to lose its node, each alone on one, and let nothing but those be placed on them."""
    runs: dict[str, Run] = {}
    # The embedded API server evicts nothing from a node with a taint.
    dag_ids = ("drained", "tainted") if testbed.control_plane else ("drained",)
    first, *others = testbed.cluster.nodes()
    testbed.cluster.cordon(first, *others)
    for dag_id, node in zip(dag_ids, others, strict=False):
        testbed.cluster.cordon(node, unschedulable=False)
        runs[dag_id] = testbed.trigger(dag_id)
        runs[dag_id].wait_for_pods("work", 1)
        testbed.cluster.cordon(node)
    testbed.cluster.cordon(first, *others[len(runs) :], unschedulable=False)
    for run in runs.values():
        wait_for_all_code(run)
    return runs


def lose_nodes(testbed: Testbed, runs: Mapping[str, Run]) -> None:
    """Drain one node, and taint the other one."""
    take = {"drained": testbed.cluster.drain_node, "tainted": testbed.cluster.taint}
    for dag_id in runs.keys() & take:
        take[dag_id](runs[dag_id].events("work", JournalEvent.BOUND)[0].node)


def lose_second(testbed: Testbed, run: Run, *tasks: str) -> None:
    """Wait until the user's code of tasks has begun twice, and evict the second pods."""
    run.wait_for_times(2, *tasks)
    for task in tasks:
        testbed.cluster.evict(run.pods(task)[1])


OPERATORS = ("bash", "stubborn")

ON_CONTROL_PLANE = (pytest.mark.long, pytest.mark.control_plane)


@pytest.mark.parametrize(
    "dag_id", ["lost", "drained", pytest.param("tainted", marks=ON_CONTROL_PLANE), *OPERATORS]
)
def test_a_task_whose_pod_is_lost_runs_again(testbed: Testbed, runs: dict[str, Run], dag_id: str) -> None:
    expect_run_again(testbed, runs[dag_id])


@pytest.mark.long
@pytest.mark.parametrize("dag_id", ["bash_otherwise", "stubborn_otherwise"])
def test_other_operators_whose_pod_is_lost_in_other_ways_run_again(testbed: Testbed, dag_id: str) -> None:
    run = testbed.trigger(dag_id)
    wait_for_all_code(run)
    lose_each(testbed, run)
    expect_run_again(testbed, run)


@pytest.mark.long
def test_a_retry_is_given_back_that_a_worker_without_the_guard_has_taken(testbed: Testbed) -> None:
    run = testbed.trigger("bash_unguarded")
    wait_for_all_code(run)
    lose_each(testbed, run)
    # Long before the delay is over that the task's own retries have.
    run.wait_for_times(2, "evicted")
    run.release()
    assert run.wait_for_end("evicted") == Outcome(
        state="success",
        try_number=2,
        max_tries=2,
        pods=2,
        begun=2,
        launch_failures=0,
        execution_failures=1,
    )
    (row,) = run.ledger("evicted", event=EXECUTION_FAILURE_EVENT)
    assert (row["action"], row["in_next_try"]) == ("relaunch", True)
    testbed.cluster.wait_until_done(run.run_id)


def test_a_task_that_finishes_within_its_grace_period_has_succeeded(
    testbed: Testbed, runs: dict[str, Run]
) -> None:
    run = runs["graceful"]
    (pod,) = run.pods("finishes")
    testbed.cluster.evict(pod)
    wait_for("it has been told to go", lambda: testbed.cluster.is_ending(pod))
    testbed.order(pod, Order.SUCCEED)
    assert run.wait_for_end("finishes") == Outcome(state="success", pods=1, launch_failures=0)
    testbed.cluster.wait_until_done(run.run_id)


def test_a_task_that_wants_no_protection_fails(runs: dict[str, Run]) -> None:
    ended = runs["unprotected"].wait_for_end("work")
    assert (ended.state, ended.pods, ended.begun, ended.ended) == ("failed", 1, 1, 0)
    runs["unprotected"].wait_for_callback("work")


# ---------------------------------------------------------------------- the worker that is replaced


def test_a_worker_that_was_only_cut_off_cannot_decide_anything(
    testbed: Testbed, runs: dict[str, Run]
) -> None:
    run = runs["cut_off"]
    run.wait_for_times(2, "succeeds", "fails", "goes_on")
    cut_off = {task.task_id: run.pods(task.task_id)[0] for task in run.states()}
    testbed.order(cut_off["succeeds"], Order.SUCCEED)
    testbed.order(cut_off["fails"], Order.FAIL)
    for task, pod in cut_off.items():
        wait_for(f"{pod} has ended", lambda task=task, pod=pod: has_ended(run, task, pod))
    assert set(run.states().values()) == {"running"}
    assert run.steps("succeeds") == ["begun", "begun", "ended"]

    run.release()
    outcomes = run.wait_for_all_to_end()
    assert {task: (end.state, end.try_number, end.max_tries) for task, end in outcomes.items()} == (
        dict.fromkeys(cut_off, ("success", 1, 0))
    )
    assert {task: (end.pods, end.execution_failures) for task, end in outcomes.items()} == (
        dict.fromkeys(cut_off, (2, 1))
    )
    assert [outcomes[task].ended for task in ("succeeds", "fails", "goes_on")] == [2, 1, 1]
    testbed.cluster.wait_until_done(run.run_id)


# ---------------------------------------------------------------------- the try goes on


def test_a_deferred_task_is_resumed_again_with_its_event(testbed: Testbed, runs: dict[str, Run]) -> None:
    run = runs["resumed"]
    run.wait_for_times(3, "deferred")
    run.release()
    assert run.wait_for_end("deferred") == Outcome(
        state="success", pods=3, begun=3, ended=2, launch_failures=0, execution_failures=1
    )
    expect_unseen(run, "deferred")
    testbed.cluster.wait_until_done(run.run_id)


def test_the_timeout_of_a_rescheduled_sensor_goes_on(runs: dict[str, Run]) -> None:
    # By the third poke it is over; a timeout that began anew would have been good for another one.
    runs["resumed"].wait_for_end("rescheduled")
    runs["resumed"].wait_for_callback("rescheduled")
    assert runs["resumed"].outcome("rescheduled") == Outcome(
        state="failed", pods=3, begun=3, ended=2, launch_failures=0, execution_failures=1, callbacks=1
    )
    assert runs["resumed"].history("rescheduled") == 0


# ---------------------------------------------------------------------- two budgets


def test_a_task_fails_once_when_its_budget_is_used_up(testbed: Testbed, runs: dict[str, Run]) -> None:
    run = runs["lost_five_times"]
    for number in range(1, 6):
        run.wait_for_times(number, "lost_again")
        testbed.cluster.evict(run.pods("lost_again")[-1])
    run.wait_for_end("lost_again")
    run.wait_for_callback("lost_again")
    assert run.outcome("lost_again") == Outcome(
        state="failed", pods=5, begun=5, ended=0, launch_failures=0, execution_failures=5, callbacks=1
    )
    rows = run.ledger("lost_again", event=EXECUTION_FAILURE_EVENT)
    assert [row["action"] for row in rows] == ["relaunch"] * 4 + ["count"]
    testbed.cluster.wait_until_done(run.run_id)


def test_the_tasks_own_failure_and_a_lost_pod_are_counted_apart(
    testbed: Testbed, runs: dict[str, Run]
) -> None:
    run = runs["failed_before"]
    run.wait_for_times(3, "work")
    run.release()
    assert run.wait_for_end("work") == Outcome(
        state="success",
        try_number=2,
        max_tries=1,
        pods=3,
        begun=3,
        launch_failures=0,
        execution_failures=1,
    )
    # One is the task's own failure.
    assert run.history("work") == 1
    testbed.cluster.wait_until_done(run.run_id)


def test_a_process_that_is_killed_alone_is_the_tasks_own_failure(
    testbed: Testbed, runs: dict[str, Run]
) -> None:
    # Airflow itself would notice only the missing heartbeats, after an hour here.
    run = runs["process_killed"]
    run.wait_for_times(2, "work")
    run.release()
    ended = run.wait_for_end("work")
    assert (ended.state, ended.try_number, ended.max_tries) == ("success", 2, 1)
    assert (ended.pods, ended.begun, ended.ended) == (2, 2, 1)
    # Kept like the pod of any failure, although its worker container completed.
    kept, last = run.pods("work")
    wait_for("nobody looks at its pods", lambda: all(map(testbed.cluster.is_done, (kept, last))))
    assert kept in testbed.cluster.names()


# ---------------------------------------------------------------------- what all of them have in common


def wait_for_all_code(run: Run) -> None:
    """Wait until the user's code of all tasks has begun."""
    tasks = wait_for("the run is planned", run.states)
    run.wait_for_code(*(task.task_id for task in tasks))


def pod_of(run: Run, task: str) -> str:
    """Return the only pod that a task has had."""
    (pod,) = run.pods(task)
    return pod


def has_ended(run: Run, task: str, pod: str) -> bool:
    """Tell whether the worker of a pod has ended."""
    return any(entry.pod == pod for entry in run.events(task, JournalEvent.EXITED))


def expect_run_again(testbed: Testbed, run: Run) -> None:
    """Expect of each task that it has lost one pod, and that it runs again and succeeds as if it had not."""
    tasks = [task.task_id for task in run.states()]
    run.wait_for_times(2, *tasks)
    run.release()
    assert run.wait_for_all_to_end() == dict.fromkeys(tasks, RUN_AGAIN)
    for task in tasks:
        assert run.steps(task) == ["begun", "begun", "ended"]
        expect_unseen(run, task)
    testbed.cluster.wait_until_done(run.run_id)


def expect_unseen(run: Run, task: str) -> None:
    """Expect the audit log to know of one lost pod, and nobody else."""
    events = run.audit_log(task)
    lost = events.index(EXECUTION_FAILURE_EVENT)
    assert "running" in events[:lost]
    assert "failed" not in events
    assert [event for event in events[lost:] if event in ("running", "success")] == ["running", "success"]
    assert run.history(task) == 0
