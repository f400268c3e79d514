# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a user does to a task while it is being relaunched holds, whatever stage the relaunch is at."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stage.evidence import Outcome, Run
from stage.predicates import creates_pod
from stage.stage import Stage
from stage.waiting import LONGEST_WAIT, wait_for

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

DEPLOYMENT = {"AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1"}

Action = Callable[[Stage, Run], None]


def clear(stage: Stage, run: Run) -> None:
    """Clear the task."""
    body = {"dry_run": False, "dag_run_id": run.run_id, "task_ids": ["lost"], "only_failed": False}
    stage.api.post(f"/dags/{run.dag_id}/clearTaskInstances", json=body).raise_for_status()


def mark_success(stage: Stage, run: Run) -> None:
    """Mark the task as a success."""
    _mark(stage, run, "success")


def mark_failed(stage: Stage, run: Run) -> None:
    """Mark the task as failed."""
    _mark(stage, run, "failed")


def delete_run(stage: Stage, run: Run) -> None:
    """Delete the run of the DAG."""
    # Airflow refuses to delete a run that is under way.
    path = f"/dags/{run.dag_id}/dagRuns/{run.run_id}"
    stage.api.patch(path, json={"state": "failed"}).raise_for_status()
    stage.api.delete(path).raise_for_status()


def _mark(stage: Stage, run: Run, state: str) -> None:
    path = f"/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances/lost"
    stage.api.patch(path, json={"new_state": state}).raise_for_status()


ACTIONS: tuple[Action, ...] = (clear, mark_success, mark_failed, delete_run)


def test_while_the_replacement_waits_to_be_launched(stage: Stage) -> None:
    runs = begin(stage, "waiting")
    with stage.proxy.hold(when=creates_pod) as held:
        held.wait_for(len(runs), LONGEST_WAIT)
        act(stage, runs)
        held.drop()
    assert end(stage, runs) == {
        "clear": Outcome(state="success", try_number=2, max_tries=1, pods=2, launch_failures=1),
        "mark_success": Outcome(state="success", pods=1, begun=0, ended=0, launch_failures=1),
        "mark_failed": Outcome(state="failed", pods=1, begun=0, ended=0, launch_failures=1),
        "delete_run": None,
    }


def test_while_the_replacement_is_pending(stage: Stage) -> None:
    runs = begin(stage, "pending")
    for run in runs.values():
        run.wait_for_pods("lost", 2)
    act(stage, runs)
    assert end(stage, runs) == {
        "clear": Outcome(state="success", try_number=2, max_tries=1, pods=3, launch_failures=1),
        "mark_success": Outcome(state="success", pods=2, begun=0, ended=0, launch_failures=1),
        "mark_failed": Outcome(state="failed", pods=2, begun=0, ended=0, launch_failures=1),
        "delete_run": None,
    }


def test_while_the_replacement_runs(stage: Stage) -> None:
    runs = begin(stage, "running")
    for run in runs.values():
        run.wait_for_code("lost")
    act(stage, runs)
    # The worker learns from the answer to its next heartbeat that it has to go.
    assert end(stage, runs) == {
        "clear": Outcome(state="success", try_number=2, max_tries=1, pods=3, begun=2, launch_failures=1),
        "mark_success": Outcome(state="success", pods=2, begun=1, ended=0, launch_failures=1),
        "mark_failed": Outcome(state="failed", pods=2, begun=1, ended=0, launch_failures=1),
        "delete_run": None,
    }


def begin(stage: Stage, at: str) -> dict[str, Run]:
    """Start a run for each action, by its name, and wait until each has a pod."""
    runs = {action.__name__: stage.trigger(f"{action.__name__}_{at}") for action in ACTIONS}
    for run in runs.values():
        run.wait_for_pods("lost", 1)
    return runs


def act(stage: Stage, runs: dict[str, Run]) -> None:
    """Do to each run what its name says."""
    for action in ACTIONS:
        action(stage, runs[action.__name__])


def end(stage: Stage, runs: dict[str, Run]) -> dict[str, Outcome | None]:
    """Wait until no pod is left, and return what has become of the tasks; None: there is none any more."""
    cleared = runs["clear"]
    wait_for("the next try has begun", lambda: cleared.outcome("lost").try_number == 2)
    cleared.release()
    cleared.wait_for_end("lost")
    run_ids = [run.run_id for run in runs.values()]
    wait_for("no pod is left", lambda: not any(map(stage.cluster.unfinished_business, run_ids)))
    assert not any("Traceback" in scheduler.log() for scheduler in stage.schedulers.alive)
    return {name: next(iter(run.outcomes().values()), None) for name, run in runs.items()}
