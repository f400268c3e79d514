# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A scheduler was killed; another one takes its task instances over."""

from __future__ import annotations

import json

import pytest
from airflow.jobs.job import Job
from sqlalchemy import update

from cluster_lab.airflow_fixtures import make_scheduler_job

from ....support import manifests as m


def test_a_pod_that_lives_is_adopted(harness, launched, successor):
    ti, pod = launched
    harness.begin(ti, pod)
    heir = successor()

    assert heir.adopt(ti) == []
    assert pod.labels["airflow-worker"] == heir.label
    assert heir.occupied(ti)
    heir.observe(pod, m.alive())
    heir.observe(pod, m.out_of_memory())
    ((key, (state, info)),) = heir.events().items()
    assert (key, state) == (ti.key, "failed")
    assert "OOMKilled" in info
    assert not heir.occupied(ti)


def test_a_running_task_whose_pod_a_living_scheduler_has_labelled_is_adopted(
    harness, launched, successor, session
):
    """That scheduler was killed before it had committed, and its heartbeat is fresh."""
    ti, pod = launched
    harness.begin(ti, pod)
    heir = successor()
    pod.labels["airflow-worker"] = str(make_scheduler_job(session))
    assert heir.adopt(ti) == []
    assert pod.labels["airflow-worker"] == heir.label
    assert heir.occupied(ti)


def test_the_same_for_the_official_executors_pod_of_a_queued_task(harness, queued_ti, successor, session):
    ti = queued_ti()
    pod = harness.launch(ti).strip()
    heir = successor()
    pod.labels["airflow-worker"] = str(make_scheduler_job(session))
    heir.adopt(ti)
    heir.send()
    assert pod.labels["airflow-worker"] == heir.label
    assert heir.row(ti).state == "queued"
    assert heir.occupied(ti)


def test_a_pod_whose_workload_is_of_an_earlier_life_is_not_adopted(harness, queued_ti, successor):
    ti = queued_ti()
    pod = harness.launch(ti).strip()
    index = pod.base["args"].index("--json-string") + 1
    pod.base["args"][index] = json.dumps({"ti": {"id": "01954f1e-4c5b-7d2a-8f57-5a4f1c6b0001"}})
    heir = successor()

    heir.take_over(ti)
    assert heir.row(ti).state == "scheduled"
    assert pod.labels["airflow-worker"] == harness.label


@pytest.mark.parametrize("kind", ["official", "ours"])
def test_nobody_knows_in_which_of_its_pods_a_task_runs(harness, queued_ti, successor, kind):
    """As after a switch from the official executor, which has left two pods, with host names of no pod."""
    ti = queued_ti()
    runs = harness.launch(ti).created("2026-01-01T00:00:00Z")
    harness.executor.revoke_task(ti=ti)
    harness.accepted(runs.ref)
    harness.clock.advance(60)
    failed = harness.launch(ti)
    if kind == "official":
        runs.strip()
        failed.strip()
    harness.set_state(ti, "running", hostname="some-host")
    runs.become(m.alive())
    failed.become(m.worker_error())  # it has lost the start
    heir = successor()

    assert heir.adopt(ti) == []
    heir.observe(failed)
    heir.quiet()
    assert (heir.runtime.take("delete"), heir.events()) == ([], {})
    heir.observe(runs, m.worker_error())
    assert (heir.runtime.take("delete"), heir.events()) == ([], {})


def test_the_address_says_in_which_of_its_pods_a_task_runs(harness, queued_ti, successor):
    ti = queued_ti()
    older = harness.launch(ti).created("2026-01-01T00:00:00Z")
    harness.executor.revoke_task(ti=ti)
    harness.accepted(older.ref)
    harness.clock.advance(60)
    newer = harness.launch(ti)
    older.become(m.alive()).manifest["status"]["podIP"] = "10.0.0.1"
    newer.become(m.alive()).manifest["status"]["podIP"] = "10.0.0.2"
    harness.set_state(ti, "running", hostname="10.0.0.1")
    heir = successor()

    heir.adopt(ti)
    assert heir.runtime.take("delete") == [(newer.ref,)]
    assert older.labels["airflow-worker"] == heir.label
    heir.observe(older)
    evicted = m.evicted()
    del evicted["status"]["podIP"]
    heir.observe(older, evicted)
    assert [state for state, _ in heir.events().values()] == ["failed"]


def test_what_a_scheduler_had_in_mind_before_another_one_took_over_is_forgotten(
    harness, launched, start, session, cluster
):
    """It was taken for dead while a relaunch waited; the other one launched it, and died."""
    ti, first = launched
    harness.observe(first, m.image_pull_error())  # the relaunch waits until that pod is gone, and 30 s
    cluster.remove(first)
    other = make_scheduler_job(session)
    harness.set_state(ti, "queued", queued_by_job_id=other)
    takes_over = start(other)
    takes_over.hand_over(ti)
    takes_over.wait(31)
    second = takes_over.created()
    session.execute(update(Job).where(Job.id == other).values(state="failed"))
    session.commit()

    assert harness.adopt(harness.row(ti)) == []
    harness.runtime.take("delete")
    harness.deleted(first.ref)
    harness.wait(600)
    assert harness.runtime.take("create") == []
    harness.observe(second, m.alive())
    assert harness.occupied(ti)


def test_the_adoption_that_was_rolled_back_decides_nothing(launched, successor):
    ti, pod = launched
    heir = successor()
    heir.executor.try_adopt_task_instances([ti])
    heir.session.rollback()

    heir.wait(1)
    assert (heir.occupied(ti), heir.runtime.take("adopt")) == (False, [])
    pod.become(m.start_error())
    assert heir.offer(ti) == []  # Airflow repeats it, and this time it succeeds
    heir.wait(1)
    heir.wait(1)
    assert (heir.row(ti).state, len(heir.ledger(ti))) == ("scheduled", 1)


def test_pods_are_adopted_in_the_order_of_the_offer(harness, queued_ti, successor):
    pods = {ti: harness.launch(ti) for ti in queued_ti(mapped=2)}
    heir = successor()
    heir.offer(*reversed(pods))
    heir.executor.sync()
    assert [ref.uid for ref, _ in heir.runtime.take("adopt")] == [pod.uid for pod in reversed(pods.values())]
