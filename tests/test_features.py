# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What users do with a KubernetesExecutor, while it loses their pods."""

from __future__ import annotations

import json

import pytest

from cluster_lab.journal import JournalEvent
from cluster_lab.managed_process import run_to_end
from testbed.airflow_deployment import Component
from testbed.cluster import DONE_LABEL
from testbed.records import RECOVERED, UNTOUCHED, Outcome, Run
from testbed.testbed import Testbed
from testbed.waiting import wait_for

pytestmark = pytest.mark.system

DEPLOYMENT = {
    # A worker that exits on its own is relaunched here, which is a way to get a lost pod that has a log.
    "AIRFLOW__KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_EXCLUDED_CONTAINER_REASONS": "",
    "AIRFLOW__KUBERNETES_RESILIENCE__UNSCHEDULABLE_TIMEOUT": "5",
}


def test_of_mapped_task_instances_only_the_one_that_lost_its_pod_is_relaunched(testbed: Testbed) -> None:
    run = testbed.trigger("mapped")
    run.release()
    run.wait_for_all_to_end()
    assert list(run.outcomes().values()) == [UNTOUCHED, RECOVERED, UNTOUCHED]


def test_a_deferred_task_goes_on_while_its_first_pod_has_not_ended(testbed: Testbed) -> None:
    run = testbed.trigger("lingering")
    first = run.wait_for_pods("waiter", 1)[0]
    over = testbed.home / "lingering" / "over"
    testbed.decide(first, f'"$@"; until [ -e {over} ]; do sleep 0.1; done; exit 0')
    wait_for("the task is deferred", lambda: run.outcome("waiter").state == "deferred")
    run.release()
    third = run.wait_for_pods("waiter", 3)[2]
    over.touch()
    wait_for("the first pod has ended", lambda: run.events("waiter", JournalEvent.EXITED))
    testbed.schedulers.wait_for_turns(2)
    testbed.decide(third)
    assert run.wait_for_end("waiter") == Outcome(state="success", pods=3, begun=2, ended=2, launch_failures=1)


def test_template_and_override_hold_for_the_replacement_too(testbed: Testbed) -> None:
    run = testbed.trigger("custom_pod")
    run.wait_for_code("custom")
    kept, current = run.pods("custom")
    pods = {pod["metadata"]["name"]: pod for pod in testbed.cluster.pods(run.run_id)}
    assert set(pods) == {kept, current}
    for pod in pods.values():
        assert pod["metadata"]["labels"]["team"] == "blue"
        assert pod["metadata"]["annotations"]["from"] == "template"
        assert pod["spec"]["terminationGracePeriodSeconds"] == 3
        containers = {container["name"]: container for container in pod["spec"]["containers"]}
        assert set(containers) == {"base", "proxy"}
        base = containers["base"]
        assert base["envFrom"] == [{"secretRef": {"name": "warehouse"}}]
        secret = {"secretKeyRef": {"name": "mail", "key": "password"}}
        assert {"name": "PASSWORD", "valueFrom": secret} in base["env"]
        assert {"scratch", "tls"} <= {mount["name"] for mount in base["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        assert volumes["scratch"]["emptyDir"] == {}
        assert volumes["tls"]["secret"]["secretName"] == "tls"
    assert pods[kept]["status"]["phase"] == "Failed"
    assert DONE_LABEL in pods[kept]["metadata"]["labels"]
    assert DONE_LABEL not in pods[current]["metadata"]["labels"]
    run.release()
    assert run.wait_for_end("custom") == RECOVERED


@pytest.mark.long
def test_a_sidecar_does_not_outlive_its_worker_for_long(testbed: Testbed) -> None:
    run = testbed.trigger("beside_a_sidecar")
    run.wait_for_code("custom")
    kept, current = run.pods("custom")
    wait_for("the sidecar is stopped", lambda: phases(testbed, run)[kept] == "Failed")
    assert phases(testbed, run)[current] == "Running"
    assert [row["reason"] for row in run.ledger("custom")] == ["StartError"]
    run.release()
    assert run.wait_for_end("custom") == RECOVERED


def test_a_pod_that_no_node_suits_is_given_up_and_replaced(testbed: Testbed) -> None:
    nodes = testbed.cluster.nodes()
    testbed.cluster.cordon(*nodes)
    try:
        # No node would suit the replacement either before they take pods again.
        with testbed.replacements_held(lambda: testbed.trigger("unplaced"), 1) as (run, _held):
            run.wait_for_ledger("work", 1)
            testbed.cluster.cordon(*nodes, unschedulable=False)
    finally:
        testbed.cluster.cordon(*nodes, unschedulable=False)
    run.wait_for_code("work")
    run.release()
    # The first one has never reached a node.
    assert run.wait_for_end("work") == Outcome(state="success", pods=1, launch_failures=1)
    (row,) = run.ledger("work")
    assert (row["reason"], row["context"]["metadata"]["condition"]) == ("Unschedulable", "PodScheduled")
    assert "nodes are available" in row["context"]["metadata"]["message"]


def test_a_task_cleared_during_its_relaunch_runs_once(testbed: Testbed) -> None:
    run = testbed.trigger("cleared")
    superseded = run.wait_for_pods("held", 2)[1]
    started(run, 1)
    testbed.api.clear("cleared", run.run_id, "held")

    testbed.decide(run.wait_for_pods("held", 3)[2])
    run.wait_for_code("held")
    testbed.decide(superseded)
    wait_for("the cleared try's worker has given up", lambda: run.has_failed("held", superseded))
    ended = Outcome(state="success", try_number=2, max_tries=1, pods=3, launch_failures=1)
    assert testbed.end(run) == {"held": ended}


def test_a_lost_launch_is_seen_in_the_task_log_and_in_the_audit_log(testbed: Testbed) -> None:
    run = testbed.trigger("shown")
    lost = run.wait_for_pods("held", 1)[0]
    testbed.decide(lost, 'echo "a library is missing"; exit 3')
    testbed.decide(run.wait_for_pods("held", 2)[1])
    run.wait_for_code("held")

    log = wait_for(
        "the log of the task",
        lambda: lines if "held works" in (lines := testbed.api.task_log("shown", run.run_id, "held")) else [],
    )
    earlier = log.index(f"--- launch 1, pod {lost} ---")
    assert log.index("held works") < earlier
    assert log[earlier + 1 :] == [f"{lost} | a library is missing"]

    answer = testbed.api.http.get("/eventLogs", params={"dag_id": "shown", "event": "pod launch failed"})
    (entry,) = answer.raise_for_status().json()["event_logs"]
    assert (entry["task_id"], entry["run_id"], entry["try_number"]) == ("held", run.run_id, 1)
    details = json.loads(entry["extra"])
    assert details["action"] == "relaunch"
    assert lost in str(details)

    run.release()
    assert run.wait_for_end("held") == RECOVERED


@pytest.mark.long
def test_the_command_line_knows_the_provider_and_its_options(testbed: Testbed) -> None:
    assert "watch_inactivity_timeout" in airflow(
        testbed, "config", "list", "--section", "kubernetes_resilience"
    )
    assert (
        airflow(testbed, "config", "get-value", "kubernetes_resilience", "watch_inactivity_timeout")
        == "150\n"
    )
    assert "Kubernetes Resilience" in airflow(
        testbed, "providers", "get", "airflow-provider-cncf-kubernetes-resilience", "--full"
    )


def test_a_value_that_cannot_be_used_stops_the_scheduler(testbed: Testbed) -> None:
    environment = testbed.deployment.environment | {
        "AIRFLOW__KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES": "many"
    }
    done = run_to_end(Component.SCHEDULER.command, environment)
    assert done.returncode != 0
    last = (done.stdout + done.stderr).strip().splitlines()[-1]
    assert "[kubernetes_executor] pod_launch_failure_retries = 'many' cannot be used" in last


def phases(testbed: Testbed, run: Run) -> dict[str, str]:
    """Return the phases of a run's pods, by name."""
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in testbed.cluster.pods(run.run_id)}


def started(run: Run, count: int) -> None:
    """Wait until so many workers of the task have been started."""
    wait_for("a worker waits", lambda: len(run.events("held", JournalEvent.STARTED)) >= count)


def airflow(testbed: Testbed, *arguments: str) -> str:
    """Run an ``airflow`` command that has nothing to complain about, and return its output."""
    done = testbed.deployment.run(*arguments)
    assert done.returncode == 0, done.stderr
    assert "warn" not in (done.stdout + done.stderr).lower()
    return done.stdout
