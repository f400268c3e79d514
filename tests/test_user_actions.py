# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a user does to a task while it is being relaunched holds, whatever stage the relaunch is at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cluster_lab.faults.plan import Fault
from testbed.cluster import creates_pod
from testbed.records import Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import LONGEST_WAIT, wait_for

pytestmark = pytest.mark.system

DEPLOYMENT = {
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": "2",
    "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_DELAY": "0",
}

Action = Callable[[Testbed, Run], None]


def clear(testbed: Testbed, run: Run) -> None:
    """Clear the task."""
    testbed.api.clear(run.dag_id, run.run_id, "lost")


def mark_success(testbed: Testbed, run: Run) -> None:
    """Mark the task as a success."""
    testbed.api.mark(run.dag_id, run.run_id, "lost", "success")


def mark_failed(testbed: Testbed, run: Run) -> None:
    """Mark the task as failed."""
    testbed.api.mark(run.dag_id, run.run_id, "lost", "failed")


def delete_run(testbed: Testbed, run: Run) -> None:
    """Delete the run of the DAG."""
    # Airflow refuses to delete a run that is under way.
    path = f"/dags/{run.dag_id}/dagRuns/{run.run_id}"
    testbed.api.http.patch(path, json={"state": "failed"}).raise_for_status()
    testbed.api.http.delete(path).raise_for_status()


ACTIONS: tuple[Action, ...] = (clear, mark_success, mark_failed, delete_run)


def test_while_the_replacement_waits_to_be_launched(testbed: Testbed) -> None:
    with testbed.replacements_held(lambda: start(testbed, "waiting"), len(ACTIONS)) as (runs, held):
        held.wait_for(len(runs), LONGEST_WAIT)
        act(testbed, runs)
        held.drop()
    assert end(testbed, runs) == expected(pods=1, begun=0, launch_failures=1)


def test_while_the_replacement_is_pending(testbed: Testbed) -> None:
    runs = begin(testbed, "pending")
    for run in runs.values():
        run.wait_for_pods("lost", 2)
    act(testbed, runs)
    assert end(testbed, runs) == expected(pods=2, begun=0, launch_failures=1)


def test_while_the_replacement_runs(testbed: Testbed) -> None:
    runs = begin(testbed, "running")
    for run in runs.values():
        run.wait_for_code("lost")
    act(testbed, runs)
    # The worker learns from the answer to its next heartbeat that it has to go.
    assert end(testbed, runs) == expected(pods=2, begun=1, launch_failures=1)


# ---------------------------------------------------------------------- of a task that runs


def test_while_the_worker_is_told_to_go(testbed: Testbed) -> None:
    runs = begin_running(testbed, "ending")
    for run in runs.values():
        (pod,) = run.pods("lost")
        testbed.cluster.evict(pod)
        wait_for("it is told to go", lambda pod=pod: testbed.cluster.is_ending(pod))
    act(testbed, runs)
    assert end(testbed, runs) == expected(pods=1, begun=1, launch_failures=0)


def test_while_a_task_that_ran_waits_to_be_launched_again(testbed: Testbed) -> None:
    runs = begin_running(testbed, "waiting_again")
    with testbed.proxy.hold(when=creates_pod) as held:
        lose_all(testbed, runs)
        held.wait_for(len(runs), LONGEST_WAIT)
        act(testbed, runs)
        held.drop()
    assert end(testbed, runs) == expected(pods=1, begun=1, launch_failures=0, execution_failures=1)


def test_while_a_task_that_ran_runs_again(testbed: Testbed) -> None:
    runs = begin_running(testbed, "running_again")
    lose_all(testbed, runs)
    for run in runs.values():
        run.wait_for_times(2, "lost")
    act(testbed, runs)
    assert end(testbed, runs) == expected(pods=2, begun=2, launch_failures=0, execution_failures=1)


def begin_running(testbed: Testbed, at: str) -> dict[str, Run]:
    """Start a run for each action, by its name, and wait until the user's code of each has begun."""
    runs = begin(testbed, at)
    for run in runs.values():
        run.wait_for_code("lost")
    return runs


def lose_all(testbed: Testbed, runs: dict[str, Run]) -> None:
    """Have the pods of all tasks lost at work."""
    for run in runs.values():
        testbed.cluster.lose(run.pods("lost")[-1], Fault.EVICTED_RUNNING)


# ---------------------------------------------------------------------- what all of them have in common


def start(testbed: Testbed, at: str) -> dict[str, Run]:
    """Start a run for each action, by its name."""
    return {action.__name__: testbed.trigger(f"{action.__name__}_{at}") for action in ACTIONS}


def begin(testbed: Testbed, at: str) -> dict[str, Run]:
    """Start a run for each action, by its name, and wait until each has a pod."""
    runs = start(testbed, at)
    for run in runs.values():
        run.wait_for_pods("lost", 1)
    return runs


def act(testbed: Testbed, runs: dict[str, Run]) -> None:
    """Do to each run what its name says."""
    for action in ACTIONS:
        action(testbed, runs[action.__name__])


def end(testbed: Testbed, runs: dict[str, Run]) -> dict[str, Outcome | None]:
    """Wait until no pod is left, and return what has become of the tasks; None: there is none any more."""
    cleared = runs["clear"]
    wait_for("the next try has begun", lambda: cleared.outcome("lost").try_number == 2)
    cleared.release()
    cleared.wait_for_end("lost")
    run_ids = [run.run_id for run in runs.values()]
    wait_for("no pod is left", lambda: not any(map(testbed.cluster.unfinished_business, run_ids)))
    assert not any("Traceback" in scheduler.log() for scheduler in testbed.schedulers.alive)
    return {name: next(iter(run.outcomes().values()), None) for name, run in runs.items()}


def expected(pods: int, begun: int, **failures: int) -> dict[str, Outcome | None]:
    """
    Return what is to have become of the tasks.

    :param pods: how many each had before the action
    :param begun: how often the code of each had begun
    """
    next_try = Outcome(state="success", try_number=2, max_tries=1, pods=pods + 1, begun=begun + 1, **failures)
    success = Outcome(state="success", pods=pods, begun=begun, ended=0, **failures)
    failed = replace(success, state="failed")
    return {"clear": next_try, "mark_success": success, "mark_failed": failed, "delete_run": None}
