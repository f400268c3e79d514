# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Task instances that run in a pod which nobody follows: superseded, and started after all."""

from __future__ import annotations

import pytest
from kubernetes.client import models as k8s

from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import (
    DELETION_TIMEOUT,
    UNKNOWN_VERSION,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures.record import REPORT_GRACE
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    KubernetesApiError,
)
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodCreated, PodNotCreated
from cluster_lab.airflow_fixtures import make_scheduler_job

from ....support import manifests as m
from ....support.cluster import Pod
from ....support.harness import OTHER_JOB, database_away, statements
from .test_executions import BUDGET, failed_launches, find_pods, heartbeat_timeout, losses, present


@pytest.fixture
def harness(start):
    return start(**BUDGET)


@pytest.mark.parametrize("config", [{}, BUDGET], ids=["no budget", "budget"])
def test_a_guess_while_the_database_does_not_answer_us_does_not_end_the_scheduler(start, queued_ti, config):
    """The scheduler's own session has its connection; ours ask the pool for another one."""
    harness = start(**config)
    ti = queued_ti()
    harness.set_state(ti, "running", hostname="somewhere")
    with database_away(task_instances, "read_by_key"):
        heartbeat_timeout(harness, ti)


def unfollowed(harness, ti):
    """The first pod is given up, is not deleted in time, and starts when there is a replacement."""
    first = harness.launch(ti)
    harness.observe(first, m.image_pull_error())
    assert len(failed_launches(harness)) == 1
    harness.wait(DELETION_TIMEOUT + 60)
    second = harness.created()
    harness.observe(second, m.pod("Pending", [m.base(m.CREATING)]))
    harness.observe(first, m.alive())
    harness.begin(ti, first)
    return first, second


def given_up(harness, ti):
    return unfollowed(harness, ti)


def evicted(harness, ti):
    """The first pod has ended, and Airflow learns of its start when the replacement waits for a node."""
    first = harness.launch(ti)
    harness.observe(first, m.evicted())
    harness.wait(60)
    second = harness.created()
    harness.begin(ti, first)
    return first, second


@pytest.mark.parametrize("goes_on", ["with another scheduler", "with its next phase"])
def test_a_task_that_runs_in_the_pod_of_an_unanswered_create_call_is_not_deleted(harness, queued_ti, goes_on):
    """Its worker has reported an address, and the search for its pod comes to no end."""
    ti = queued_ti()
    first = harness.launch(ti)
    harness.observe(first, m.evicted())
    harness.vanish(first)
    harness.wait(1)
    launch_id, body = harness.create_call()
    pod = harness.cluster.add(Pod(body))
    pod.become(m.alive())
    pod.manifest["status"]["podIP"] = address = "10.9.8.7"
    harness.send(PodNotCreated(launch_id, ConnectionFailedError("reset")))
    harness.set_state(ti, "running", hostname=address)
    harness.runtime.take("delete")
    harness.wait(20)
    assert harness.runtime.take("look_for") == [(pod.ref.namespace, pod.ref.name, launch_id)]
    if goes_on == "with another scheduler":
        harness.set_state(ti, "running", queued_by_job_id=OTHER_JOB)
    else:
        harness.set_state(ti, "deferred")
        harness.requeue(ti)
    harness.send(PodCreated(launch_id, pod.facts()))
    for _ in range(3):
        find_pods(harness)
        harness.wait(20)
    deletions = harness.runtime.take("delete")
    assert deletions == [(pod.ref, UNKNOWN_VERSION, harness.label)] * len(deletions), "unless it has started"


@pytest.mark.parametrize("begins", [given_up, evicted])
def test_a_silent_worker_is_settled_although_its_replacement_is_pending(harness, queued_ti, begins):
    """No node suits the replacement, and nothing limits that: the task runs, says Airflow."""
    ti = queued_ti()
    key = ti.key
    _, second = begins(harness, ti)
    harness.observe(second, m.unschedulable())
    for _ in range(3):  # finds the pod, asks whether it is still there, and settles
        heartbeat_timeout(harness, present(harness, key))
        find_pods(harness)
        harness.wait(REPORT_GRACE)
    assert len(losses(harness)) == 1
    assert second.ref in [ref for ref, *_ in harness.runtime.take("delete")]


def test_a_silent_worker_in_a_pod_that_lives_has_failed_by_itself(harness, queued_ti):
    ti = queued_ti()
    first, second = unfollowed(harness, ti)
    harness.observe(second, m.worker_error(1))
    harness.wait(60)
    assert losses(harness) == []
    harness.runtime.take("delete")
    harness.observe(first, m.alive())
    for _ in range(2):
        heartbeat_timeout(harness, ti)
        find_pods(harness)
    harness.wait(REPORT_GRACE)
    assert [loss["action"] for loss in losses(harness)] == ["count"]
    assert [state for state, _ in harness.events().values()] == ["failed"]


@pytest.mark.parametrize("state", ["failed", "running"])
def test_launches_that_are_not_made_take_no_statements_of_their_own(harness, queued_ti, session, state):
    other = make_scheduler_job(session)
    counts = []
    for dag_id, count in (("one", 1), ("many", 20)):
        tis = queued_ti(dag_id, mapped=count)
        for ti in tis:
            harness.queue(ti)
        for ti in tis:
            harness.set_state(ti, state, queued_by_job_id=other)
        with statements(session) as found:
            harness.executor.heartbeat()
        counts.append(len(found))
    assert counts[1] <= counts[0]


def test_one_that_vanished_while_it_started_is_found_when_its_replacement_is_due(harness, launched):
    ti, pod = launched
    harness.observe(pod, m.alive())
    harness.vanish(pod)
    assert len(failed_launches(harness)) == 1
    replacement = harness.created()
    harness.begin(ti, pod)
    harness.observe(replacement, m.worker_error(1))
    find_pods(harness)
    harness.wait(REPORT_GRACE)
    assert [loss["action"] for loss in losses(harness)] == ["relaunch"]


def test_a_late_start_is_found_where_hosts_are_known_by_their_addresses(harness, launched):
    """As ``docs/how-it-works.md`` says: by the pod's name, or by its address."""
    ti, pod = launched
    starting = m.starting()
    starting["status"]["podIP"] = "10.1.2.3"
    harness.observe(pod, starting)
    ended = m.api_unreachable()
    ended["status"]["podIP"] = "10.1.2.3"
    harness.observe(pod, ended)
    assert len(failed_launches(harness)) == 1
    harness.begin(ti, pod)
    harness.set_state(ti, "running", hostname="10.1.2.3")
    harness.wait(60)
    assert (heartbeat_timeout(harness, ti), harness.events()) == ([], {})


def come_to_the_next_phase(harness, ti, like):
    """Have a first pod, whose name is fixed, end before it has begun, and a second one defer the task."""
    ti.executor_config = {"pod_override": k8s.V1Pod(metadata=k8s.V1ObjectMeta(name="fixed"))}
    harness.session.commit()
    first = harness.launch(ti)
    harness.observe(first, like)
    harness.wait(60)
    second = harness.created()
    harness.observe(second, m.alive())
    harness.begin(ti, second)
    harness.set_state(ti, "deferred")
    harness.observe(second, m.succeeded())
    harness.quiet()
    harness.set_state(ti, "queued")
    return first, second


def test_a_loss_takes_no_charge_back_that_has_only_the_name_of_the_pod_in_common(
    start, queued_ti, successor, cluster
):
    """The name is fixed, and the first pod of each phase has it."""
    harness = start(**BUDGET)
    ti = queued_ti()
    first, second = come_to_the_next_phase(harness, ti, m.api_unreachable())
    for pod in (first, second):
        cluster.remove(pod)
    third = harness.launch(harness.row(ti))
    assert (first.name, third.name) == ("fixed", "fixed")
    harness.observe(third, m.alive())
    harness.begin(ti, third)
    cluster.remove(third)
    heir = successor(**BUDGET)
    heir.adopt(ti)
    heir.wait(REPORT_GRACE)
    (loss,) = losses(heir)
    assert loss["worker_uid"] != first.uid, "the failed launch does not count any more"


def test_a_pod_that_has_only_its_name_in_common_with_a_failed_launch_is_not_lost(harness, queued_ti):
    """Its create call was a dead scheduler's, for example, and was carried out after it was looked for."""
    ti = queued_ti()
    first, _ = come_to_the_next_phase(harness, ti, m.evicted())
    harness.queue(harness.row(ti))
    harness.begin(ti, first)  # another pod of that name
    harness.executor.heartbeat()
    harness.wait(REPORT_GRACE)
    assert losses(harness) == []


def test_one_namespace_that_may_not_be_listed_does_not_stop_the_tasks_of_another(
    harness, queued_ti, successor, cluster
):
    """It is refused (403) for good, so that this is no outage, and pods can be created."""
    ti = queued_ti()
    harness.launch(ti)
    heir = successor()
    cluster.outage = KubernetesApiError("pods is forbidden in the namespace other", status=403)
    heir.adopt(ti)
    heir.executor.revoke_task(ti=ti)  # it was stuck in queued
    heir.hand_over(heir.row(ti))
    created = []
    for _ in range(60):
        heir.wait(60)
        heir.runtime.carry_out("PodSearch")
        created += heir.runtime.take("create")
    assert created, "nothing is launched within an hour, and nothing says so"
