# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Pods were looked for: what becomes of their task instances, by what rows and ledger say by then."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.executors.adoption import adopter
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import ConnectionFailedError
from airflow_resilience import ledger

from ....support import manifests as m
from ....support.cluster import Pod
from ....support.harness import database_away
from ..failures.test_executions import losses
from .test_adopter_outage import try_again


def test_the_count_goes_on_in_the_next_scheduler(harness, queued_ti, successor):
    ti = queued_ti()
    harness.observe(harness.launch(ti), m.start_error())
    second = harness.created().become(m.evicted())
    heir = successor()

    heir.take_over(ti)
    info = heir.failure()
    assert "Evicted" in info
    assert "launch 2 of 2" in info
    assert [entry["worker_uid"] for entry in heir.ledger(ti)][-1] == second.ref.uid


def test_a_relaunch_that_was_decided_but_not_made_is_not_counted_twice(harness, launched, successor):
    ti, pod = launched
    harness.observe(pod, m.start_error())  # decided and written; the create call is lost with the scheduler
    heir = successor()

    heir.take_over(ti)
    assert heir.row(ti).state == "scheduled"
    assert len(heir.ledger(ti)) == 1
    heir.set_state(ti, "queued", queued_by_job_id=heir.executor.job_id)
    second = heir.launch(ti)
    assert second.launch_number == 2
    heir.observe(second, m.start_error())
    assert [state for state, _ in heir.events().values()] == ["failed"]


def test_a_relaunch_that_was_decided_is_made_whatever_the_old_pod_says_now(harness, launched, successor):
    ti, pod = launched
    harness.observe(pod, m.image_pull_error())  # decided and written; the scheduler dies with the rest
    assert len(harness.ledger(ti)) == 1
    pod.become(m.image_pull_error("ImagePullBackOff"))  # which alone is no reason to give a pod up
    heir = successor()

    heir.adopt(ti)
    heir.observe(pod)
    assert heir.runtime.take("delete") == [(pod.ref,)]
    heir.deleted(pod.ref)
    assert (heir.row(ti).state, len(heir.ledger(ti))) == ("scheduled", 1)


def test_a_final_failure_that_was_not_reported_is_reported(harness, queued_ti, successor):
    ti = queued_ti()
    harness.observe(harness.launch(ti), m.worker_error())
    assert len(harness.events()) == 1  # the scheduler is killed before it has acted on it
    heir = successor()

    heir.take_over(ti)
    assert [state for state, _ in heir.events().values()] == ["failed"]
    assert len(heir.ledger(ti)) == 1


def test_a_running_task_without_pod_is_reset_also_when_it_is_offered_again(harness, launched, successor):
    ti, pending = launched
    harness.set_state(ti, "running", hostname="dag-task-a1b2c3d4")
    heir = successor()
    assert heir.executor.try_adopt_task_instances([ti]) == [ti]
    heir.session.rollback()
    assert heir.adopt(ti) == [ti]
    assert heir.runtime.take("delete") == [(pending.ref,)]
    assert not heir.occupied(ti)


def test_a_task_that_has_begun_in_a_pod_after_the_list_is_looked_for_again(
    harness, queued_ti, successor, cluster
):
    ti = queued_ti()
    listed = harness.launch(ti).created("2026-01-01T00:00:00Z")
    heir = successor()
    heir.offer(ti)
    later = cluster.add(Pod(listed.manifest).created("2026-01-01T00:00:01Z"))
    later.become(m.alive()).manifest["metadata"]["name"] = "dag-task-b2c3d4e5"
    heir.set_state(ti, "running", hostname="dag-task-b2c3d4e5")
    heir.executor.sync()
    assert heir.registry.get(ti.key) is None
    try_again(heir)
    assert heir.registry.get(ti.key).ref == later.ref
    assert heir.runtime.take("delete") == [(listed.ref,)]


def test_a_task_that_has_begun_since_the_list_is_looked_for_again(harness, queued_ti, successor, cluster):
    """Its pod may be newer than the list, and its worker healthy. Without a pod it has lost its worker."""
    config = {"KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": "1"}
    ti = queued_ti()
    pod = harness.launch(ti)
    heir = successor(**config)
    cluster.outage = ConnectionFailedError("refused")
    heir.adopt(ti)
    heir.begin(ti, pod)
    cluster.remove(pod)
    cluster.outage = None
    try_again(heir)
    assert (heir.registry.adopting_of(ti.key).state, heir.events()) == ("running", {})
    try_again(heir)
    heir.wait(10)
    assert [loss["action"] for loss in losses(heir)] == ["relaunch"]


def test_a_task_that_has_started_while_its_adoption_was_postponed_is_not_killed(
    harness, queued_ti, successor, cluster
):
    """What is planned with is what the row said before the outage."""
    ti = queued_ti()
    first = harness.launch(ti).created("2026-01-01T00:00:00Z")
    second = cluster.add(Pod(first.manifest).created("2026-01-01T00:00:01Z"))
    second.manifest["metadata"]["name"] = "another-name"
    heir = successor()
    cluster.outage = ConnectionFailedError("refused")
    heir.adopt(ti)
    for pod in (first, second):
        pod.become(m.alive())
    heir.begin(ti, first)  # the outage is between us and the API server only
    cluster.outage = None
    try_again(heir)
    assert heir.runtime.take("delete") == [(second.ref,)]


def test_one_orphan_that_cannot_be_handled_leaves_the_others_alone(
    harness, queued_ti, successor, monkeypatch
):
    """The loop ends with it: it keeps its slot for ever, and those without a pod before it are forgotten."""
    odd, *others = tis = queued_ti(mapped=5)
    pods = {ti.map_index: harness.launch(ti) for ti in (odd, others[0])}
    real = adopter.launch_of

    def broken(orphan, *args, **more):
        if orphan.key == odd.key:
            raise ValueError("nobody expects this")
        return real(orphan, *args, **more)

    heir = successor()
    monkeypatch.setattr(adopter, "launch_of", broken)
    heir.adopt(*tis)
    for _ in range(10):
        try_again(heir)
    heir.observe(pods[others[0].map_index], m.start_error())
    assert [heir.row(ti).state for ti in others] == ["scheduled"] * 4
    assert not heir.occupied(odd)


def test_what_was_adopted_before_the_database_went_away_is_followed_at_once(harness, queued_ti, successor):
    """Else it would be followed when its next phase has taken its place."""
    running, podless = queued_ti(mapped=2)
    pod = harness.launch(running)
    harness.begin(running, pod)
    heir = successor()
    assert heir.offer(running, podless) == []
    with database_away(task_instances, "reschedule", "read_rows"):
        heir.executor.sync()
        heir.observe(pod, m.succeeded())  # its task has deferred
    heir.requeue(running)
    resumed = heir.created()
    for _ in range(3):
        heir.wait(1)
    assert heir.registry.get(running.key).ref == resumed.ref
    assert heir.ledger(running) == []


def test_what_was_found_when_the_database_went_away_is_adopted_when_it_is_back(
    harness, queued_ti, successor, cluster
):
    """Else the pods would have to be looked for again, which takes five seconds more."""
    ti = queued_ti()
    first = harness.launch(ti).created("2026-01-01T00:00:00Z")
    pod = cluster.add(Pod(first.manifest).created("2026-01-01T00:00:01Z"))
    pod.manifest["metadata"]["name"] = "another-name"
    heir = successor()
    assert heir.offer(ti) == []
    with database_away(ledger, "read_histories"):
        heir.executor.sync()
    assert heir.registry.get(ti.key) is None
    heir.executor.sync()
    assert heir.registry.get(ti.key).ref == pod.ref
    assert heir.runtime.take("delete") == [(first.ref,)]
