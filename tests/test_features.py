# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What users do with a KubernetesExecutor, while it loses their pods."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cluster_lab.journal import JournalEvent
from stage.cluster import DONE_LABEL
from stage.evidence import Outcome, Run
from stage.stage import Stage
from stage.waiting import LONGEST_WAIT, wait_for

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

DEPLOYMENT = {
    # A worker that exits on its own is relaunched here, which is a way to get a lost pod that has a log.
    "AIRFLOW__KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_EXCLUDED_CONTAINER_REASONS": "",
    "AIRFLOW__KUBERNETES_RESILIENCE__UNSCHEDULABLE_TIMEOUT": "5",
}

RECOVERED = Outcome(state="success", pods=2, launch_failures=1)
UNTOUCHED = Outcome(state="success", pods=1, launch_failures=0)


def test_of_mapped_task_instances_only_the_one_that_lost_its_pod_is_relaunched(stage: Stage) -> None:
    run = stage.trigger("mapped")
    run.release()
    outcomes = [run.wait_for_end("item", map_index) for map_index in range(3)]
    assert outcomes == [UNTOUCHED, RECOVERED, UNTOUCHED]


def test_a_deferred_task_whose_second_pod_is_lost_is_continued_once(stage: Stage) -> None:
    run = stage.trigger("deferred")
    wait_for("the first pod has ended", lambda: run.events("waiter", JournalEvent.EXITED))
    run.release()
    assert run.wait_for_end("waiter") == Outcome(state="success", pods=3, begun=2, ended=2, launch_failures=1)


def test_a_deferred_task_goes_on_while_its_first_pod_has_not_ended(stage: Stage) -> None:
    run = stage.trigger("lingering")
    first = run.wait_for_pods("waiter", 1)[0]
    over = stage.home / "lingering" / "over"
    stage.decide(first, f'"$@"; until [ -e {over} ]; do sleep 0.1; done; exit 0')
    wait_for("the task is deferred", lambda: run.outcome("waiter").state == "deferred")
    run.release()
    third = run.wait_for_pods("waiter", 3)[2]
    over.touch()
    wait_for("the first pod has ended", lambda: run.events("waiter", JournalEvent.EXITED))
    stage.schedulers.wait_for_turns(2)
    stage.decide(third)
    assert run.wait_for_end("waiter") == Outcome(state="success", pods=3, begun=2, ended=2, launch_failures=1)


def test_template_and_override_hold_for_the_replacement_too(stage: Stage) -> None:
    run = stage.trigger("custom_pod")
    run.wait_for_code("custom")
    kept, current = run.pods("custom")
    pods = {pod.metadata.name: pod for pod in stage.cluster.pods(run.run_id)}
    assert set(pods) == {kept, current}
    for pod in pods.values():
        assert pod.metadata.labels["team"] == "blue"
        assert pod.metadata.annotations["from"] == "template"
        assert pod.spec.termination_grace_period_seconds == 3
        assert {container.name for container in pod.spec.containers} == {"base", "proxy"}
    assert pods[kept].status.phase == "Failed"
    assert DONE_LABEL in pods[kept].metadata.labels
    assert DONE_LABEL not in pods[current].metadata.labels
    run.release()
    assert run.wait_for_end("custom") == RECOVERED


def test_a_sidecar_does_not_outlive_its_worker_for_long(stage: Stage) -> None:
    run = stage.trigger("beside_a_sidecar")
    run.wait_for_code("custom")
    kept, current = run.pods("custom")
    wait_for("the sidecar is stopped", lambda: phases(stage, run)[kept] == "Failed")
    assert phases(stage, run)[current] == "Running"
    assert [row["reason"] for row in run.ledger("custom")] == ["StartError"]
    run.release()
    assert run.wait_for_end("custom") == RECOVERED


def test_a_pod_that_no_node_suits_is_given_up_and_replaced(stage: Stage) -> None:
    nodes = stage.cluster.nodes()
    stage.cluster.cordon(*nodes)
    try:
        run = stage.trigger("unplaced")
        run.wait_for_ledger("work", 1)
    finally:
        stage.cluster.cordon(*nodes, unschedulable=False)
    run.wait_for_code("work")
    run.release()
    # The first one has never reached a node.
    assert run.wait_for_end("work") == Outcome(state="success", pods=1, launch_failures=1)
    (row,) = run.ledger("work")
    assert (row["reason"], row["context"]["metadata"]["condition"]) == ("Unschedulable", "PodScheduled")
    assert "nodes are available" in row["context"]["metadata"]["message"]


def test_a_task_cleared_during_its_relaunch_runs_once(stage: Stage) -> None:
    run = stage.trigger("cleared")
    superseded = run.wait_for_pods("held", 2)[1]
    started(run, 1)
    stage.api.post(
        "/dags/cleared/clearTaskInstances",
        json={"dry_run": False, "dag_run_id": run.run_id, "task_ids": ["held"], "only_failed": False},
    ).raise_for_status()

    stage.decide(run.wait_for_pods("held", 3)[2])
    run.wait_for_code("held")
    stage.decide(superseded)
    wait_for("the cleared try's worker has given up", lambda: ended(run, superseded))
    run.release()
    assert run.wait_for_end("held") == Outcome(
        state="success", try_number=2, max_tries=1, pods=3, launch_failures=1
    )
    wait_for("no pod is left", lambda: not stage.cluster.unfinished_business(run.run_id))


def test_a_task_marked_success_during_its_relaunch_leaves_no_pod_behind(stage: Stage) -> None:
    run = stage.trigger("marked")
    replacement = run.wait_for_pods("held", 2)[1]
    started(run, 1)
    stage.api.patch(
        f"/dags/marked/dagRuns/{run.run_id}/taskInstances/held", json={"new_state": "success"}
    ).raise_for_status()
    stage.decide(replacement)

    wait_for("no pod is left", lambda: not stage.cluster.unfinished_business(run.run_id))
    assert run.wait_for_end("held") == Outcome(state="success", pods=2, begun=0, ended=0, launch_failures=1)


def test_a_lost_launch_is_seen_in_the_task_log_and_in_the_audit_log(stage: Stage) -> None:
    run = stage.trigger("shown")
    lost = run.wait_for_pods("held", 1)[0]
    stage.decide(lost, 'echo "a library is missing"; exit 3')
    stage.decide(run.wait_for_pods("held", 2)[1])
    run.wait_for_code("held")

    log = wait_for(
        "the log of the task", lambda: lines if "the task works" in (lines := task_log(stage, run)) else []
    )
    earlier = log.index(f"--- launch 1, pod {lost} ---")
    assert log.index("the task works") < earlier
    assert log[earlier + 1 :] == [f"{lost} | a library is missing"]

    answer = stage.api.get("/eventLogs", params={"dag_id": "shown", "event": "pod launch failed"})
    (entry,) = answer.raise_for_status().json()["event_logs"]
    assert (entry["task_id"], entry["run_id"], entry["try_number"]) == ("held", run.run_id, 1)
    details = json.loads(entry["extra"])
    assert details["action"] == "relaunch"
    assert lost in str(details)

    run.release()
    assert run.wait_for_end("held") == RECOVERED


def test_the_command_line_knows_the_provider_and_its_options(stage: Stage) -> None:
    assert "watch_inactivity_timeout" in airflow(
        stage, "config", "list", "--section", "kubernetes_resilience"
    )
    assert (
        airflow(stage, "config", "get-value", "kubernetes_resilience", "watch_inactivity_timeout") == "150\n"
    )
    assert "Kubernetes Resilience" in airflow(
        stage, "providers", "get", "airflow-provider-cncf-kubernetes-resilience", "--full"
    )


def test_a_value_that_cannot_be_used_stops_the_scheduler(stage: Stage) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "airflow", "scheduler", "--skip-serve-logs"],
        env={
            **stage.deployment.environment,
            "AIRFLOW__KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES": "many",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_WAIT,
    )
    assert done.returncode != 0
    last = (done.stdout + done.stderr).strip().splitlines()[-1]
    assert "[kubernetes_executor] pod_launch_failure_retries = 'many' cannot be used" in last


def phases(stage: Stage, run: Run) -> dict[str, str]:
    """Return the phases of a run's pods, by name."""
    return {pod.metadata.name: pod.status.phase for pod in stage.cluster.pods(run.run_id)}


def started(run: Run, count: int) -> None:
    """Wait until so many workers of the task have been started."""
    wait_for("a worker waits", lambda: len(run.events("held", JournalEvent.STARTED)) >= count)


def ended(run: Run, pod: str) -> bool:
    """Whether the worker of a pod has ended by itself, and not well."""
    return any(entry.pod == pod and entry.exit_code for entry in run.events("held", JournalEvent.EXITED))


def task_log(stage: Stage, run: Run) -> list[str]:
    """Return the lines of the first try's log, asked for in the way that the UI does."""
    path = f"/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances/held/logs/1"
    answer = stage.api.get(path, headers={"Accept": "application/x-ndjson"}).raise_for_status()
    return [json.loads(line)["event"] for line in answer.text.splitlines()]


def airflow(stage: Stage, *arguments: str) -> str:
    """Run an ``airflow`` command that has nothing to complain about, and return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "airflow", *arguments],
        env=stage.deployment.environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=LONGEST_WAIT,
    )
    assert "warn" not in (done.stdout + done.stderr).lower()
    return done.stdout
