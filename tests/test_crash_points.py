# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A scheduler is killed at each moment of a relaunch that matters, and another one is started.

The moments are brought about from outside: a request of the scheduler is held up on its way to the API server
or back, and while it is, the scheduler gets SIGKILL. What it has asked for by then, and what not, is certain.

Each DAG has a task that is healed by a relaunch, and one whose every launch is lost. The latter has to come
to an end after exactly as many launches as are allowed: a count that begins anew after a crash would show.
The same for tasks that run when their pods are lost.
"""

from __future__ import annotations

import pytest

from cluster_lab.apiserver import RequestInfo
from cluster_lab.faults.plan import Fault
from cluster_lab.journal import JournalEvent
from testbed import database
from testbed.cluster import creates_pod
from testbed.database import updates_held
from testbed.records import EXECUTION_FAILURE_EVENT, RECOVERED, RUN_AGAIN, Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import LONGEST_WAIT, wait_for

pytestmark = pytest.mark.system

RELAUNCHES = 5
DEPLOYMENT = {
    "AIRFLOW__KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES": str(RELAUNCHES),
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": "2",
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_DELAY": "0",
}

TASKS = ("healed", "hopeless")
GIVEN_UP = Outcome(state="failed", pods=RELAUNCHES + 1, begun=0, ended=0, launch_failures=RELAUNCHES + 1)


def test_after_the_ledger_row_and_before_the_new_pod(testbed: Testbed) -> None:
    started = testbed.replacements_held(lambda: testbed.trigger("before_new_pod"), len(TASKS))
    with started as (run, held):
        held.wait_for(2, LONGEST_WAIT)
        assert [len(run.ledger(task)) > 0 for task in TASKS] == [True, True]
        kill(testbed)
    expect(testbed, run)


def test_after_the_new_pod_and_before_the_old_one_is_retired(testbed: Testbed) -> None:
    with testbed.proxy.hold(when=retires) as held:
        run = testbed.trigger("before_deletion")
        run.wait_for_pods("healed", 2)
        held.wait_for(2, LONGEST_WAIT)
        kill(testbed)
    expect(testbed, run)


@pytest.mark.long
def test_while_a_replacement_waits_for_the_old_pod(testbed: Testbed) -> None:
    with testbed.proxy.hold(when=retires) as held:
        run = testbed.trigger("waiting_for_old_pod")
        held.wait_for(2, LONGEST_WAIT)
        assert [run.outcome(task).pods for task in TASKS] == [1, 1]
        assert [len(run.ledger(task)) for task in TASKS] == [1, 1]
        kill(testbed)
    expect(testbed, run)


@pytest.mark.long
def test_while_a_replacement_waits_for_its_backoff(testbed: Testbed) -> None:
    run = testbed.trigger("in_backoff")
    fourth = [run.wait_for_pods(task, 4)[3] for task in TASKS]
    # However long it takes to kill the scheduler, no replacement comes before.
    with testbed.proxy.hold(when=creates_pod):
        testbed.cluster.go_on(*fourth)
        for task in TASKS:
            run.wait_for_ledger(task, 4)
        kill(testbed)
    expect(testbed, run, Outcome(state="success", pods=5, launch_failures=4))


@pytest.mark.long
def test_in_the_middle_of_a_create_call(testbed: Testbed) -> None:
    with testbed.proxy.hold(when=creates_pod, reply=True) as held:
        run = testbed.trigger("amid_create")
        held.wait_for(2, LONGEST_WAIT)
        for task in TASKS:
            run.wait_for_pods(task, 1)
        kill(testbed)
    with testbed.proxy.hold(when=creates_pod, reply=True) as held:
        # And again, in the middle of the call that creates the replacement.
        testbed.schedulers.start()
        run.wait_for_pods("healed", 2)
        kill(testbed)
    expect(testbed, run)


# ---------------------------------------------------------------------- of tasks that run

RUNNING = ("again", "limited")
"""The second is given one infrastructure retry."""

LIMIT_REACHED = Outcome(
    state="failed", pods=2, begun=2, ended=0, launch_failures=0, execution_failures=2, callbacks=1
)


def test_before_it_is_seen_that_running_tasks_have_lost_their_pods(testbed: Testbed) -> None:
    run = testbed.trigger("unseen")
    run.wait_for_code(*RUNNING)
    kill(testbed)
    # One pod fails and is still there, the other is gone without a trace.
    testbed.cluster.lose(run.pods("again")[0], Fault.EVICTED_RUNNING)
    testbed.cluster.delete(run.pods("limited")[0])
    for task in RUNNING:
        wait_for("its worker has ended", lambda task=task: run.events(task, JournalEvent.EXITED))
    expect_running(testbed, run)


def test_within_the_transaction_that_queues_running_tasks_again(testbed: Testbed) -> None:
    run = testbed.trigger("uncommitted")
    run.wait_for_code(*RUNNING)
    with updates_held(testbed.records.engine, database.RUN_AGAIN) as held:
        lose_all(testbed, run)
        held.wait()
        kill(testbed)
        held.fail()
    assert [run.outcome(task).state for task in RUNNING] == ["running", "running"]
    expect_running(testbed, run)


def test_after_running_tasks_are_queued_again_and_before_their_new_pods(testbed: Testbed) -> None:
    run = testbed.trigger("committed")
    run.wait_for_code(*RUNNING)
    with testbed.proxy.hold(when=creates_pod) as held:
        lose_all(testbed, run)
        held.wait_for(len(RUNNING), LONGEST_WAIT)
        assert [run.outcome(task).execution_failures for task in RUNNING] == [1, 1]
        kill(testbed)
    expect_running(testbed, run)


@pytest.mark.long
def test_in_the_middle_of_the_call_that_creates_a_pod_for_a_task_that_ran(testbed: Testbed) -> None:
    run = testbed.trigger("amid_create_again")
    run.wait_for_code(*RUNNING)
    with testbed.proxy.hold(when=creates_pod, reply=True) as held:
        lose_all(testbed, run)
        held.wait_for(len(RUNNING), LONGEST_WAIT)
        kill(testbed)
    expect_running(testbed, run)


@pytest.mark.long
def test_two_schedulers_run_only_their_own_tasks_again_until_one_dies(testbed: Testbed) -> None:
    while len(testbed.schedulers.alive) < 2:
        testbed.schedulers.start()
    run = testbed.trigger("two_schedulers")
    tasks = [f"task_{number}" for number in range(6)]
    run.wait_for_code(*tasks)
    before = testbed.cluster.version()
    lose_all(testbed, run)
    run.wait_for_times(2, *tasks)
    owners = testbed.cluster.owners_since(before)
    assert {pod: len(jobs) for pod, jobs in owners.items()} == dict.fromkeys(owners, 1)

    victim, _survivor = testbed.schedulers.alive
    testbed.schedulers.kill_long_ago(victim)
    lose_all(testbed, run)
    run.wait_for_times(3, *tasks)
    twice = Outcome(state="success", pods=3, begun=3, launch_failures=0, execution_failures=2)
    assert testbed.end(run) == dict.fromkeys(tasks, twice)
    for task in tasks:
        assert run.steps(task) == ["begun", "begun", "begun", "ended"]


def lose_all(testbed: Testbed, run: Run) -> None:
    """Evict the newest pod of each task."""
    for task in run.states():
        testbed.cluster.evict(run.pods(task.task_id)[-1])


def expect_running(testbed: Testbed, run: Run) -> None:
    """Start another scheduler, and see that each task runs again once, and counts what came before."""
    testbed.schedulers.start()
    run.wait_for_times(2, *RUNNING)
    testbed.cluster.evict(run.pods("limited")[-1])
    assert run.wait_for_end("limited").state == "failed"
    run.release()
    run.wait_for_end("again")
    run.wait_for_callback("limited")
    assert {task: run.outcome(task) for task in RUNNING} == {"again": RUN_AGAIN, "limited": LIMIT_REACHED}
    assert run.steps("again") == ["begun", "begun", "ended"]
    actions = [row["action"] for row in run.ledger("limited", event=EXECUTION_FAILURE_EVENT)]
    assert actions == ["relaunch", "count"]
    testbed.cluster.wait_until_done(run.run_id)


# ---------------------------------------------------------------------- what all of them have in common


def retires(info: RequestInfo) -> bool:
    """Whether a pod is deleted, or labelled as done or adopted."""
    return info.resource == "pods" and info.verb in ("delete", "patch")


def kill(testbed: Testbed) -> None:
    """Kill the scheduler that runs, and let it count as dead at once."""
    for scheduler in testbed.schedulers.alive:
        testbed.schedulers.kill_long_ago(scheduler)


def expect(testbed: Testbed, run: Run, healed: Outcome = RECOVERED) -> None:
    """Start another scheduler, and see that nothing is lost, nothing doubled, and no count begins anew."""
    testbed.schedulers.start()
    assert testbed.end(run) == {"healed": healed, "hopeless": GIVEN_UP}
    assert [row["action"] for row in run.ledger("hopeless")] == ["relaunch"] * RELAUNCHES + ["count"]
