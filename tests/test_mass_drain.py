# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A whole node pool is drained: 300 pods die at one instant, before their tasks' processes have started.

The workers are light ones (:mod:`testbed.light_worker`): 300 of Airflow's own would take two cores a quarter
of an hour. Everything else is real.
"""

from __future__ import annotations

from collections import Counter

import pytest

from testbed.records import RECOVERED, Run, TaskId
from testbed.testbed import Testbed
from testbed.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.long]

TASKS = 300
PARALLELISM = {"above": 400, "below": 100}
NODES = 6
DEPLOYMENT = {
    "AIRFLOW__CORE__PARALLELISM": str(PARALLELISM["above"]),
    "AIRFLOW__CORE__DEFAULT_POOL_TASK_SLOT_COUNT": "1000",
    "AIRFLOW__SCHEDULER__MAX_TIS_PER_QUERY": "0",
}


def test_all_pods_of_a_run_die_at_one_instant(testbed: Testbed) -> None:
    run = testbed.trigger("all_at_once")
    wait_for("every task has a pod", lambda: len(run.all_pods()) == TASKS, show=lambda: len(run.all_pods()))
    testbed.cluster.drain(run.dag_id)
    wait_for("every task has another", lambda: len(run.all_pods()) == 2 * TASKS)
    run.release()
    assert_all_healed(testbed, run)


def test_all_pods_die_again_and_again_while_most_tasks_wait_for_a_slot(testbed: Testbed) -> None:
    testbed.schedulers.replace(env={"AIRFLOW__CORE__PARALLELISM": str(PARALLELISM["below"])})
    run = testbed.trigger("in_waves")
    run.release()

    def drain_all() -> bool:
        launched = sum(entry.launch == 1 for entry in run.all_pods())
        if launched % PARALLELISM["below"] == 0 and launched > drained["pods"]:
            testbed.cluster.drain(run.dag_id)
            drained["pods"] = launched
        return launched == drained["pods"] == TASKS

    drained = Counter(pods=0)
    wait_for("every first pod was drained", drain_all, show=lambda: len(run.all_pods()))
    assert_all_healed(testbed, run)


def assert_all_healed(testbed: Testbed, run: Run) -> None:
    """Wait for the end of all tasks: each had one more pod, and ran once, in its first try."""
    wait_for(
        "all tasks have succeeded",
        lambda: Counter(run.states().values())["success"] == TASKS,
        show=lambda: {task: outcome for task, outcome in run.outcomes().items() if outcome != RECOVERED},
    )
    assert run.outcomes() == {TaskId("item", number): RECOVERED for number in range(TASKS)}
    testbed.cluster.wait_until_done(run.run_id)
