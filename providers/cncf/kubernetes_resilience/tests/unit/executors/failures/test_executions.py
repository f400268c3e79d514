# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A task that was running when the infrastructure took its worker runs again in the same try."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import pytest
from airflow.jobs.job import Job
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskreschedule import TaskReschedule
from kubernetes.client import models as k8s
from sqlalchemy import func, select, update

from airflow.providers.cncf.kubernetes_resilience.executors.failures.policies import RetryPolicies
from airflow.providers.cncf.kubernetes_resilience.executors.failures.record import REPORT_GRACE
from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import SIDECAR_GRACE
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import DatabaseAwayError
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import ConnectionFailedError
from airflow.providers.cncf.kubernetes_resilience.pods.facts import TASK_INSTANCE_ID_ANNOTATION
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodConfirmed, PodObservation
from airflow_resilience.termination.environment import INFRASTRUCTURE_RETRY
from cluster_lab.airflow_fixtures import make_scheduler_job

from ....support import manifests as m
from ....support.harness import lock, request_for, statements

DELAY = 10.0
BUDGET = {"KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": "2"}


@pytest.fixture
def harness(start):
    return start(**BUDGET)


def present(harness, key):
    """Return the row of a try, whatever its UUID is by now."""
    harness.session.commit()
    harness.session.expire_all()
    same = (TaskInstance.dag_id == key.dag_id, TaskInstance.task_id == key.task_id)
    return harness.session.scalars(
        select(TaskInstance).where(*same, TaskInstance.map_index == key.map_index)
    ).one()


def losses(harness, event="pod execution failed"):
    harness.session.commit()
    query = select(Log).where(Log.event == event).order_by(Log.id)
    return [json.loads(row.extra) for row in harness.session.scalars(query)]


def failed_launches(harness):
    return losses(harness, "pod launch failed")


def lose(harness, pod, like=None):
    """Have a pod end, and the time pass in which its worker may still report."""
    harness.observe(pod, like or m.evicted())
    harness.wait(REPORT_GRACE)


def find_pods(harness):
    """Have the pods looked for in which tasks run that nobody follows."""
    for _ in range(3):
        harness.wait(20)
        harness.runtime.carry_out("PodSearch")
        harness.executor.sync()


def run_again(harness, key):
    """Have the next pod created and its worker report its start; return the pod."""
    harness.wait(60)
    pod = harness.created()
    harness.observe(pod, m.alive())
    harness.begin(present(harness, key), pod)
    return pod


# ------------------------------------------------------------------ the same try, with another UUID


@pytest.mark.parametrize(
    "like",
    [
        m.evicted(),
        m.evicted_by_kubelet(),
        m.node_shutdown(),
        m.node_lost(),
        m.disrupted("DeletionByTaintManager"),
        m.disrupted("PreemptionByScheduler"),
        m.worker_error(137),
        m.pod("Failed", [m.base(m.terminated(255, "Unknown"))]),
        m.pod("Failed", [m.base(m.running())]),
        m.not_admitted(),
        m.evicted_by_kueue(),
    ],
    ids=[
        *("api", "pressure", "shutdown", "lost", "taint", "preempted", "killed"),
        *("rebooted", "end untold", "not admitted", "kueue"),
    ],
)
def test_it_runs_again_in_the_same_try(harness, running, like):
    ti, pod = running(harness)
    key, before = ti.key, str(ti.id)
    harness.observe(pod, like)
    assert (present(harness, key).state, losses(harness)) == ("running", [])
    harness.wait(REPORT_GRACE)
    row = present(harness, key)
    assert str(row.id) != before
    assert (row.state, row.try_number, row.max_tries) == ("queued", 1, 0)
    assert (row.queued_by_job_id, row.hostname, row.pid) == (harness.executor.job_id, "", None)
    (loss,) = losses(harness)
    assert (loss["action"], loss["ti_id"], loss["next_ti_id"]) == ("relaunch", before, str(row.id))
    assert loss["context"]["category"] == "INFRASTRUCTURE"
    assert (harness.events(), key in harness.executor.running) == ({}, True)


def test_a_worker_without_a_memory_limit_was_killed_for_want_of_memory_on_its_node(harness, queued_ti):
    ti = queued_ti()
    requests = k8s.V1ResourceRequirements(requests={"memory": "1Gi"})
    base = k8s.V1Container(name="base", resources=requests)
    override = k8s.V1Pod(spec=k8s.V1PodSpec(containers=[base]))
    harness.set_state(ti, "queued", executor_config={"pod_override": override})
    pod = harness.run(ti)
    lose(harness, pod, m.out_of_memory())
    (loss,) = losses(harness)
    assert (loss["action"], loss["context"]["metadata"]["cause"]) == ("relaunch", "node-out-of-memory")


def test_its_next_pod_is_made_for_the_new_id_after_the_delay_and_elsewhere(harness, running):
    ti, pod = running(harness)
    key = ti.key
    pod.manifest["spec"]["nodeName"] = "node-1"
    lose(harness, pod)
    harness.wait(DELAY - 1)
    assert harness.runtime.take("create") == []
    harness.wait(2)
    (_, body) = harness.create_call()
    row = present(harness, key)
    assert body["metadata"]["annotations"][TASK_INSTANCE_ID_ANNOTATION] == str(row.id)
    assert str(row.id) in json.dumps(body["spec"]), "the worker is told the new id"
    assert "node-1" in json.dumps(body["spec"]["affinity"])


def test_what_the_next_start_depends_on_is_kept(harness, running, session):
    ti, pod = running(harness)
    key, now = ti.key, datetime.now(UTC)
    harness.set_state(ti, "running", next_method="execute_complete", next_kwargs={"event": 1})
    for minutes in (3, 2):
        past = now - timedelta(minutes=minutes)
        session.add(TaskReschedule(ti.id, past, past, now))
    session.commit()
    lose(harness, pod)
    row = present(harness, key)
    assert (row.next_method, row.next_kwargs) == ("execute_complete", {"event": 1})
    kept = session.scalars(select(TaskReschedule).order_by(TaskReschedule.id)).all()
    assert [str(item.ti_id) for item in kept] == [str(row.id)] * 2
    assert [now - item.start_date for item in kept] == [timedelta(minutes=3), timedelta(minutes=2)]
    assert session.scalar(select(func.count()).select_from(TaskReschedule)) == 2


def test_many_that_are_lost_at_once_take_no_more_statements_than_one(harness, queued_ti, session):
    counts = []
    for dag_id, count in (("one", 1), ("many", 6)):
        tis = queued_ti(dag_id, mapped=count)
        pods = [harness.launch(ti) for ti in tis]
        for ti, pod in zip(tis, pods, strict=True):
            harness.observe(pod, m.alive())
            harness.begin(ti, pod)
        harness.send(*(PodObservation(pod.become(m.evicted()).facts()) for pod in pods))
        with statements(session) as found:
            harness.wait(REPORT_GRACE)
        counts.append(len(found))
    assert len(losses(harness)) == 7
    assert counts[0] == counts[1]


# ------------------------------------------------------------------ the budget


def test_a_budget_that_is_used_up(harness, running):
    ti, pod = running(harness, retries=1)
    key = ti.key
    for _ in range(2):
        lose(harness, pod)
        pod = run_again(harness, key)
    lose(harness, pod)
    assert [loss["action"] for loss in losses(harness)] == ["relaunch", "relaunch", "count"]
    attempts = [loss["context"]["metadata"]["infrastructure_attempt"] for loss in losses(harness)]
    assert attempts == [1, 2, 3]
    assert "retried 2 of 2 times" in harness.failure()
    assert (present(harness, key).state, key in harness.executor.running) == ("running", False)


def test_a_worker_cannot_reach_airflow_as_often_as_the_budget_has(harness, launched):
    _, pod = launched
    for _ in range(2):
        harness.observe(pod, m.api_unreachable())
        assert harness.runtime.take("create") == []
        harness.wait(60)
        pod = harness.created()
    harness.observe(pod, m.api_unreachable())
    assert "infrastructure_retry_budget: retried 2 of 2 times" in harness.failure()
    assert {entry["policy"] for entry in failed_launches(harness)} == {"infrastructure"}
    assert [entry["action"] for entry in failed_launches(harness)] == ["relaunch", "relaunch", "count"]
    assert losses(harness) == []


def test_it_takes_none_of_the_relaunches(start, queued_ti):
    harness = start(**BUDGET, KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES="1")
    ti = queued_ti()
    harness.observe(harness.launch(ti), m.api_unreachable())
    harness.wait(60)
    harness.observe(harness.created(), m.evicted())
    harness.wait(60)
    harness.observe(harness.created(), m.evicted())
    assert "retried 1 of 1 times" in harness.failure()


def test_a_start_that_airflow_learns_of_later_makes_it_a_loss(harness, queued_ti, succeeded_by):
    """The API server was too slow for the worker, and has carried its request out all the same."""
    ti = queued_ti()
    key, before = ti.key, str(ti.id)
    pod = harness.launch(ti)
    harness.observe(pod, m.api_unreachable())
    harness.begin(ti, pod)
    heir = succeeded_by(ti)
    heir.wait(REPORT_GRACE)
    heir.wait(REPORT_GRACE)
    assert [loss["ti_id"] for loss in losses(heir)] == [before]
    assert key.try_number == present(heir, key).try_number == 1
    assert [loss["context"]["reason"] for loss in losses(heir)] == ["DB_CONNECTION_ERROR"]
    assert [loss["action"] for loss in losses(heir)] == ["relaunch"]


def test_a_start_that_airflow_learns_of_when_the_replacement_exists_makes_it_a_loss(harness, queued_ti):
    """The worker of the replacement is refused, since the task runs."""
    ti = queued_ti()
    key = ti.key
    pod = harness.launch(ti)
    harness.observe(pod, m.api_unreachable())
    harness.wait(60)
    replacement = harness.created()
    harness.begin(ti, pod)
    harness.observe(replacement, m.worker_error(1))
    find_pods(harness)
    harness.wait(REPORT_GRACE)
    assert [loss["worker_uid"] for loss in losses(harness)] == [pod.uid]
    assert (harness.events(), present(harness, key).try_number) == ({}, 1)


def test_such_a_start_is_no_loss_without_a_budget(start, queued_ti):
    harness = start()
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.observe(pod, m.evicted())
    harness.begin(ti, pod)
    harness.wait(60)
    assert losses(harness) == []
    assert len(heartbeat_timeout(harness, ti)) == 1
    assert [state for state, _ in harness.events().values()] == ["failed"]


def test_a_pod_that_was_given_up_and_has_started_counts_as_lost_if_its_heartbeat_times_out(harness, launched):
    """It may run until then: when it was given up, it had not ended."""
    ti, pod = launched
    deleting = m.pod("Pending", [m.base(m.CREATING)], deleted=True)
    harness.observe(pod, deleting)
    harness.wait(60)
    assert [entry["reason"] for entry in failed_launches(harness)] == ["DeletionOverdue"]
    harness.begin(ti, pod)
    find_pods(harness)
    harness.wait(60)
    assert losses(harness) == []
    assert (heartbeat_timeout(harness, ti), harness.events()) == ([], {})
    harness.wait(REPORT_GRACE)
    assert [loss["action"] for loss in losses(harness)] == ["relaunch"]
    assert harness.events() == {}


def test_a_heartbeat_times_out_while_the_replacement_of_its_pod_waits(start, queued_ti):
    """The delay may be long, and Airflow has learned of the start at its beginning."""
    harness = start(**BUDGET, KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_DELAY="3600")
    ti = queued_ti()
    key = ti.key
    pod = harness.launch(ti)
    harness.observe(pod, m.api_unreachable())
    harness.begin(ti, pod)
    harness.wait(300)
    assert (heartbeat_timeout(harness, ti), harness.events()) == ([], {})
    find_pods(harness)
    harness.wait(REPORT_GRACE)
    assert [loss["action"] for loss in losses(harness)] == ["relaunch"]
    harness.wait(1)
    assert (harness.events(), present(harness, key).state) == ({}, "scheduled")


def test_without_a_budget_nothing_runs_again_whatever_the_rules_say(start, running, with_policies):
    rule = {"name": "all", "action": "Retry", "onCategories": ["INFRASTRUCTURE"]}
    policy = {"name": "mine", "rules": [rule]}
    harness = start(**with_policies(json.dumps({"policies": [policy], "defaultPolicy": "mine"})))
    ti, pod = running(harness)
    before = str(ti.id)
    harness.observe(pod, m.evicted())
    assert [state for state, _ in harness.events().values()] == ["failed"]
    assert str(present(harness, ti.key).id) == before
    (loss,) = losses(harness)
    assert (loss["action"], loss["policy"], loss["next_ti_id"]) == ("count", "-", None)
    assert loss["context"]["category"] == "INFRASTRUCTURE"


@pytest.mark.parametrize(
    ("config", "options", "state"),
    [
        ("0", {"infrastructure_retry_enabled": True}, "queued"),
        ("0", {"infrastructure_retry_limit": 1}, "queued"),
        ("2", {"infrastructure_retry_enabled": False}, "running"),
        ("2", {"infrastructure_retry_limit": 0}, "running"),
    ],
)
def test_a_task_has_a_budget_of_its_own(start, running, session, config, options, state):
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET=config)
    ti, pod = running(harness)
    ti.executor_config = options
    session.commit()
    lose(harness, pod)
    assert present(harness, ti.key).state == state
    assert [event for event, _ in harness.events().values()] == ([] if state == "queued" else ["failed"])


@pytest.mark.parametrize("like", [m.worker_error(), m.out_of_memory(), m.succeeded()])
def test_what_is_the_tasks_own_fault_costs_its_own_retries(harness, running, like):
    ti, pod = running(harness)
    before = str(ti.id)
    lose(harness, pod, like)
    assert [state for state, _ in harness.events().values()] == ["failed"]
    assert ([loss["action"] for loss in losses(harness)], str(present(harness, ti.key).id)) == (
        ["count"],
        before,
    )


@pytest.mark.parametrize(
    ("config", "options", "value"),
    [
        ("0", None, []),
        ("1", None, ["1"]),
        ("0", {"infrastructure_retry_limit": 2}, ["1"]),
        ("1", {"infrastructure_retry_enabled": False}, []),
    ],
)
def test_a_worker_is_told_that_its_task_has_a_budget(start, queued_ti, config, options, value):
    """In each of its pods: the relaunch of one that did not start is told it too."""
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET=config)
    ti = queued_ti()
    ti.executor_config = options
    first = harness.launch(ti)
    harness.observe(first, m.evicted())
    for pod in (first, harness.created()):
        (worker,) = pod.manifest["spec"]["containers"]
        assert [item["value"] for item in worker["env"] if item["name"] == INFRASTRUCTURE_RETRY] == value


# ------------------------------------------------------------------ races


@pytest.mark.parametrize("state", ["success", "failed", "up_for_retry", "deferred"])
def test_a_report_that_is_under_way_wins(harness, running, state):
    ti, pod = running(harness)
    harness.observe(pod, m.evicted())
    harness.set_state(ti, state)
    harness.wait(REPORT_GRACE)
    assert (losses(harness), present(harness, ti.key).state) == ([], state)
    assert ti.key not in harness.executor.running


# ------------------------------------------------------------------ a worker that reports its own termination


TERMINATED = m.disrupted("EvictionByEvictionAPI", exit_code=1)


def retries(harness, ti):
    """Have the worker of a task report its failure, as the execution API writes it down."""
    row = harness.row(ti)
    row.end_date = datetime.now(UTC)
    harness.begin_anew(row, "up_for_retry")


@pytest.mark.parametrize(
    ("like", "state"),
    [
        (TERMINATED, "up_for_retry"),
        (m.node_shutdown(), "up_for_retry"),
        (m.worker_error(1), "up_for_retry"),
        (TERMINATED, "failed"),
        (TERMINATED, "queued"),
    ],
    ids=["evicted", "shutdown", "failed by itself", "no retry left", "tried again"],
)
def test_what_a_worker_has_reported_stands(harness, running, like, state):
    ti, pod = running(harness)
    harness.set_state(ti, "running", max_tries=1)
    key = ti.key
    if state == "failed":
        harness.set_state(ti, "failed")
    else:
        retries(harness, ti)
    if state == "queued":
        harness.set_state(harness.row(ti), "queued", try_number=2)
    harness.observe(pod, like)
    row = present(harness, key)
    assert (row.state, row.max_tries, losses(harness)) == (state, 1, [])
    assert key not in harness.executor.running


# ------------------------------------------------------------------ a worker that is not heard of


def heartbeat_timeout(harness, ti):
    """Do what Airflow's scheduler does about a task instance without a heartbeat; return what was sent on."""
    sent = harness.call_back(harness.row(ti))
    harness.executor.change_state(ti.key, "failed", remove_running=True)
    return sent


def test_a_guess_about_a_task_that_is_cleared_is_forgotten(start, running):
    """Its worker stops by itself."""
    harness = start(**BUDGET)
    ti, pod = running(harness)
    harness.set_state(ti, "restarting")
    heartbeat_timeout(harness, ti)
    harness.executor.sync()
    harness.set_state(ti, "running")
    harness.observe(pod, m.alive())
    harness.wait(60)
    assert (losses(harness), harness.events()) == ([], {})


def test_a_guess_takes_the_callback_before_it_and_none_from_before(start, running):
    harness = start(**BUDGET)
    ti, _ = running(harness)
    sent = harness.call_back(harness.row(ti))  # about something else
    harness.executor.send_callback(request_for(ti).model_copy(update={"msg": "no heartbeat"}))
    harness.executor.change_state(ti.key, "failed", remove_running=True)
    harness.executor.sync()
    assert [request.msg for request in sent] == [""]


def unready():
    """As the control plane shows a pod of a node that it has not heard of."""
    manifest = m.alive()
    manifest["status"]["conditions"] = [m.condition("Ready", "False")]
    return manifest


def test_a_worker_on_a_node_that_is_cut_off(harness, running):
    ti, pod = running(harness)
    key = ti.key
    harness.observe(pod, unready())
    assert (heartbeat_timeout(harness, ti), harness.events()) == ([], {})
    harness.wait(REPORT_GRACE)
    assert present(harness, key).state == "queued"
    assert losses(harness)[0]["reason"] == "HeartbeatTimeout"
    ((ref, *_),) = harness.runtime.take("delete")
    assert ref == pod.ref
    harness.accepted(ref, 30)
    harness.wait(DELAY)
    assert harness.runtime.take("create") == [], "it may still run"
    harness.wait(40)
    assert harness.created().annotations[TASK_INSTANCE_ID_ANNOTATION] == str(present(harness, key).id)


def test_a_worker_that_hangs_on_a_healthy_node(harness, running):
    ti, _ = running(harness)
    assert heartbeat_timeout(harness, ti) == []
    harness.wait(REPORT_GRACE)
    assert "HeartbeatTimeout" in harness.failure()
    assert harness.runtime.take("delete") == []
    assert losses(harness)[0]["context"]["category"] == "TIMEOUT"


def test_a_silent_worker_that_has_ended_beside_a_sidecar(harness, running):
    ti, pod = running(harness)
    harness.observe(pod, m.lingering())
    assert heartbeat_timeout(harness, ti) == []
    for seconds in (REPORT_GRACE, SIDECAR_GRACE, REPORT_GRACE):
        harness.wait(seconds)
    assert "reason Error" in harness.failure()
    harness.quiet()
    assert harness.runtime.take("stop_and_keep") == [(pod.ref,)]


@pytest.mark.parametrize("database_is_away", [False, True])
def test_while_nobody_can_say_what_has_become_of_its_pod_a_silent_worker_is_not_judged(
    harness, running, monkeypatch, database_is_away
):
    ti, pod = running(harness)
    harness.runtime.is_away = True
    with monkeypatch.context() as patch:
        if database_is_away:
            patch.setattr(RetryPolicies, "with_budget", Mock(side_effect=DatabaseAwayError("no answer")))
        assert heartbeat_timeout(harness, ti) == []
    harness.wait(REPORT_GRACE)
    assert (losses(harness), harness.events()) == ([], {})
    harness.runtime.is_away = False
    harness.observe(pod, m.evicted())
    assert heartbeat_timeout(harness, ti) == []
    harness.wait(REPORT_GRACE)
    assert [(loss["reason"], loss["action"]) for loss in losses(harness)] == [("Evicted", "relaunch")]


def test_without_a_budget_a_silent_worker_fails_in_an_outage_too(start, running):
    harness = start()
    ti, _ = running(harness)
    harness.runtime.is_away = True
    heartbeat_timeout(harness, ti)
    harness.wait(REPORT_GRACE)
    assert [state for state, _ in harness.events().values()] == ["failed"]


def test_a_silent_worker_whose_pod_the_informer_has_not_seen_is_asked_for_first(harness, running, successor):
    ti, pod = running(harness)
    key = ti.key
    heir = successor(**BUDGET)
    assert heir.adopt(ti) == []
    heir.wait(1)
    assert heartbeat_timeout(heir, ti) == []
    heir.wait(REPORT_GRACE)
    assert (losses(heir), heir.runtime.take("confirm")) == ([], [(pod.ref,)])
    heir.send(PodConfirmed(pod.ref, None))
    heir.wait(REPORT_GRACE)
    assert present(heir, key).state == "scheduled"


def test_a_guess_about_what_is_not_followed_here_is_passed_on(harness, queued_ti):
    ti = queued_ti()
    assert len(heartbeat_timeout(harness, ti)) == 1
    assert [state for state, _ in harness.events().values()] == ["failed"]


# ------------------------------------------------------------------ a scheduler that has died


def adopted(session, ti):
    harness_job = make_scheduler_job(session)
    ti.queued_by_job_id = harness_job
    session.commit()
    return harness_job


def test_a_running_orphan_without_a_pod_is_settled(harness, queued_ti, session):
    ti = queued_ti()
    key, before = ti.key, str(ti.id)
    harness.set_state(ti, "running", hostname="gone-pod")
    adopted(session, ti)
    assert harness.adopt(ti) == []
    harness.wait(REPORT_GRACE)
    (loss,) = losses(harness)
    assert (loss["ti_id"], loss["worker_name"]) == (before, "gone-pod")
    harness.wait(60)
    # Its job is not known here: the scheduler queues it again, in the same try.
    row = present(harness, key)
    assert (row.state, row.try_number, str(row.id)) == ("scheduled", 1, loss["next_ti_id"])
    assert key not in harness.executor.running


def test_an_orphan_whose_worker_has_ended_without_a_report_has_failed_by_itself(
    harness, running, succeeded_by
):
    """Its scheduler had died before: the pod has succeeded, and the task instance is running."""
    ti, pod = running(harness)
    key = ti.key
    pod.become(m.succeeded())
    heir = succeeded_by(ti)
    heir.wait(REPORT_GRACE)
    heir.wait(REPORT_GRACE)
    ((state, _),) = heir.events().values()
    assert (state, present(heir, key).state) == ("failed", "running")
    assert [loss["context"]["category"] for loss in losses(heir)] == ["APPLICATION"]


def test_the_next_launch_waits_for_the_pod_that_a_dead_scheduler_has_replaced(harness, running, succeeded_by):
    """Its node is cut off: Airflow has not heard of the worker, and the dead scheduler has decided."""
    ti, pod = running(harness)
    key = ti.key
    harness.observe(pod, unready())
    heartbeat_timeout(harness, ti)
    harness.wait(REPORT_GRACE)
    assert [loss["action"] for loss in losses(harness)] == ["relaunch"]
    heir = succeeded_by(present(harness, key))
    heir.executor.heartbeat()
    assert [args[0] for args in heir.runtime.take("delete")] == [pod.ref]
    heir.wait(30)
    assert present(heir, key).state == "queued"
    heir.vanish(pod)
    heir.wait(1)
    assert present(heir, key).state == "scheduled"


def test_a_running_orphan_without_a_pod_whose_heartbeat_times_out_first_is_settled(
    harness, queued_ti, session
):
    ti = queued_ti()
    key = ti.key
    harness.set_state(ti, "running", hostname="gone-pod")
    adopted(session, ti)
    assert harness.adopt(ti) == []
    assert (heartbeat_timeout(harness, ti), harness.events()) == ([], {})
    harness.wait(REPORT_GRACE)
    assert (len(losses(harness)), harness.events(), present(harness, key).state) == (1, {}, "scheduled")


@pytest.mark.parametrize("starts_late", [False, True])
@pytest.mark.parametrize(("budget", "passed_on"), [("2", 0), ("0", 1)])
def test_a_heartbeat_times_out_while_the_pods_of_orphans_cannot_be_listed(
    start, queued_ti, session, budget, passed_on, starts_late
):
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET=budget)
    ti = queued_ti()
    if not starts_late:
        harness.set_state(ti, "running", hostname="gone-pod")
    adopted(session, ti)
    harness.cluster.outage = ConnectionFailedError("refused")
    assert harness.adopt(ti) == []
    if starts_late:
        harness.set_state(ti, "running", hostname="gone-pod")
    assert (len(heartbeat_timeout(harness, ti)), len(harness.events())) == (passed_on, passed_on)


def test_what_was_decided_by_a_scheduler_that_died_is_not_counted_twice(harness, running, start, session):
    """It died after its commit: the row is queued, without a pod, under the new UUID."""
    ti, pod = running(harness)
    key = ti.key
    lose(harness, pod)
    harness.cluster.remove(pod)
    heir = start(make_scheduler_job(session), **BUDGET)
    assert heir.adopt(present(heir, key)) == []
    heir.wait(60)
    row = present(heir, key)
    assert (row.state, row.try_number) == ("scheduled", 1)
    assert len(losses(heir)) == 1


@pytest.fixture
def succeeded_by(start, session):
    """Give a function that starts another scheduler's executor, which adopts a task instance."""

    def make(ti):
        session.execute(update(Job).values(state="failed"))
        heir = start(make_scheduler_job(session), **BUDGET)
        assert heir.adopt(ti) == []
        return heir

    return make


def test_the_loss_of_an_adopted_launch_has_its_delay_and_avoids_its_node(harness, running, succeeded_by):
    """The scheduler queues it again: the ledger says when it is due, and where the one before was."""
    ti, pod = running(harness)
    key = ti.key
    pod.manifest["spec"]["nodeName"] = "node-1"
    heir = succeeded_by(ti)
    lose(heir, pod)
    heir.wait(0.1)
    row = present(heir, key)
    assert row.state == "scheduled"
    heir.requeue(row)
    assert heir.runtime.take("create") == []
    heir.wait(60)
    (_, body) = heir.create_call()
    assert "node-1" in json.dumps(body["spec"]["affinity"])


@pytest.mark.parametrize(
    ("like", "command"),
    [(m.evicted(), "mark_done"), (m.lingering(m.terminated(137, "Error")), "stop_and_keep")],
    ids=["alone", "beside a sidecar"],
)
def test_the_pod_that_a_dead_scheduler_has_replaced_is_tidied_up(
    harness, running, succeeded_by, like, command
):
    ti, pod = running(harness)
    key = ti.key
    harness.observe(pod, like)
    harness.wait(SIDECAR_GRACE)
    harness.wait(REPORT_GRACE)
    heir = succeeded_by(present(harness, key))
    for _ in range(2):
        heir.wait(400)
        heir.runtime.carry_out("OrphanCollector")
    heir.quiet()
    heir.wait(400)
    assert heir.runtime.take("delete") == []
    assert (pod.ref,) in heir.runtime.take(command)


def test_what_is_seen_of_a_silent_worker_does_not_take_the_evidence_back(harness, running):
    ti, pod = running(harness)
    key = ti.key
    harness.observe(pod, unready())
    heartbeat_timeout(harness, ti)
    deleting = unready()
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    harness.observe(pod, deleting)
    harness.wait(REPORT_GRACE)
    assert present(harness, key).state == "queued"


def test_a_sidecar_that_is_not_ready_is_no_lost_node(harness, running):
    ti, pod = running(harness)
    manifest = m.alive()
    kinds = ("Ready", "ContainersReady")
    manifest["status"]["conditions"] = [m.condition(kind, "False") for kind in kinds]
    harness.observe(pod, manifest)
    heartbeat_timeout(harness, ti)
    harness.wait(REPORT_GRACE)
    assert losses(harness)[0]["context"]["category"] == "TIMEOUT"


def test_a_pinned_name_is_made_unique(harness, queued_ti, session):
    ti = queued_ti()
    ti.executor_config = {"pod_override": k8s.V1Pod(metadata=k8s.V1ObjectMeta(name="mine"))}
    session.commit()
    pod = harness.run(ti)
    lose(harness, pod)
    harness.wait(60)
    (_, body) = harness.create_call()
    assert body["metadata"]["name"] != pod.name


def test_a_row_that_somebody_has_locked_is_waited_for(harness, running):
    ti, pod = running(harness)
    key = ti.key
    with lock(ti):
        lose(harness, pod)
        assert losses(harness) == []
    harness.wait(1)
    assert len(losses(harness)) == 1
    assert present(harness, key).state == "queued"
