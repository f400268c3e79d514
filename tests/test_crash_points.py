# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A scheduler is killed at each moment of a relaunch that matters, and another one is started.

The moments are brought about from outside: a request of the scheduler is held up on its way to the API server
or back, and while it is, the scheduler gets SIGKILL. What it has asked for by then, and what not, is certain.

Each DAG has a task that is healed by a relaunch, and one whose every launch is lost. The latter has to come
to an end after exactly as many launches as are allowed: a count that begins anew after a crash would show.
"""

from __future__ import annotations

from signal import SIGKILL

import pytest

from cluster_lab.apiserver import RequestInfo
from testbed.predicates import creates_pod
from testbed.records import Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import LONGEST_WAIT, wait_for

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

RELAUNCHES = 5
DEPLOYMENT = {
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
    # How long a scheduler has to be silent to count as dead, and how often the others look.
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "2",
    "AIRFLOW__KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES": str(RELAUNCHES),
}

TASKS = ("healed", "hopeless")
HEALED = Outcome(state="success", pods=2, launch_failures=1)
GIVEN_UP = Outcome(state="failed", pods=RELAUNCHES + 1, begun=0, ended=0, launch_failures=RELAUNCHES + 1)


def test_after_the_ledger_row_and_before_the_new_pod(testbed: Testbed) -> None:
    run = testbed.trigger("before_new_pod")
    run.wait_for_pods("healed", 1)
    run.wait_for_pods("hopeless", 1)
    with testbed.proxy.hold(when=creates_pod) as held:
        held.wait_for(2, LONGEST_WAIT)
        assert [len(run.ledger(task)) > 0 for task in TASKS] == [True, True]
        kill(testbed)
    expect(testbed, run)


def test_after_the_new_pod_and_before_the_old_one_is_retired(testbed: Testbed) -> None:
    with testbed.proxy.hold(when=retires) as held:
        run = testbed.trigger("before_retirement")
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
    for task in TASKS:
        run.wait_for_ledger(task, 4)
    kill(testbed)
    assert run.outcome("healed").pods == 4
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


def retires(info: RequestInfo) -> bool:
    """Whether a pod is deleted, or labelled as done or adopted."""
    return info.resource == "pods" and info.verb in ("delete", "patch")


def kill(testbed: Testbed) -> None:
    """Kill the scheduler that runs."""
    for scheduler in testbed.schedulers.alive:
        scheduler.end(SIGKILL)


def expect(testbed: Testbed, run: Run, healed: Outcome = HEALED) -> None:
    """Start another scheduler, and see that nothing is lost, nothing doubled, and no count begins anew."""
    testbed.schedulers.start()
    run.release()
    assert run.wait_for_all_to_end() == {"healed": healed, "hopeless": GIVEN_UP}
    assert [row["action"] for row in run.ledger("hopeless")] == ["relaunch"] * RELAUNCHES + ["count"]
    wait_for("no pod is left", lambda: not testbed.cluster.unfinished_business(run.run_id))
